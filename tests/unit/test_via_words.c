/* The splitting of a prefix: as a shell does it, and refused where a shell would do more. */
#include "via_words.h"

#include <errno.h>

#include "check.h"

/* wanted: the words, each ended by a bar. */
static void check(const char *prefix, const char *wanted)
{
	AUTO_TEXT struct text why = {0};
	AUTO_TEXT struct text got = {0};
	char **words = NULL;

	CHECK_INT(words_split(prefix, &words, &why), 0);
	for (size_t i = 0; words[i]; i++)
		CHECK_INT(text_printf(&got, "%s|", words[i]), 0);
	CHECK_STR(text_str(&got), wanted);
	words_free(words);
}

static void refused(const char *prefix, const char *part)
{
	AUTO_TEXT struct text why = {0};
	char **words = NULL;

	CHECK_INT(words_split(prefix, &words, &why), -EINVAL);
	CHECK(!words);
	CHECK(strncmp(text_str(&why), "via: ", 5) == 0);
	CHECK(strstr(text_str(&why), part));
	CHECK_INT(words_split(prefix, &words, NULL), -EINVAL);
}

static void test_words(void)
{
	check("kubectl exec -i pod --", "kubectl|exec|-i|pod|--|");
	check("  a\t b\n", "a|b|");
	check("'a b' c", "a b|c|");
	check("a''b '' \"\"", "ab|||");
	check("a'b'\"c\"d", "abcd|");
	check("'$HOME `x` \\ \"'", "$HOME `x` \\ \"|");
	check("\"a\\\"b\\\\c\\$d\\`e\"", "a\"b\\c$d`e|");
	check("\"a\\bc\"", "a\\bc|");
	check("a\\ b \\' \\$x \\\\", "a b|'|$x|\\|");
	check("a\\\nb \"c\\\nd\"", "ab|cd|");
	check("a~ b#c x=y * ? [z] {q} !", "a~|b#c|x=y|*|?|[z]|{q}|!|");
	check("\\~ '#'", "~|#|");
	check("sh -c 'exec \"$@\"' sh", "sh|-c|exec \"$@\"|sh|");
	check("\xff\x01", "\xff\x01|");
}

static void test_refusals(void)
{
	refused("", "no command prefix");
	refused(" \n", "no command prefix");
	refused("a 'b", "single quotes");
	refused("a \"b", "double quotes");
	refused("a \"b\\", "double quotes");
	refused("a \\", "backslash");
	refused("a $HOME", "$");
	refused("a \"$HOME\"", "$");
	refused("a `b`", "`");
	refused("a \"`b`\"", "`");
	refused("~/bin/x", "~");
	refused("a # b", "#");
	refused("a | b", "|");
	refused("a && b", "&");
	refused("a; b", ";");
	refused("a > b", ">");
	refused("(a)", "(");
}

int main(void)
{
	test_words();
	test_refusals();
	return 0;
}

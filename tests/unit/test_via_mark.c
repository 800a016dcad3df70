/* Marks: found wherever they are split, and everything else passed on, to the byte and at once. */
#include "via_mark.h"

#include "check.h"
#include "text.h"

#define SECRET "0123456789abcdef0123456789abcdef"
#define TOKEN "\036" SECRET

/* Feeds a stream in pieces; marks appear in the result as <words>. */
static void scan(struct mark_scanner *s, const char *data, size_t len, struct text *ret)
{
	while (len) {
		struct mark_find find;
		size_t n = mark_scan(s, data, len, &find);

		CHECK(n <= len);
		if (find.piece == MARK_BYTES)
			CHECK_INT(text_append(ret, find.data, find.len), 0);
		else if (find.piece == MARK_WORDS)
			CHECK_INT(text_printf(ret, "<%s>", find.data), 0);
		data += n;
		len -= n;
	}
}

static void finish(struct mark_scanner *s, struct text *ret)
{
	struct mark_find find;

	mark_scan_end(s, &find);
	if (find.piece == MARK_BYTES)
		CHECK_INT(text_append(ret, find.data, find.len), 0);
	CHECK(!mark_scan_holds(s));
}

/* The stream comes out as wanted however it is cut in three. */
static void check_bytes(const char *data, size_t len, const char *wanted, size_t wanted_len)
{
	for (size_t i = 0; i <= len; i++)
		for (size_t j = i; j <= len; j++) {
			AUTO_TEXT struct text got = {0};
			struct mark_scanner s;

			mark_scanner_init(&s, SECRET);
			scan(&s, data, i, &got);
			scan(&s, data + i, j - i, &got);
			scan(&s, data + j, len - j, &got);
			finish(&s, &got);
			CHECK_INT(got.len, wanted_len);
			CHECK(memcmp(text_str(&got), wanted, wanted_len) == 0);
		}
}

static void check(const char *data, const char *wanted)
{
	check_bytes(data, strlen(data), wanted, strlen(wanted));
}

static void test_marks(void)
{
	check("", "");
	check("plain", "plain");
	check(TOKEN " ready\n", "<ready>");
	check("a" TOKEN " exit 3\nb", "a<exit 3>b");
	check(TOKEN " a\n" TOKEN " b\n", "<a><b>");
	check(TOKEN " \n", "<>");
	check_bytes("\0" TOKEN " x\n\0", 2 + 33 + 3, "\0<x>\0", 5);
}

static void test_what_is_not_one(void)
{
	check(TOKEN, TOKEN);
	check(TOKEN "\n", TOKEN "\n");
	check(TOKEN " no end", TOKEN " no end");
	check("\036\036" TOKEN " x\n", "\036\036<x>");
	check("\0360123\036" SECRET " x\n", "\0360123<x>");
	check("\036" SECRET "0 x\n", "\036" SECRET "0 x\n");
	check(SECRET " x\n", SECRET " x\n");
}

static void test_the_longest(void)
{
	AUTO_TEXT struct text data = {0};
	AUTO_TEXT struct text wanted = {0};
	char words[MARK_WORDS_MAX + 2];

	memset(words, 'w', sizeof(words));
	words[MARK_WORDS_MAX] = '\0';
	CHECK_INT(text_printf(&data, "a" TOKEN " %s\nb", words), 0);
	CHECK_INT(text_printf(&wanted, "a<%s>b", words), 0);
	check(data.data, wanted.data);
	text_done(&data);
	words[MARK_WORDS_MAX] = 'w';
	words[MARK_WORDS_MAX + 1] = '\0';
	CHECK_INT(text_printf(&data, "a" TOKEN " %s\nb", words), 0);
	check(data.data, data.data);
}

/* What cannot be a mark any more is not kept back until more comes. */
static void test_nothing_waits(void)
{
	AUTO_TEXT struct text got = {0};
	struct mark_scanner s;

	mark_scanner_init(&s, SECRET);
	scan(&s,
	     "\036"
	     "0123",
	     5, &got);
	CHECK_INT(got.len, 0);
	scan(&s, "x", 1, &got);
	CHECK_STR(text_str(&got), "\036"
				  "0123x");
	scan(&s, "prompt: ", 8, &got);
	CHECK_STR(text_str(&got), "\036"
				  "0123xprompt: ");
}

int main(void)
{
	test_marks();
	test_what_is_not_one();
	test_the_longest();
	test_nothing_waits();
	return 0;
}

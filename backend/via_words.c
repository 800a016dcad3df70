#include "via_words.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct splitter {
	const char *at; /* the next byte */
	struct text word;
	bool in_word; /* also true for the empty word of '' */
	char **words;
	size_t count;
	struct text *why;
};

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

static int add_byte(struct splitter *s, char c)
{
	s->in_word = true;
	return text_append(&s->word, &c, 1);
}

static int end_word(struct splitter *s)
{
	char **words;

	if (!s->in_word)
		return 0;
	words = realloc(s->words, (s->count + 2) * sizeof(*words));
	if (!words)
		return -ENOMEM;
	s->words = words;
	s->words[s->count] = strdup(text_str(&s->word));
	if (!s->words[s->count])
		return -ENOMEM;
	s->words[++s->count] = NULL;
	s->word.len = 0;
	if (s->word.data)
		s->word.data[0] = '\0';
	s->in_word = false;
	return 0;
}

static int refuse_expansion(struct splitter *s, char c)
{
	return text_fail(
		s->why, -EINVAL,
		"via: the prefix has a %c that a shell would expand, and no shell reads it: "
		"write it in single quotes, or put the value itself there",
		c);
}

static int open_quote(struct splitter *s, const char *name)
{
	return text_fail(s->why, -EINVAL, "via: the prefix ends inside %s quotes: close them",
			 name);
}

static int single_quoted(struct splitter *s)
{
	const char *end = strchr(s->at, '\'');
	int err;

	if (!end)
		return open_quote(s, "single");
	err = text_append(&s->word, s->at, (size_t)(end - s->at));
	s->at = end + 1;
	s->in_word = true;
	return err;
}

/* Between double quotes a backslash is itself unless one of $ ` " \ or a newline follows. */
static int double_quoted(struct splitter *s)
{
	int err = 0;

	s->in_word = true;
	while (err == 0 && *s->at != '"') {
		char c = *s->at++;

		if (c == '\0')
			return open_quote(s, "double");
		if (c == '$' || c == '`')
			return refuse_expansion(s, c);
		if (c == '\\' && *s->at && strchr("$`\"\\\n", *s->at)) {
			c = *s->at++;
			if (c == '\n')
				continue;
		}
		err = add_byte(s, c);
	}
	s->at++;
	return err;
}

static int backslash(struct splitter *s)
{
	char c = *s->at;

	if (!c)
		return text_fail(s->why, -EINVAL,
				 "via: the prefix ends with a backslash that quotes nothing");
	s->at++;
	return c == '\n' ? 0 : add_byte(s, c);
}

static int plain(struct splitter *s, char c)
{
	if (c == '$' || c == '`' || (!s->in_word && (c == '~' || c == '#')))
		return refuse_expansion(s, c);
	if (strchr("|&;<>()", c))
		return text_fail(
			s->why, -EINVAL,
			"via: the prefix has the shell operator %c, and no shell reads it: "
			"quote it, or use sh -c 'COMMAND \"$@\"' sh as the prefix",
			c);
	return add_byte(s, c);
}

static int split_all(struct splitter *s)
{
	int err = 0;

	while (err == 0 && *s->at) {
		char c = *s->at++;

		if (blank(c))
			err = end_word(s);
		else if (c == '\'')
			err = single_quoted(s);
		else if (c == '"')
			err = double_quoted(s);
		else if (c == '\\')
			err = backslash(s);
		else
			err = plain(s, c);
	}
	return err ? err : end_word(s);
}

int words_split(const char *prefix, char ***ret, struct text *why)
{
	struct splitter s = {.at = prefix, .why = why};
	int err = split_all(&s);

	text_done(&s.word);
	if (err == 0 && !s.count)
		err = text_fail(
			why, -EINVAL,
			"via: there is no command prefix: write via:'kubectl exec -i POD --'");
	if (err < 0) {
		words_free(s.words);
		return err;
	}
	*ret = s.words;
	return 0;
}

void words_free(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

/*
 * The two parsers of via: whose input others write. A stream with marks in it, cut up in any
 * way, must give what the same stream gives in one piece; a prefix must be split, or refused,
 * into words that quote back to themselves.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "far_script.h"
#include "fuzz.h"
#include "text.h"
#include "via_mark.h"
#include "via_words.h"

#define SECRET "00112233445566778899aabbccddeeff"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/*
 * Makes marks likely: byte 1 stands for a whole token, 2 for most of one, 3 for a
 * token with the space.
 */
static void expand(const uint8_t *data, size_t len, struct text *ret)
{
	static const char token[] = "\036" SECRET " ";

	for (size_t i = 0; i < len; i++)
		if (data[i] >= 1 && data[i] <= 3)
			require(text_append(ret, token, sizeof(token) - 4 + data[i]) == 0,
				"there is memory");
		else
			require(text_append(ret, data + i, 1) == 0, "there is memory");
}

static void take(const struct mark_find *find, struct text *ret)
{
	if (find->piece == MARK_BYTES)
		require(text_append(ret, find->data, find->len) == 0, "there is memory");
	else if (find->piece == MARK_WORDS)
		require(text_printf(ret, "\036<%s>", find->data) == 0, "there is memory");
}

/* Pieces of step bytes. */
static void scan_all(const struct text *stream, size_t step, struct text *ret)
{
	struct mark_scanner s;
	struct mark_find find;
	size_t done = 0;

	mark_scanner_init(&s, SECRET);
	while (done < stream->len) {
		size_t piece = MIN(step, stream->len - done);
		size_t n = mark_scan(&s, stream->data + done, piece, &find);

		require(n <= piece, "no more is used than there is");
		take(&find, ret);
		done += n;
	}
	mark_scan_end(&s, &find);
	take(&find, ret);
}

static void fuzz_marks(const uint8_t *data, size_t len)
{
	AUTO_TEXT struct text stream = {0};
	AUTO_TEXT struct text whole = {0};

	expand(data, len, &stream);
	scan_all(&stream, SIZE_MAX, &whole);
	for (size_t step = 1; step < 48; step += 7) {
		AUTO_TEXT struct text pieces = {0};

		scan_all(&stream, step, &pieces);
		require(pieces.len == whole.len, "the same length, however it is cut");
		require(!whole.len || memcmp(pieces.data, whole.data, whole.len) == 0,
			"the same bytes");
	}
}

static void fuzz_words(const uint8_t *data, size_t len)
{
	AUTO_TEXT struct text prefix = {0};
	AUTO_TEXT struct text quoted = {0};
	AUTO_TEXT struct text why = {0};
	char **words;
	char **again;
	size_t i;

	require(text_append(&prefix, data, len) == 0, "there is memory");
	if (words_split(text_str(&prefix), &words, &why) < 0) {
		require(why.len > 0, "a refusal has a sentence");
		return;
	}
	for (i = 0; words[i]; i++) {
		/* far_quote() has a variable for a newline. */
		if (strchr(words[i], '\n')) {
			words_free(words);
			return;
		}
		require(far_quote(&quoted, words[i]) == 0 && text_append(&quoted, " ", 1) == 0,
			"there is memory");
	}
	require(i > 0 && words_split(text_str(&quoted), &again, &why) == 0,
		"quoted words are split");
	for (i = 0; words[i]; i++)
		require(again[i] && strcmp(words[i], again[i]) == 0, "the same words");
	require(!again[i], "and no more");
	words_free(words);
	words_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 1)
		return 0;
	if (data[0] & 1)
		fuzz_marks(data + 1, len - 1);
	else
		fuzz_words(data + 1, len - 1);
	return 0;
}

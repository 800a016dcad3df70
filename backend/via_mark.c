#include "via_mark.h"

#include <string.h>

#include "util.h"

void mark_scanner_init(struct mark_scanner *s, const char *secret)
{
	s->held[0] = MARK_LEAD;
	memcpy(s->held + 1, secret, MARK_SECRET_BYTES);
	s->held[MARK_TOKEN_BYTES] = ' ';
	s->matched = 0;
}

/* What was kept back is no mark after all. */
static void give_back(struct mark_scanner *s, struct mark_find *ret)
{
	*ret = (struct mark_find){MARK_BYTES, s->held, s->matched};
	s->matched = 0;
}

void mark_scan_end(struct mark_scanner *s, struct mark_find *ret)
{
	*ret = (struct mark_find){MARK_NOTHING, NULL, 0};
	if (s->matched)
		give_back(s, ret);
}

/* Outside of a mark: everything up to the next lead byte is plain. */
static size_t scan_plain(struct mark_scanner *s, const char *data, size_t len,
			 struct mark_find *ret)
{
	const char *lead = memchr(data, MARK_LEAD, len);
	size_t plain = lead ? (size_t)(lead - data) : len;

	if (plain) {
		*ret = (struct mark_find){MARK_BYTES, data, plain};
		return plain;
	}
	s->matched = 1;
	return 1;
}

/*
 * Within the token and the space after it. On a mismatch the bytes so far are plain, all of
 * them: the lead byte occurs only at the start, so no later start was missed.
 */
static size_t scan_token(struct mark_scanner *s, const char *data, size_t len,
			 struct mark_find *ret)
{
	size_t n = 0;

	while (n < len && s->matched <= MARK_TOKEN_BYTES) {
		if (data[n] != s->held[s->matched]) {
			give_back(s, ret);
			return n;
		}
		s->matched++;
		n++;
	}
	return n;
}

static size_t scan_words(struct mark_scanner *s, const char *data, size_t len,
			 struct mark_find *ret)
{
	const size_t start = MARK_TOKEN_BYTES + 1;
	size_t room = start + MARK_WORDS_MAX - s->matched;
	size_t limit = MIN(len, room + 1);
	const char *newline = memchr(data, '\n', limit);
	size_t words = newline ? (size_t)(newline - data) : MIN(len, room);

	memcpy(s->held + s->matched, data, words);
	s->matched += words;
	if (newline) {
		s->held[s->matched] = '\0';
		*ret = (struct mark_find){MARK_WORDS, s->held + start, s->matched - start};
		s->matched = 0;
		return words + 1;
	}
	if (words == room && words < len)
		give_back(s, ret);
	return words;
}

size_t mark_scan(struct mark_scanner *s, const char *data, size_t len, struct mark_find *ret)
{
	*ret = (struct mark_find){MARK_NOTHING, NULL, 0};
	if (!s->matched)
		return scan_plain(s, data, len, ret);
	if (s->matched <= MARK_TOKEN_BYTES)
		return scan_token(s, data, len, ret);
	return scan_words(s, data, len, ret);
}

/*
 * Marks: what the supervisor on the far side says to us in the middle of a stream
 * of bytes that are not ours. A mark is the token of the call, a space, some
 * words and a newline. The token is a control byte and 128 random bits, so no command can
 * print it by chance or on purpose. Everything else in the stream
 * is passed on, unchanged and without delay: only a beginning that may still become a mark
 * is kept back.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The first byte of a token; it occurs in it once, which makes the search trivial. */
#define MARK_LEAD '\036'
#define MARK_SECRET_BYTES 32
#define MARK_TOKEN_BYTES (1 + MARK_SECRET_BYTES)
/* The words of a mark: the longest names a boot and a name space. */
#define MARK_WORDS_MAX 160

struct mark_scanner {
	char held[MARK_TOKEN_BYTES + 1 + MARK_WORDS_MAX + 1]; /* the token, then what follows it */
	size_t matched;					      /* bytes of held that were seen */
};

enum mark_piece { MARK_NOTHING, MARK_BYTES, MARK_WORDS };

/* What was found; valid until the next call with the same scanner. */
struct mark_find {
	enum mark_piece piece;
	const char *data; /* BYTES: not ours; WORDS: a string without the newline */
	size_t len;
};

/* secret: MARK_SECRET_BYTES bytes without MARK_LEAD. */
void mark_scanner_init(struct mark_scanner *s, const char *secret);

/*
 * Looks at the next len bytes (at least 1) of the stream, which it may find itself pointing
 * into. Returns how many it has dealt with, perhaps 0, and what they came to; to be called again
 * with the rest, until none is left.
 */
size_t mark_scan(struct mark_scanner *s, const char *data, size_t len, struct mark_find *ret);

/* The stream has ended: what was kept back is no mark, but bytes. */
void mark_scan_end(struct mark_scanner *s, struct mark_find *ret);

/* Whether something is kept back. */
static inline bool mark_scan_holds(const struct mark_scanner *s)
{
	return s->matched;
}

/*
 * The envelopes of a Connect stream (connectrpc.com/docs/protocol, "Streaming"):
 * one byte of flags, four of length, big-endian, then the payload. They are
 * put together over any chunking of the bytes they come in.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "text.h"

#define ENVELOPE_HEADER_BYTES 5

enum envelope_flag {
	ENVELOPE_COMPRESSED = 1, /* never asked for, so an error when it comes */
	ENVELOPE_END = 2,	 /* the last one: JSON in both codecs, {} or an error */
};

struct envelope {
	unsigned flags;
	const char *data; /* valid until the next call, and no longer than the bytes fed */
	size_t len;
};

/* Zero-initialised is at the start of a stream. */
struct envelope_reader {
	uint8_t header[ENVELOPE_HEADER_BYTES];
	size_t header_len;
	struct text payload; /* of an envelope that came in pieces */
	bool ended;
};

/*
 * Takes bytes from *data and advances it and *len. Returns 1 and *ret: an envelope
 * is complete; 0: all bytes are taken and more are needed; -EPROTO: an unknown
 * flag, a compressed envelope, or bytes after the end; -E2BIG: longer than
 * ENVELOPE_BYTES_MAX; -ENOMEM. After an error the stream cannot be read on.
 */
int envelope_next(struct envelope_reader *r, const char **data, size_t *len, struct envelope *ret);

/* Whether the bytes so far end between two envelopes. */
bool envelope_at_border(const struct envelope_reader *r);

/* Writes the header of an envelope whose payload has len bytes. */
void envelope_header(uint8_t header[ENVELOPE_HEADER_BYTES], unsigned flags, size_t len);

void envelope_reader_done(struct envelope_reader *r);

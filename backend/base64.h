/* Base64 (RFC 4648), as protobuf's JSON mapping writes and reads it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "text.h"

/* Appends len bytes in the standard alphabet, padded. Returns 0, -ENOMEM or -E2BIG. */
int base64_append(struct text *t, const void *data, size_t len);

/*
 * Bytes on their way to a reader, plain or in base64, decoded as they are taken so
 * that they land where they stay. Either alphabet, padded or not.
 */
struct payload {
	const char *data;
	size_t len;
	bool base64;
	size_t given; /* payload_read()'s own: bytes of the first base64 block that were taken */
};

/*
 * Moves up to size bytes into buf and advances the payload. Returns the number of bytes:
 * fewer than size only at the end of the payload, whose len is 0 then; or -EPROTO: not base64.
 */
ssize_t payload_read(struct payload *p, void *buf, size_t size);

/*
 * The frames in which an engine mixes stdout and stderr into one stream: a byte that says
 * which, three zeros, the length (32 bits, big endian), and that many bytes (Engine API,
 * "Attach to a container", stream format).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend.h"

/* Where a stream stands. Zero-initialised is its beginning. */
struct docker_frames {
	unsigned char head[8];
	size_t have;   /* bytes of the head so far; 8: within the payload */
	uint32_t left; /* bytes of the payload still to come */
};

/* Takes a piece of payload, or the beginning of it: returns the bytes taken. */
typedef size_t docker_payload_fn(void *owner, enum stream_id id, const char *data, size_t len);

/*
 * Feeds bytes; each piece of payload goes to sink. Returns the bytes used, fewer than len
 * only when sink took less: offer the rest again later. -EBADMSG: these are no frames.
 */
ssize_t docker_frames_feed(struct docker_frames *f, const char *data, size_t len,
			   docker_payload_fn *sink, void *owner);

/* Whether the stream may end here. */
static inline bool docker_frames_whole(const struct docker_frames *f)
{
	return !f->have;
}

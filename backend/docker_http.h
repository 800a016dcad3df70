/*
 * What the engine answers, in HTTP/1.1 (RFC 9112): a status line, headers and a body.
 * A parser without a connection: it is fed bytes and keeps where it stands.
 *
 * It is our own because of the one call that libcurl does not do: after the answer to
 * exec/ID/start and to attach, the connection is no longer HTTP but a raw stream in both
 * directions (docs/docker.md).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "text.h"

struct docker_answer {
	int status; /* 0: the head has not come to its end */
	bool chunked;
	bool sized;
	uint64_t length;     /* with sized: of the body */
	bool complete;	     /* the body has come to its end */
	char api_version[8]; /* the header Api-Version: "1.41"; "" when there is none */
	bool libpod;	     /* Podman's own header was there */

	/* docker_http.c's own: where the body stands. */
	uint64_t left;
	bool in_trailer;
	bool after_chunk;
};

/*
 * Parses a head. data begins with the first byte of the answer. Returns the length of
 * the head; 0 when its end has not come yet; -EBADMSG when this is not HTTP; -E2BIG
 * when it is longer than DOCKER_HEAD_BYTES_MAX.
 */
ssize_t docker_answer_head(struct docker_answer *a, const char *data, size_t len);

/*
 * Takes bytes of the body and appends what they stand for to body. Returns the bytes used:
 * fewer than len when the rest of a line has not come yet, or when the body is complete;
 * or -EBADMSG, -E2BIG or -ENOMEM.
 */
ssize_t docker_answer_body(struct docker_answer *a, const char *data, size_t len,
			   struct text *body);

/* The connection has ended. Returns 0 when that is the end of the body, or -ECONNRESET. */
int docker_answer_end(struct docker_answer *a);

/*
 * HTTP calls on the event loop, over one pool of connections (libcurl's multi
 * interface). A call is embedded in its owner, who fills the first part, begins
 * it, and is told of its end exactly once, unless it cancels it before.
 *
 * Rules:
 *   - a request is sent once: when a reused connection turns out to be dead, libcurl's silent
 *     second try is refused, since a lost answer may belong to a call that was acted upon;
 *   - TLS certificates are verified; redirects are not followed; no proxy, cookie or netrc file
 *     adds anything to a request but what the environment says of proxies;
 *   - nothing of a request is ever logged: libcurl's verbose mode stays off.
 *
 * Callbacks come from the loop, never from within the calls below. A callback may
 * begin and cancel calls, its own included.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"
#include "text.h"

struct http;
struct exchange;

struct http_options {
	const char *ca_file;	 /* certificates to trust instead of the system's; NULL: those */
	const char *unix_socket; /* connect there, whatever the URL's host says; NULL: TCP */
};

/* Headers to send. Zero-initialised is none. */
struct http_headers {
	struct curl_slist *list;
};

struct http_call {
	/* The owner's part; what it points at must live until the end of the call. */
	const char *method;
	const char *url;
	struct http_headers headers; /* taken over by http_begin() */
	const void *body;	     /* NULL: none */
	size_t body_len;
	uint64_t limit_ms; /* for the whole call; 0: none */

	/*
	 * Bytes of the answer's body. Returns how many were taken; when it is fewer than
	 * len, or http_hold() was called, the rest waits for http_resume(); after that
	 * it may be called with no bytes.
	 */
	size_t (*on_body)(struct http_call *call, const char *data, size_t len);

	/*
	 * The end. err is 0 when an answer came whole, whatever its status; else -errno with
	 * a sentence in `why`: what failed. The call may be begun anew from here.
	 */
	void (*on_done)(struct http_call *call, int err);

	/* What is known of the answer: status 0 until its head has come. */
	int status;
	unsigned retry_after_s; /* header Retry-After in seconds; 0: none */
	bool sent;		/* the request, or a part of it, may have reached the server */
	bool is_h2;		/* the answer came over HTTP/2 */
	char content_type[64];
	char why[256];

	struct exchange *exchange; /* http.c's own: NULL while the call is not under way */
};

/*
 * Makes a pool. Returns 0, -ENOMEM, or -EINVAL with a sentence (an unusable CA file
 * shows only when a call is made). The strings in options must outlive it.
 */
int http_new(struct loop *loop, const struct http_options *options, struct http **ret);

/* Ends it, and all calls without telling their owners. Harmless for NULL. */
void http_free(struct http *http);

/* Adds one line, "Name: value". Returns 0 or -ENOMEM. The text is copied and wiped at the end. */
int http_header(struct http_headers *headers, const char *fmt, ...) PRINTF_LIKE(2, 3);
void http_headers_done(struct http_headers *headers);

/* Begins a call; on_done() follows. Returns 0 or -ENOMEM: nothing follows. */
int http_begin(struct http *http, struct http_call *call);

/* Ends a call without on_done(): HTTP/2 resets the stream, HTTP/1.1 closes the connection. */
void http_cancel(struct http_call *call);

/* From within on_body(): no more bytes until http_resume(), though all were taken. */
void http_hold(struct http_call *call);

/* Lets a held call go on; bytes come later in this turn of the loop. Harmless when not held. */
void http_resume(struct http_call *call);
static inline bool http_active(const struct http_call *call)
{
	return call->exchange;
}

/*
 * Calls to the process service of a sandbox's envd (Connect protocol): unary ones, and
 * the stream of Start. Binary protobuf is tried first; a 415 turns the sandbox to JSON and
 * the refused request is made again, which is safe, since it was not read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "connect_envelope.h"
#include "e2b_codec.h"
#include "e2b_private.h"
#include "http.h"

/* A call with one answer. Embedded in its owner. */
struct e2b_unary {
	/* The owner's part. What request points at must live until done(). */
	struct e2b_sandbox *sandbox;
	struct e2b_request request;
	uint64_t limit_ms;
	/* fault is NULL: it worked, and the answer is in `answer` (E2B_LIST: JSON). */
	void (*done)(struct e2b_unary *u, const struct e2b_fault *fault);

	struct text answer;
	/* e2b_rpc.c's own. */
	const struct e2b_codec *codec;
	struct http_call call;
	struct text url;
	struct text body;
};

/* Makes the call. Returns 0: done() follows; or -ENOMEM or -E2BIG: nothing follows. */
int e2b_unary_begin(struct e2b_unary *u);

/* Ends it without done(), and lets go of what it holds. Harmless when none is under way. */
void e2b_unary_cancel(struct e2b_unary *u);

/* A Start and the events that follow it. Embedded in its owner. */
struct e2b_stream {
	/* The owner's part. What start points at must live until the first event or done(). */
	struct e2b_sandbox *sandbox;
	const struct e2b_start *start;
	const char *user;  /* NULL: the sandbox's default */
	unsigned kill_s;   /* envd is to kill the process after this many seconds; 0: never */
	uint64_t limit_ms; /* for the whole stream; 0: none */
	/*
	 * An event. Returns true when it was taken; false when its payload was not, or not whole:
	 * the rest is offered again after e2b_stream_resume().
	 */
	bool (*event)(struct e2b_stream *s, struct e2b_event *event);
	/* The end. fault is NULL when the stream ended as it should, with the envelope that says
	 * so. */
	void (*done)(struct e2b_stream *s, const struct e2b_fault *fault);

	uint64_t heard_ns; /* when bytes last came: CLOCK_MONOTONIC */
	/* e2b_stream.c's own. */
	const struct e2b_codec *codec;
	struct http_call call;
	struct text url;
	struct text body;
	struct envelope_reader reader;
	struct e2b_event held;
	struct text held_text;
	bool holding;
	bool saw_end;	     /* the last envelope */
	struct text refusal; /* its payload, or the body of an answer that is no stream */
};

/* As e2b_unary_begin() and e2b_unary_cancel(). */
int e2b_stream_begin(struct e2b_stream *s);
void e2b_stream_cancel(struct e2b_stream *s);

/* Whether a part of a message has come, and the rest of it must still be on its way. */
bool e2b_stream_is_within(const struct e2b_stream *s);

/* There is room for the held event; it is offered again later in this turn of the loop. */
void e2b_stream_resume(struct e2b_stream *s);

/* For both: the URL and the headers of a call. Return 0 or -ENOMEM. */
int e2b_rpc_url(struct text *url, const struct e2b_sandbox *sandbox, enum e2b_method method);
int e2b_rpc_headers(struct http_headers *headers, const struct e2b_sandbox *sandbox,
		    const char *user, const char *content_type);

/* Whether the answer is what was asked for: HTTP 200 and this content type. */
bool e2b_rpc_answered(const struct http_call *call, const char *content_type);

/* Whether the answer refuses binary protobuf; then the sandbox is turned to JSON for good. */
bool e2b_rpc_turn_to_json(struct e2b_sandbox *sandbox, const struct e2b_codec *used, int status);

/* Fills a fault from an answer (or none: err < 0) to a call that asked for `what`. */
void e2b_fault_of_answer(struct e2b_fault *fault, const char *what, const struct http_call *call,
			 int err, const struct text *body);

/* Fills a fault from the error in the last envelope of a stream, an HTTP 200. */
void e2b_fault_of_trailer(struct e2b_fault *fault, const char *what, const struct e2b_error *error);

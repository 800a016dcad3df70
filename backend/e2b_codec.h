/*
 * The two forms that envd's messages have: JSON, which every compatible server
 * reads, and binary protobuf, which is 2.5 times as fast. Requests are turned into
 * bytes and bytes into events; neither knows of HTTP or of commands.
 * The messages: process.proto of e2b-dev/infra (packages/envd/spec/process).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base64.h"
#include "spec.h"
#include "text.h"

enum e2b_method {
	E2B_START,
	E2B_LIST,
	E2B_SEND_INPUT,
	E2B_CLOSE_STDIN,
	E2B_SEND_SIGNAL,
};

/* "Start": the last part of the path. */
const char *e2b_method_name(enum e2b_method method);

/* A process to start. Strings are UTF-8. */
struct e2b_start {
	const char *cmd;
	const char *const *args;
	size_t arg_count;
	const struct spec_variable *envs; /* those without a value are left out */
	size_t env_count;
	const char *cwd; /* NULL: the user's home */
	const char *tag;
	bool input; /* a pipe; false: /dev/null */
};

struct e2b_request {
	enum e2b_method method;
	const struct e2b_start *start; /* E2B_START */
	uint32_t pid;		       /* E2B_SEND_INPUT, E2B_CLOSE_STDIN, E2B_SEND_SIGNAL */
	const void *input;	       /* E2B_SEND_INPUT */
	size_t input_len;
	int signo; /* E2B_SEND_SIGNAL: SIGTERM or SIGKILL, envd knows no other */
};

enum e2b_event_kind {
	E2B_EVENT_OTHER, /* a keepalive, or something newer than this program */
	E2B_EVENT_START,
	E2B_EVENT_STDOUT,
	E2B_EVENT_STDERR,
	E2B_EVENT_END,
};

struct e2b_event {
	enum e2b_event_kind kind;
	uint32_t pid;		/* START */
	struct payload payload; /* STDOUT, STDERR: points into the message or the codec's own */
	int exit_code;		/* END: 0 when the message does not say */
	bool exited;
	char status[96];
	void *message; /* the codec's own, until release() */
};

struct e2b_codec {
	const char *name;	 /* "json", "proto": as in the content type */
	const char *stream_type; /* "application/connect+json" */
	const char *unary_type;	 /* "application/json" */

	/* Appends the request. Returns 0, -ENOMEM or -E2BIG. */
	int (*encode)(const struct e2b_request *request, struct text *ret);

	/* Reads one message of a Start stream. Returns 0, -EPROTO or -ENOMEM. */
	int (*decode)(const char *data, size_t len, struct e2b_event *ret);

	/* Lets go of an event. */
	void (*release)(struct e2b_event *event);
};

extern const struct e2b_codec e2b_json;
extern const struct e2b_codec e2b_proto;

/* What an error answer or the end of a stream says. */
struct e2b_error {
	char code[32];	   /* a Connect code ("not_found"); "": none was given */
	char message[400]; /* for a person; "": none */
};

/*
 * Reads the JSON of an error body ({"code": ..., "message": ...}) or of the end of a stream
 * ({} or {"error": {...}}). A numeric code, as proxies write it, is not a Connect code.
 * Returns 1: it holds an error; 0: it holds none; -EPROTO: not a JSON object.
 */
int e2b_error_parse(const char *data, size_t len, struct e2b_error *ret);

/*
 * Looks for a process by its tag in the JSON answer to List. Returns its pid;
 * 0: none has it; -EPROTO: not such an answer.
 */
int64_t e2b_list_find(const char *data, size_t len, const char *tag);

/* The signal that an end event tells of; 0: it tells of none; -EPROTO: of one not known here. */
int e2b_event_signal(const struct e2b_event *event);

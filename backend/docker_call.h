/*
 * One plain call of the Engine API: a request with a JSON body, an answer with a JSON
 * body, a connection of its own. The owner embeds it and may use it again after done().
 */
#pragma once

#include <string.h>

#include "docker_conn.h"
#include "docker_http.h"
#include "text.h"

struct cJSON;

/* The engine as a mount knows it. */
struct docker_api {
	struct loop *loop;
	struct docker_host host;
	char version[8]; /* of the API: "1.41" */
	bool podman;
	char *scratch; /* DOCKER_SCRATCH_BYTES, for whoever receives just now */
};

/* Takes the first len bytes out of a text. */
static inline void docker_drop(struct text *t, size_t len)
{
	if (!len)
		return;
	t->len -= len;
	memmove(t->data, t->data + len, t->len + 1);
}

struct docker_call {
	struct docker_answer answer;
	struct text body; /* of the answer; wiped when the call is used again or cancelled */

	/* The rest is docker_call.c's own. */
	struct docker_conn conn;
	struct docker_api *api;
	void (*done)(struct docker_call *call, int err);
	struct text request;
	size_t sent;
	struct text input;
	struct timer deadline;
	bool bodiless; /* the method is HEAD: no body comes, whatever the answer's head says */
	bool running;
};

/*
 * Appends a request head and body: "POST /v1.41/path". A NULL body is none. hijack asks
 * for the raw stream. Returns 0 or -ENOMEM.
 */
int docker_request(struct text *ret, const struct docker_api *api, const char *method,
		   const char *path, const struct text *body, bool hijack);

/*
 * Sends a request; done() follows in a later turn: with 0 when there is an answer of
 * whatever status, or with -errno when there is none: -ETIMEDOUT, -ECONNREFUSED, -ENOENT (no
 * such socket), -EACCES... timeout_ms 0: none. A call that could not even be made fails
 * through done() as well.
 */
void docker_call_start(struct docker_call *call, struct docker_api *api, const char *method,
		       const char *path, const struct text *body, uint64_t timeout_ms,
		       void (*done)(struct docker_call *call, int err));

/* Forgets it: done() is not called. Harmless on a zeroed or finished call. */
void docker_call_cancel(struct docker_call *call);

/* A string of the answer's JSON object, to be freed; NULL when there is none. */
char *docker_call_string(const struct docker_call *call, const char *key);

/* The parsed body of the answer, to be released by the caller; NULL when it is not JSON. */
struct cJSON *docker_call_json(const struct docker_call *call);

/*
 * What went wrong, as a sentence behind `what` ("docker: cannot start a command in web"): why
 * the engine cannot be reached (err), or what it says in its answer. Returns the -errno
 * for it: err, or one that stands for the answer's status.
 */
int docker_why(const struct docker_api *api, int err, const struct docker_answer *answer,
	       const struct text *body, struct text *why, const char *what);

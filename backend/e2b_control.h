/*
 * E2B's control plane: a REST service in JSON that makes, finds, extends and ends sandboxes.
 * Times are in seconds. Source: spec/openapi.yml of e2b-dev/infra.
 *
 * Time to live. A sandbox that the mount made has a short one, set anew at each third of it while
 * the mount lives: a daemon that died leaves nothing that costs money for long. One that was there
 * before is extended while commands run in it, by calls that never shorten, unless the
 * option ttl says what to set.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "e2b_private.h"

/* One call. Embedded in its owner, who zeroes it and fills the first part. */
struct e2b_control {
	struct e2b *e2b;
	/* fault is NULL: it worked, and the answer is in `answer`. */
	void (*done)(struct e2b_control *c, const struct e2b_fault *fault);
	uint64_t limit_ms; /* 0: E2B_CONTROL_LIMIT_MS */

	struct text answer;
	/* e2b_control.c's own. */
	struct http_call call;
	const char *what;
	struct text url;
	struct text body;
};

/*
 * Begins a call; done() follows. what: for a sentence, a constant; path: "/sandboxes", text of
 * the body or NULL. Returns 0 or -ENOMEM: nothing follows.
 */
int e2b_control_begin(struct e2b_control *c, const char *what, const char *method, const char *path,
		      const char *body);

/* Whether it failed because there is no such sandbox: by the word of the control plane itself. */
bool e2b_control_says_gone(const struct e2b_control *c, const struct e2b_fault *fault);

/* Ends it without done(). Harmless when none is under way. */
void e2b_control_cancel(struct e2b_control *c);

/*
 * Makes a sandbox of a template; ttl_s: see above. Blocks: runs the loop until the answer
 * is there, so it is for backend_ops.open() and close(). Returns 0 or -errno with a sentence.
 */
int e2b_control_create(struct e2b *e2b, const char *template_name, unsigned ttl_s,
		       struct e2b_sandbox **ret, struct text *why);

/* Ends a sandbox for good; likewise. It being gone already is success. */
int e2b_control_delete(struct e2b *e2b, const struct e2b_sandbox *sandbox, struct text *why);

/*
 * Asks for what is needed to reach a sandbox that was there before, resumes it when it is
 * paused, and teaches it to *s. Part of e2b_sandbox_wait(). done() as above.
 */
int e2b_control_attach(struct e2b_control *c, const struct e2b_sandbox *s);

/* Takes in the answer to that. Returns 0 or -errno. */
int e2b_control_learn(struct e2b_sandbox *s, const struct text *answer);

/* Keeps a sandbox alive from now on while it should be, and stops that. */
void e2b_renewal_start(struct e2b_sandbox *s);
void e2b_renewal_wake(struct e2b_sandbox *s); /* a command is about to start */
void e2b_renewal_stop(struct e2b_sandbox *s);

/*
 * What the mount knows of a sandbox: where its envd is, the token for it, which codec it
 * takes, and the PATH of the login shells of its users. Asked once, when the first command needs
 * it; what could not be found out is asked again by the next.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "e2b_private.h"
#include "e2b_sweep.h"
#include "list.h"
#include "loop.h"

struct e2b_attach; /* e2b_control.h: the question to the control plane */

struct e2b_version {
	unsigned part[3];
};

/* A user of the sandbox and what every command of that user needs. */
struct e2b_user {
	struct list link;
	char *name;   /* NULL: the sandbox's default */
	char *path;   /* PATH of a login shell; NULL: it did not say, envd's is used */
	char *setsid; /* where that program is; NULL: there is none */
	bool known;
	unsigned tries; /* of asking that shell */
};

struct e2b_sandbox {
	struct list link;
	struct e2b *e2b;
	char *id;
	char *url;   /* of envd, without the last slash; NULL: not known yet */
	char *token; /* X-Access-Token; NULL: none is needed */
	bool ready;
	bool has_version;
	struct e2b_version version; /* of envd */
	const struct e2b_codec *codec;

	bool owned;	   /* the mount created it: it lives as long as the mount */
	uint64_t ttl_s;	   /* what its time to live is set or extended to; 0: not known */
	unsigned commands; /* not released: while there are some, it is kept alive */
	bool ttl_due;	   /* the option ttl is still to be set */
	struct timer renew_timer;
	struct e2b_renewal *renewal;

	struct e2b_attach *attach; /* NULL: none is under way */
	struct list users;	   /* struct e2b_user */
	struct list waiters;	   /* struct e2b_waiter */
	struct task wait_task;
	struct list errands; /* struct e2b_errand: signals on their way */
	struct e2b_fate *fate;
	struct e2b_probe *probe; /* e2b_sandbox.c's own */
	struct e2b_sweeper sweeper;
};

/* One who needs the sandbox and a user of it. Embedded in its owner. */
struct e2b_waiter {
	const char *user; /* NULL: the default; must live until ready() */
	/* fault is NULL: user is what is known. Never from within e2b_sandbox_wait(). */
	void (*ready)(struct e2b_waiter *w, const struct e2b_user *user,
		      const struct e2b_fault *fault);
	struct list link;
};

/* Forgets the signals on their way (e2b_signal.c). */
void e2b_errands_free(struct e2b_sandbox *s);

/* Finds a sandbox by its id or makes one that nothing is known of. NULL: no memory. */
struct e2b_sandbox *e2b_sandbox_get(struct e2b *e2b, const char *id);
void e2b_sandbox_free(struct e2b_sandbox *s);

/* Finds out what is missing; ready() follows, unless the wait is cancelled before. */
void e2b_sandbox_wait(struct e2b_sandbox *s, struct e2b_waiter *w);
void e2b_waiter_cancel(struct e2b_waiter *w);

/*
 * Takes in what the control plane says of the sandbox; domain, token and version may be
 * NULL. Returns 0 or -ENOMEM.
 */
int e2b_sandbox_learn(struct e2b_sandbox *s, const char *domain, const char *token,
		      const char *version);

/* Whether envd is known to be older than major.minor.patch. */
bool e2b_sandbox_older(const struct e2b_sandbox *s, unsigned major, unsigned minor, unsigned patch);

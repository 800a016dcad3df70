/*
 * The lease of a mount's commands on a far side that does not end with the daemon (kubectl exec,
 * docker exec): what makes them end when the daemon is killed.
 *
 * The guard is one more call of the prefix. At its far end a shell waits for the end of
 * its input, which comes when its client has died: with the daemon, since the keeper kills all
 * calls then, or alone. So that the second does no harm, the daemon calls another guard at once,
 * and the old one looks for it: when none has come within the lease, it kills every
 * command of the mount. A guard says in its environment who it is: "guard-", the prefix
 * of the mount's marks, and a sign for each guard that was called before it.
 *
 * There is none as long as no command needs one: those whose processes are below their
 * own call on this machine die with it. A mount without commands lets its guard go after
 * a while.
 */
#pragma once

#include <stdbool.h>

#include "far_script.h"
#include "via_call.h"
#include "via_script.h"

/* What marks of one mount have in common; the rest is each command's own. */
#define VIA_PREFIX_HEX (FAR_MARK_HEX / 2)

struct via_command;
struct lease;

enum guard_phase { GUARD_COMING, GUARD_UP, GUARD_LEAVING };

/* One call (via_guard.c). */
struct guard {
	struct list link; /* leaving: in lease->leaving */
	struct lease *lease;
	enum guard_phase phase;
	char secret[MARK_SECRET_BYTES + 1];
	struct call call;
	struct script_place place;
	struct text noise;
	struct timer timer; /* how long it may take to come, or to leave; up: the next beat */
	bool heard;	    /* since the last beat */
};

/* Which of them there are, and who waits for one (via_lease.c). Embedded in struct via. */
struct lease {
	unsigned seconds;		 /* 0: there are no guards */
	char prefix[VIA_PREFIX_HEX + 1]; /* of the marks of commands that start now */
	unsigned generation;		 /* of the guard that is called next */
	struct list commands;		 /* struct via_command: all of the mount's */
	bool needed;			 /* by a command, once */
	bool never;			 /* it was found that none can be had, or be of use */
	struct guard *guard;		 /* coming or up; NULL: none */
	struct list leaving;
	struct timer retry;
	struct timer idle;
	unsigned failures;    /* one after another */
	uint64_t recalled_ns; /* when one was called because another had ended */
	bool closing;
};

/* Returns 0 or -EIO. Then lease_done() is due. */
int lease_init(struct lease *l, unsigned seconds);

/* Lets the guard go, which kills what is left of the mount; waits for it, VIA_LINGER_MS at most. */
void lease_done(struct lease *l);

/* From a command's start to its release. */
void lease_join(struct via_command *c);
void lease_leave(struct via_command *c);

/*
 * Whether a command may be sent now: it needs no guard, has one, or will have none. When not,
 * via_judge() follows when that has changed.
 */
bool lease_allows(struct via_command *c);

/* ---- Between the two ---- */

/* Calls a guard. Returns 0 and *ret, or -errno with a sentence. */
int guard_call(struct lease *l, struct guard **ret, struct text *why);

/*
 * Lets it go, on the list of those that leave: with all that is left of the mount's
 * commands, or without touching any.
 */
void guard_dismiss(struct guard *g, bool kill);

/* Its far end sees the end of its input: the lease runs from now. */
void guard_free(struct guard *g);

/* From via_guard.c: it stands; it has no way to look; it has ended, by itself or as it was told to.
 */
void lease_guard_up(struct guard *g);
void lease_guard_blind(struct guard *g);
void lease_guard_ended(struct guard *g, const char *why);

/*
 * Signals that would end the daemon while it makes a sandbox: one that nobody was told of would be
 * paid for until its time to live is over. The first signal is kept until the sandbox is known, and
 * can be deleted; a second one acts at once. Once the mount is up it watches for them itself.
 */
#pragma once

#include "loop.h"

struct e2b_interrupt {
	unsigned signals; /* how many came */

	/* e2b_interrupt.c's own. */
	struct loop *loop;
	struct source source;
};

/* From here on SIGINT, SIGTERM and SIGHUP are blocked. Returns 0 or -errno. */
int e2b_interrupt_open(struct e2b_interrupt *interrupt, struct loop *loop);

/* They stay blocked, so that none is lost before the mount watches for them. */
void e2b_interrupt_close(struct e2b_interrupt *interrupt);

/*
 * Whether a sandbox is gone. The proxy says "not found" of one that was killed and of one that
 * is paused, whose processes will go on some day; only the control plane knows. One question
 * serves all commands of the sandbox.
 */
#pragma once

#include <stdbool.h>

#include "e2b_private.h"
#include "list.h"

struct e2b_fate;

/* Embedded in its owner, who fills told. */
struct e2b_fate_waiter {
	/* gone: it does not exist any more; false: it does, or nobody could say. */
	void (*told)(struct e2b_fate_waiter *w, bool gone);
	struct list link;
};

void e2b_fate_waiter_init(struct e2b_fate_waiter *w);

/* Asks; told() follows, never from within this call. */
void e2b_fate_ask(struct e2b_sandbox *s, struct e2b_fate_waiter *w);

/* Forgets a waiter. */
void e2b_fate_cancel(struct e2b_fate_waiter *w);
static inline bool e2b_fate_asked(const struct e2b_fate_waiter *w)
{
	return !list_empty(&w->link);
}

/* For the end of a sandbox. */
void e2b_fate_free(struct e2b_fate *fate);

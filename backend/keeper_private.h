/* The daemon's side of the keeper, shared by its two files: keeper.c and keeper_order.c. */
#pragma once

#include "cgroup.h"
#include "keeper.h"
#include "list.h"

struct keeper {
	struct loop *loop;
	struct source socket; /* fd -1: the keeper is dead */
	pid_t pid;	      /* 0: reaped */
	struct cgroup cgroup; /* fd -1: each command has a warden */
	struct text way;
	struct list orders; /* struct order: those that wait for room */
	struct timer retry; /* sends the orders again, or kills what a dead keeper left again */
	/* By slot: whose it is, or NULL when forgotten; and whether it is in use. */
	struct kept **slots;
	bool *taken;
	uint32_t capacity;
	uint32_t next_free;
};

/* Sends what waits, as far as there is room. */
void keeper_send_orders(struct keeper *k);

/* Drops what waits. */
void keeper_drop_orders(struct keeper *k);

/* Gives a kept command a slot. Returns 0 or -ENOMEM. */
int keeper_take_slot(struct keeper *k, struct kept *kept);
void keeper_free_slot(struct keeper *k, uint32_t slot);

/*
 * What the daemon and its keeper say to each other, one message a packet of a
 * SOCK_SEQPACKET socket pair (unix(7)). A command is named by its slot, which the
 * daemon gives out and uses again only after KEEPER_GONE. An end of file
 * from the daemon means: kill everything and end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "bounds.h"

enum keeper_order {
	KEEPER_START,  /* with the descriptors below and a spawn text */
	KEEPER_SIGNAL, /* value: the signal's number */
	KEEPER_KILL,
	KEEPER_CLOSE_INPUT,
	KEEPER_WILL_SAY, /* KEEPER_LAST_WORDS, when the daemon is gone */
};
#define KEEPER_LAST_WORDS "dead\n"

/*
 * The descriptors of KEEPER_START, in this order; FD_MEMFD only with text_in_memfd. Status
 * is first: when the keeper has no room for all, it still can say so.
 */
enum { FD_STATUS, FD_INPUT, FD_OUTPUT, FD_ERROR, FD_INPUT_WRITE, FD_MEMFD, FD_COUNT };

/*
 * The strings of a command, each with its NUL: the directory if there is one, the arguments,
 * the variables to set as NAME=VALUE, the names to unset.
 */
struct spawn_counts {
	uint32_t cwd; /* 0 or 1 */
	uint32_t argc;
	uint32_t set;
	uint32_t unset;
};

struct keeper_message {
	uint32_t order;
	uint32_t slot;
	int32_t value;
	uint32_t text_in_memfd;
	struct spawn_counts counts;
	uint64_t text_len;
	/* Then text_len bytes, unless they are in the memfd. */
};

enum keeper_event_kind {
	KEEPER_EXITED, /* value: the status, as wait(2) has it */
	KEEPER_LOST,   /* the leader is dead, its status is not known */
	KEEPER_GONE,
};

/* A packet to the daemon is an array of these. */
struct keeper_event {
	uint32_t kind;
	uint32_t slot;
	int32_t value;
};
#define KEEPER_EVENTS_MAX 64

/* What the daemon was started with and changes for itself: every command gets it back. */
struct inherited {
	struct rlimit nofile;
	struct rlimit core;
	const char *directory; /* where it was started */
};

/*
 * The keeper: a small process that owns every command of local:. It is forked
 * before the mount exists, so that a fork of it is cheap, it never holds /dev/fuse,
 * and a command whose directory or program lies in the mount blocks only itself.
 * It outlives the daemon for as long as it takes to kill all commands.
 *
 * A command is a tree of processes, held together in one of two ways: by a
 * cgroup v2 of its own (cgroups(7)), or by a warden, a subreaper (prctl(2)) that
 * all its orphans fall to. Either way the tree is killed as a whole, processes that left
 * their group, session or parent included.
 *
 * This header is the daemon's side: everything runs on its loop and nothing blocks but
 * keeper_open() and keeper_close().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper_wire.h"
#include "loop.h"
#include "spec.h"
#include "text.h"

enum keeper_tree { KEEPER_TREE_AUTO, KEEPER_TREE_CGROUP, KEEPER_TREE_WALK };

struct keeper;

/* A command in the keeper's care; embedded in its owner, who fills the calls. */
struct kept {
	/* The leader has ended: status is as wait(2) has it. At most once. */
	void (*exited)(struct kept *kept, int status);
	/* How the leader ended will never be known: its keeper was killed. Instead of exited(). */
	void (*lost)(struct kept *kept);
	/* No process is left; the keeper has forgotten it. Once, and last. */
	void (*gone)(struct kept *kept);

	struct keeper *keeper; /* the keeper's own: NULL when not in its care */
	uint32_t slot;
	unsigned due; /* orders to be given, as bits of enum keeper_order */
	bool ended;
};

/* What a command starts with. Descriptors stay the caller's. */
struct keeper_start {
	const struct spec *spec;
	int input;	 /* read end of its stdin; -1: none */
	int input_write; /* the write end: kept open until told, so that no death is an end */
	int output;
	int error;
	int status; /* write end of a pipe for spawn reports (spawn.h) */
};

/*
 * Starts the keeper. inherited is what each command gets. Returns 0 or -errno with a sentence.
 * Makes the calling process a subreaper: it takes over when the keeper is killed.
 */
int keeper_open(struct loop *loop, enum keeper_tree tree, const struct inherited *inherited,
		struct keeper **ret, struct text *why);

/* Kills what still runs, and waits for the end, within KEEPER_END_MS. NULL is fine. */
void keeper_close(struct keeper *keeper);

/* "cgroup /sys/fs/cgroup/..." or "walk": how trees are held together, for the log. */
const char *keeper_way(const struct keeper *keeper);

/*
 * Asks for a start. Returns 0: gone() follows some day, and before it the status
 * pipe tells what became of the start; or -errno with a sentence.
 */
int keeper_start(struct keeper *keeper, struct kept *kept, const struct keeper_start *start,
		 struct text *why);

/* Sends a signal to the process group of the leader, unless it has ended by then. */
void keeper_signal(struct kept *kept, int signo);

/* Kills the tree. May be repeated; harmless when it is gone. */
void keeper_kill(struct kept *kept);

/* Gives up the keeper's copy of the input's write end; harmless when the tree is gone. */
void keeper_close_input(struct kept *kept);

/*
 * From now on, when the daemon dies this one is not killed with the others at once: its input says
 * KEEPER_LAST_WORDS and ends, and it has KEEPER_FAREWELL_MS. Nothing that was not
 * written whole may be in the pipe then.
 */
void keeper_grant_farewell(struct kept *kept);

/* No more calls for this one; the keeper still takes care of the command. */
void keeper_forget(struct kept *kept);

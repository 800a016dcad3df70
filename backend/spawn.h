/*
 * The start of a command, seen from the process that becomes it.
 *
 * It reports on a pipe that is closed by exec: first SPAWN_PID; then nothing, and the
 * end of the pipe says that the command runs; or one report of what failed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper_wire.h"

enum spawn_stage {
	SPAWN_PID,  /* value: the pid */
	SPAWN_FORK, /* the others: value is the errno, positive */
	SPAWN_SETUP,
	SPAWN_DIRECTORY, /* the default one */
	SPAWN_CWD,
	SPAWN_EXEC,
};

struct spawn_report {
	int32_t stage;
	int32_t value;
};

struct spawn {
	struct spawn_counts counts;
	const char *text; /* the strings; NULL: they are in memfd */
	size_t text_len;
	int fds[FD_COUNT]; /* as in KEEPER_START */
	const struct inherited *inherited;
	pid_t parent;
};

/* Sends a report; a reader that has gone does not matter. */
void spawn_report(int fd, enum spawn_stage stage, int value);

/*
 * Becomes the command, in a process that was just forked from a single-threaded one
 * with all signals at their defaults. Lets go of every other descriptor before it touches
 * a path: a path can lie in the mount, and then wait for the daemon (fuse(4)).
 */
_Noreturn void spawn(const struct spawn *s);

/* Closes everything from 3 on but the count descriptors in keep, which gets sorted. */
int close_all_but(int *keep, size_t count);

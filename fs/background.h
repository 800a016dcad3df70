/*
 * Going into the background: the parent stays until the mount answers, so that its
 * exit status is the truth (fuse_daemonize() of libfuse leaves with 0 before that).
 */
#pragma once

#include <sys/types.h>

#include "text.h"

struct background {
	pid_t child;
	int ready; /* a pipe: the child writes, the parent reads */
};

#define BACKGROUND_NONE                                                                            \
	{                                                                                          \
		.child = -1, .ready = -1                                                           \
	}

/* Forks. Returns 1 in the parent, 0 in the child, or -errno with a sentence.
 */
int background_enter(struct background *bg, struct text *why);

/* Child: the mount is up. Lets the parent go; from now on in a session of its own, in /. */
void background_ready(struct background *bg);

/* Parent: waits for the child. Returns the exit status: 0 when it is ready. */
int background_wait(struct background *bg);

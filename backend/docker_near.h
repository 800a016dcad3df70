/*
 * The processes of a container as this machine's own /proc shows them: for a container
 * without a shell, in which no helper can look, and only where the engine is on this machine, this
 * daemon is root and sees the container's processes. Everything is found and killed by the same
 * rules as by far_script.h: the mark, the leader's session and group, and all descendants.
 *
 * A process is never signalled by a bare number: a pidfd is taken, and what it stands for
 * compared with what was found (its start time), before it is used.
 */
#pragma once

#include <stdint.h>

struct docker_near {
	const char *container; /* its whole id, which a cgroup's path holds */
	const char *mark;
	int64_t init;	/* of the container, as the engine has it: whether we see it is the proof */
	int64_t leader; /* of the command, as the engine has it; 0: not known */
	uint64_t ticks; /* by docker_near_ticks() while it ran; 0: not seen */
};

/* When a process of the container began (proc(5), starttime). 0: there is none such here. */
uint64_t docker_near_ticks(const char *container, int64_t pid);

/*
 * Looks for the command's processes. Returns 1: some are left; 0: none; -EXDEV: the container's
 * processes are not on this machine, or are not to be seen; -EPERM: they may not be looked into.
 */
int docker_near_check(const struct docker_near *near);

/* Sends SIGKILL to what is found, until a look finds nothing that was not told. Returns likewise.
 */
int docker_near_kill(const struct docker_near *near);

/*
 * Signals the leader's process group. init is not needed: the leader itself is the proof. Returns
 * 0, -ESRCH: it has ended; -EXDEV: it was never seen here.
 */
int docker_near_signal(const struct docker_near *near, int signo);

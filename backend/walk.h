/*
 * Killing a tree of processes by walking it, where there is no cgroup for it.
 *
 * The walker must be the subreaper (prctl(2)) of the tree, so that no descendant
 * ever leaves it. Everything found is stopped first, until a walk finds nothing new,
 * and only then killed: a tree that forks for its life cannot use the places of the dead.
 * A fork that was under way when its process was killed leaves a child,
 * which falls to the walker: so walk again until there are no children.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether the kernel tells the children of a process (CONFIG_PROC_CHILDREN, proc(5)). */
bool walk_works(void);

/*
 * Stops and kills the descendants of root, but not root. Returns how many were found, or
 * -EPERM when some belong to another user and cannot be killed; or another -errno: not all
 * could be looked at.
 */
int walk_kill(pid_t root);

enum walk_choice {
	WALK_KILL,
	WALK_PASS, /* not this one, but look at its children */
	WALK_SKIP, /* nor at its children */
};

/*
 * Kills those descendants of root that are chosen, without stopping the others: it looks at
 * WALK_CHOOSE_MAX of them at most, for there may be no last one. Returns as above.
 */
int walk_kill_chosen(pid_t root, enum walk_choice (*choose)(pid_t pid, void *arg), void *arg);

/*
 * One cgroup v2 for all commands of a mount, and in it one for each command
 * (cgroups(7), Documentation/admin-guide/cgroup-v2.rst). The kernel puts every descendant
 * into the group of its parent, and a write to cgroup.kill ends all of them, with no
 * way to outrun it by forking.
 *
 * The mount's group is locked with flock(2) while its keeper lives. A group that
 * nobody has locked was left behind by one that was killed together with its daemon.
 */
#pragma once

#include <stdbool.h>

#include "text.h"

struct cgroup {
	int fd;	    /* the mount's group; -1: there is none */
	int parent; /* the directory it is in */
	char name[64];
};

/*
 * Makes the mount's group below the one this process is in, after killing and removing those
 * left behind there, and tries a start and a kill in it. Returns 0 or -errno with a sentence.
 */
int cgroup_open(struct cgroup *ret, struct text *path, struct text *why);

/* Closes the descriptors only. */
void cgroup_done(struct cgroup *cgroup);

/* Removes the mount's group. Returns 0 or -errno: -EBUSY, processes are left. */
int cgroup_remove(const struct cgroup *cgroup);

/* The groups of commands: a slot is a directory named by its number. */

/* Returns a descriptor of the new group, for clone3(2), or -errno. */
int cgroup_slot_make(const struct cgroup *cgroup, unsigned slot);

/* Returns 0 or -errno: -EBUSY, processes are left; -EAGAIN, try again. */
int cgroup_slot_remove(const struct cgroup *cgroup, unsigned slot);

/* Kills every process in it. Returns 0 or -errno. */
int cgroup_slot_kill(const struct cgroup *cgroup, unsigned slot);

/* Returns a descriptor that polls EPOLLPRI when the last process has left, or -errno. */
int cgroup_slot_watch(const struct cgroup *cgroup, unsigned slot);

/* Kills every process in all of them. Returns 0 or -errno. */
int cgroup_kill_all(const struct cgroup *cgroup);

/* Whether a process is in the group of a slot; false also when it is gone. */
bool cgroup_slot_has(const struct cgroup *cgroup, unsigned slot, int pid);

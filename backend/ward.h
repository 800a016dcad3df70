/*
 * A ward: one command in the keeper's care, and the two ways of holding its
 * tree together. The keeper process's own; see keeper.h for the whole.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper_run.h"
#include "spawn.h"

struct ward {
	uint32_t slot;
	pid_t pid; /* the child of the keeper: leader or warden; 0: reaped */
	int fd;	   /* watched: a pidfd, later cgroup.events; or the warden's socket; -1: none */
	int input; /* the write end of stdin: no death of the daemon is an end of input */
	bool leader_ended; /* the daemon has been told */
	bool killing;
	bool farewell;	/* not killed at once when the daemon is gone */
	bool unsettled; /* the next sweep goes on with it */
};

struct ward_table {
	struct ward **slots;
	size_t capacity;
	size_t count;
};

struct keeper_process {
	const struct keeper_setup *setup;
	const struct ward_way *way;
	struct ward_table wards;
	int epoll;
	int signals;
	bool ending;	       /* the daemon is gone, or wants the end */
	uint64_t sweep_due_ms; /* CLOCK_MONOTONIC; 0: nothing to sweep */
	uint64_t kill_due_ms;  /* likewise: the last of all are killed */
	struct keeper_event events[KEEPER_EVENTS_MAX];
	size_t event_count;
};

/* How trees are held together. */
struct ward_way {
	/* Starts the command; fills pid and fd. Returns 0 or -errno. */
	int (*start)(struct keeper_process *k, struct ward *ward, struct spawn *spawn);
	/* ward->fd is ready. */
	void (*ready)(struct keeper_process *k, struct ward *ward);
	/* ward->pid has been reaped, and is 0. */
	void (*reaped)(struct keeper_process *k, struct ward *ward, int status);
	/* To the leader's group. */
	void (*signal)(struct keeper_process *k, struct ward *ward, int signo);
	/* Starts, or repeats, the kill of the whole tree. */
	void (*kill)(struct keeper_process *k, struct ward *ward);
	/* Finds out whether anything is left, and calls ward_gone() when not. */
	void (*settle)(struct keeper_process *k, struct ward *ward);
};

extern const struct ward_way ward_in_cgroup;
extern const struct ward_way ward_under_warden;

/* Tells the daemon. */
void ward_exited(struct keeper_process *k, struct ward *ward, int status);
void ward_lost(struct keeper_process *k, struct ward *ward);

/* Tells the daemon and frees the ward. */
void ward_gone(struct keeper_process *k, struct ward *ward);

/* Watches ward->fd for events of epoll_ctl(2). Returns 0 or -errno. */
int ward_watch(struct keeper_process *k, struct ward *ward, uint32_t events);

/* Lets a sweep come soon: for orphans to reap, or to go on with a ward. */
void sweep_later(struct keeper_process *k);
void ward_unsettled(struct keeper_process *k, struct ward *ward);

/* Whose child a pid is; NULL: an orphan of some tree. */
struct ward *ward_of_pid(struct keeper_process *k, pid_t pid);

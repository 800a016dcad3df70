/* What /proc/PID/stat says of a process of this machine (proc(5)). */
#pragma once

#include <stdint.h>

struct proc_stat {
	char state; /* R, S, D, Z... */
	int64_t parent;
	int64_t group;
	int64_t session;
	long threads;
	uint64_t ticks; /* starttime: with the pid, it names a process for good */
};

/* Returns 0; -ESRCH: there is none; or another -errno: it cannot be read. */
int proc_stat_read(int64_t pid, struct proc_stat *ret);

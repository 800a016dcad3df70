/* The keeper's own side: its process, from the fork to its end. */
#pragma once

#include "cgroup.h"
#include "keeper_wire.h"

struct keeper_setup {
	int socket;	      /* its end of the pair */
	struct cgroup cgroup; /* fd -1: each command gets a warden */
	struct inherited inherited;
};

/* Runs the keeper in a process that was just forked, until the daemon and all commands have ended.
 */
_Noreturn void keeper_run(const struct keeper_setup *setup);

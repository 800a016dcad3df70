/*
 * Notices that a mount was taken away although the kernel does not say so on /dev/fuse: a copy of
 * it in another mount namespace (unshare, a container, a sandbox made while it was mounted) keeps
 * the file system alive. Nobody here can see the commands any more, so they must not run on.
 */
#pragma once

#include <sys/types.h>

#include "loop.h"

struct mount_watch {
	/* The mount is in this namespace no longer. Called once. The owner fills it. */
	void (*gone)(struct mount_watch *watch);

	/* The rest is mount_watch.c's own. */
	struct loop *loop;
	struct source source; /* /proc/self/mountinfo; -1: not watched */
	struct timer timer;
	dev_t device;
	unsigned misses;
};

/*
 * Begins to watch what is mounted on path. Asks nothing of the file system itself, which need not
 * be served yet. Returns 0 or -errno: without /proc there is nothing to watch.
 */
int mount_watch_open(struct mount_watch *watch, struct loop *loop, const char *path);
void mount_watch_close(struct mount_watch *watch);

/*
 * Notices that a mount was taken away although the kernel does not say so on /dev/fuse: a copy of
 * it in another mount namespace (unshare, a container, a sandbox made while it was mounted) keeps
 * the file system alive. Nobody here can see the commands any more, so they must not run on.
 */
#pragma once

#include <sys/types.h>

#include "loop.h"
#include "text.h"

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

/*
 * Appends a path that the mount has now: it moves with a directory above it, and may be bound in
 * more places. Returns 0; -EBUSY when something else is mounted over it; -ENOENT when it is in this
 * namespace no longer; another -errno when nobody can tell.
 */
int mount_watch_path(const struct mount_watch *watch, struct text *ret);

void mount_watch_close(struct mount_watch *watch);

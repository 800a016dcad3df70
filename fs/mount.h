/*
 * A mount: the FUSE session and everything behind it. All of it belongs to the
 * loop thread, but for the invalidator's own thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "backend.h"
#include "bounds.h"
#include "entry.h"
#include "exec.h"
#include "fuse.h"
#include "loop.h"
#include "mount_watch.h"
#include "text.h"

#define INFO_NAME ".spawnfs"

struct invalidator;

struct mount {
	const char *mountpoint;
	struct settings settings;
	bool allow_other;
	struct loop *loop;
	struct backend *backend;
	struct exec_table execs;
	struct entry_table entries;

	struct fuse_session *session;
	struct fuse_buf request; /* the one receive buffer */
	struct source fuse_source;
	struct source signal_source;
	struct mount_watch watch;
	struct invalidator *invalidator;
	struct list handles; /* struct handle: every open file */
	char *bounce;	     /* TRANSFER_BYTES_MAX, made when first needed */

	uid_t uid; /* of the root and .spawnfs */
	gid_t gid;
	struct timespec since;
	bool ending; /* every command is being killed; nothing new starts */
	struct timer ending_timer;
};

/*
 * Mounts m->backend at m->mountpoint. Returns 0, or -errno with a sentence in *why,
 * and then nothing is left mounted. m holds mountpoint, settings, allow_other, loop and backend.
 */
int mount_open(struct mount *m, struct text *why);

/* Serves until the mount ends or a signal ends it; every command has been killed then. */
int mount_serve(struct mount *m);

/* Unmounts if that has not happened, and releases what mount_open() made. */
void mount_close(struct mount *m);

/* Ends the mount when it is ending and the last command is over. */
void mount_check_ended(struct mount *m);

/* The bounce buffer, or NULL without memory. */
char *mount_bounce(struct mount *m);

/* Adds what dir.c and file.c answer. */
void dir_ops_add(struct fuse_lowlevel_ops *ops);
void file_ops_add(struct fuse_lowlevel_ops *ops);

/* file.c: what waiting requests are told. */
extern const struct exec_observer file_observer;

/* attr.c: fills st for a nodeid. Returns 0 or -ENOENT. */
int attr_fill(struct mount *m, fuse_ino_t node, struct stat *st);

/* Seconds that the kernel may remember the attributes of a node, and a name for it. */
double attr_timeout(fuse_ino_t node);
double entry_timeout(fuse_ino_t node);

static inline struct mount *mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

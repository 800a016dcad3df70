/*
 * Tells the kernel that a name of the root is gone when the daemon itself removed it.
 * That call takes the root's inode lock, which a client may hold while it waits for
 * the daemon: from the loop it would deadlock. So one thread does this and
 * nothing else; it shares no memory with the loop but its pipe and the session.
 */
#pragma once

struct fuse_session;
struct invalidator;
struct loop;

/* Starts the thread. Returns 0 or -errno. */
int invalidator_new(struct fuse_session *session, struct loop *loop, struct invalidator **ret);

/* Stops it. The session's connection must have ended, so that no call of it is stuck. */
void invalidator_free(struct invalidator *inv);

/* Asks for a name to be forgotten; done soon. The name is copied. */
void invalidate_name(struct invalidator *inv, const char *name);

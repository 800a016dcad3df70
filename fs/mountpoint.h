/* What can be wrong with a mountpoint, found out before libfuse fails on it; and its end. */
#pragma once

#include "text.h"

/*
 * Whether path can be mounted on and FUSE is there. A dead mount of before is taken away.
 * Returns 0, or -errno with a sentence: what is wrong and what to do.
 */
int mountpoint_check(const char *path, struct text *why);

/*
 * Takes away what is mounted on path, at once, though it may be in use (umount2(2), MNT_DETACH): as
 * root, or by fusermount3. Returns 0 or -EPERM.
 */
int mountpoint_detach(const char *path);

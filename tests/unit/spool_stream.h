/*
 * A stream of known bytes for a spool: what stands at an offset follows from the offset, so that
 * each reading can be checked.
 */
#pragma once

#include <sys/resource.h>

#include "spool.h"

/* Adds len bytes. Returns what spool_append() does. */
int stream_append(struct spool *s, size_t len);

/* Fills at most len bytes of one reservation. Returns the bytes filled. */
size_t stream_fill(struct spool *s, size_t len);

/* Reads and checks up to len bytes at off. Returns what spool_peek() does. */
ssize_t stream_read(struct spool *s, uint64_t off, size_t len);

/* Reads and checks all that is held, and that nothing else is. */
void stream_check(struct spool *s);

/* Files cannot grow beyond bytes: writes fail as on a full disk, if SIGXFSZ is ignored. */
void limit_file_size(rlim_t bytes);

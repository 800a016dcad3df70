/*
 * The unlinked file of a spool, used as a ring: the byte at offset o of the stream is at
 * o modulo the size. These calls may wait for the disk, as any file access does.
 */
#pragma once

#include "spool.h"

/*
 * Makes the file if there is none, and writes len bytes that belong at offset off. Returns the
 * bytes written, at least 1, or -errno.
 */
ssize_t spool_file_write(struct spool *s, uint64_t off, const void *data, size_t len);

/* Reads up to len bytes from offset off. Returns the bytes read, at least 1, or -errno. */
ssize_t spool_file_read(const struct spool *s, uint64_t off, void *data, size_t len);

/* Gives the disk space of all that it holds back; errors do not matter. */
void spool_file_clear(struct spool *s);

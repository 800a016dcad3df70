/*
 * The bytes of one output stream, addressed by offset from its start.
 *
 * It holds the bytes [first, next). The newest of them, at most `memory`, are
 * in memory; older ones are in an unlinked file, made when it is first needed.
 * Invariants:
 *   - a byte that was committed is readable until every open reader has passed
 *     it and more is held than can be kept: than `retain` bytes, or, while the file
 *     cannot grow, than fit in memory; nothing else ever drops one;
 *   - with no open reader nothing is dropped;
 *   - when retain is reached and nothing may be dropped, or the file cannot grow
 *     (full disk, no descriptor), there is no room: the source is held back;
 *   - first and next only grow; after spool_end() next is final.
 * A spool knows nothing of commands, FUSE or the loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "list.h"

struct chunk; /* spool.c's own: a piece of memory and the offset it stands for */

struct spool {
	uint64_t first;
	uint64_t next;
	bool ended;
	/* The last error of the file, as -errno, 0 when it works: why there is no room. */
	int file_error;

	/* The rest is spool.c's own. */
	size_t memory_max;
	size_t chunk_max;
	uint64_t retain;
	uint64_t overdraft;
	const char *dir;
	struct list chunks; /* struct chunk, oldest first: contiguous, up to next */
	size_t memory_used;
	bool full; /* was without room, and has not had much since */
	int file;  /* -1: none; a ring: offset o is at o modulo its size */
	uint64_t file_size;
	uint64_t file_next;  /* bytes below this offset are in the file */
	struct list readers; /* struct spool_reader */
};

/* One who reads a spool: an open file. Everything below pos has been passed. */
struct spool_reader {
	struct spool *spool; /* NULL: not open */
	uint64_t pos;
	struct list link;
};

/* What a read found: up to SPOOL_SLICES pieces, valid until the spool changes. */
#define SPOOL_SLICES 64
struct spool_slice {
	struct iovec iov[SPOOL_SLICES];
	int count;
};

/*
 * memory and retain in bytes (bounds.h); dir is where the unlinked file goes and
 * must outlive the spool. Allocates nothing.
 */
void spool_init(struct spool *s, size_t memory, uint64_t retain, const char *dir);
void spool_done(struct spool *s);

/* Changes retain before the first byte. */
void spool_set_retain(struct spool *s, uint64_t retain);

/*
 * Gives room for the next bytes: *ret points at the returned number of bytes,
 * to be filled and committed before any other call on this spool. Returns 0
 * when there is no room now (ask again after a reader has moved or left, or,
 * when file_error is set, after a while), or -ENOMEM.
 * The room grows with the stream: a few KiB first, up to 256 KiB at a time.
 */
ssize_t spool_reserve(struct spool *s, void **ret);

/* Makes the first len bytes of the last reservation part of the stream. */
void spool_commit(struct spool *s, size_t len);

/*
 * Appends all len bytes, or none: returns 0, -EAGAIN when there is no room now,
 * or -ENOMEM. Whenever there is room at all, all of len is taken, so the bound
 * can be passed by len - 1.
 */
int spool_append(struct spool *s, const void *data, size_t len);

/* Whether spool_reserve() would give room. Tries to make some. */
bool spool_has_room(struct spool *s);

/* Raises the bound by bytes, once: for what an ended command left in its pipe. */
void spool_overdraw(struct spool *s, uint64_t bytes);

/* No more bytes will come. */
void spool_end(struct spool *s);

/*
 * Finds up to len bytes at off. Bytes in memory are pointed at; bytes in the
 * file are read into bounce, which must have len bytes. Returns the number of
 * bytes found (at least 1), or
 *   0           at the end of an ended stream,
 *   -EAGAIN     at or past the end of a growing one,
 *   -ENODATA    below first: the byte is gone,
 *   -EIO, ...   the file cannot be read; nothing is lost, ask again.
 */
ssize_t spool_peek(struct spool *s, uint64_t off, size_t len, void *bounce,
		   struct spool_slice *ret);

/*
 * Adds a reader at the first byte there is. It is removed by spool_reader_close(),
 * which is harmless for a reader that is not open (zero-initialised, or closed).
 */
void spool_reader_open(struct spool *s, struct spool_reader *r);
void spool_reader_close(struct spool_reader *r);

/* The reader has everything below pos: the end of its last read. Never moves it back. */
void spool_reader_move(struct spool_reader *r, uint64_t pos);

/*
 * An open file. It holds its exec, so that what it shows lives on when the
 * directory has been removed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "entry.h"
#include "fuse.h"
#include "spool.h"
#include "text.h"

struct handle {
	struct mount *mount;
	struct entry *entry; /* NULL: a file of .spawnfs */
	enum file_kind kind;
	fuse_ino_t node;
	unsigned info; /* which file of .spawnfs */
	bool writer;
	bool append;		    /* opened with O_APPEND */
	bool wrote;		    /* spec, stdin: at least one write came */
	bool was_read;		    /* owner, text files: at least one read came */
	bool touched;		    /* stdin: touch(1) or truncate(1) has it open */
	int refused;		    /* spec: the errno of a refused write, for the rest of it */
	struct spool_reader reader; /* stdout, stderr */
	struct text text; /* what a text file showed when it was last read from its start */
	struct fuse_pollhandle *poll; /* who waits for readiness; NULL: nobody */
	struct list poll_link;	      /* in entry->polls while poll is set */
	struct list link;	      /* in mount->handles */
};

/* Makes a handle on a file of an exec, or with entry NULL of .spawnfs. NULL: no memory. */
struct handle *handle_new(struct mount *mount, struct entry *entry, enum file_kind kind);
void handle_free(struct handle *h);

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

/* Remembers who wants to know when the handle becomes ready, instead of anyone before. */
void handle_set_poll(struct handle *h, struct fuse_pollhandle *poll);

/*
 * Tells those who wait for readiness of a file. Each is told once: the kernel then asks
 * again, and that registers it anew.
 */
void handle_notify(struct entry *e, enum file_kind kind);

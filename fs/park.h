/*
 * A parked request: a READ or WRITE that is answered later. It is on one list,
 * that of what it waits for, until it is answered or interrupted. An interrupted
 * request is always answered: a caller that the daemon ignores could not even be killed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fuse.h"
#include "handle.h"
#include "list.h"

struct park {
	struct list link;
	fuse_req_t req;
	struct handle *handle;
	off_t off;
	size_t size; /* asked for, or to be written in all */
	size_t done; /* of a write: passed on already, and what an interrupt answers */
	char data[]; /* of a write: size - done bytes at data + done */
};

/* Parks a READ at the end of list. Answers ENOMEM itself when it cannot. */
void park_read(struct list *list, fuse_req_t req, struct handle *h, size_t size, off_t off);

/*
 * Parks a WRITE of which done bytes were taken; copies the rest of data. accepted: the
 * bytes are the daemon's already (a spec), and an interrupt answers with all of size.
 */
void park_write(struct list *list, fuse_req_t req, struct handle *h, const char *data, size_t size,
		size_t done, bool accepted);

/* Answers and forgets. */
void park_reply_error(struct park *p, int err);
void park_reply_write(struct park *p, size_t count);
void park_reply_data(struct park *p, const char *data, size_t len);

/* Forgets a request that has been answered. */
void park_free(struct park *p);

/* Answers everything on the list with err (a positive errno). */
void park_fail_all(struct list *list, int err);

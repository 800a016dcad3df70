/*
 * The files of an exec as tables of what they do. Each kind fills the calls that it
 * has; the rest is refused by file.c with EBADF.
 */
#pragma once

#include <poll.h>
#include <stddef.h>
#include <sys/types.h>

#include "fuse.h"
#include "handle.h"

struct file_ops {
	/* After an open and before its reply. Returns 0 or -errno. */
	int (*open)(struct handle *h, int flags);

	/* The last descriptor is closed. The handle is freed afterwards. */
	void (*release)(struct handle *h);

	/* Answers or parks. nonblock: answers EAGAIN instead of parking. */
	void (*read)(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock);
	void (*write)(fuse_req_t req, struct handle *h, const char *data, size_t size,
		      bool nonblock);

	/* One of the descriptors is closed: 0 or -errno. Without it the kernel asks nothing. */
	int (*flush)(struct handle *h);

	/* truncate(2), and nothing else of setattr. */
	void (*truncate)(struct entry *e);

	/* st_size; without it the length of what print appends, or 0. */
	uint64_t (*size)(struct entry *e);

	/*
	 * What a text file says now. Without read, a reader from the start sees that, and one
	 * that goes on the rest of the same text. Returns 0 or -ENOMEM.
	 */
	int (*print)(struct entry *e, struct text *ret);

	/* POLLIN, POLLOUT, POLLERR, ... that are true now; without it always ready. */
	unsigned (*poll)(struct handle *h);
};

extern const struct file_ops spec_file;	  /* spec_file.c */
extern const struct file_ops stdin_file;  /* stdin_file.c */
extern const struct file_ops stdout_file; /* stream_file.c */
extern const struct file_ops stderr_file;
extern const struct file_ops exit_file; /* text_file.c */
extern const struct file_ops status_file;
extern const struct file_ops ctl_file; /* ctl_file.c */
extern const struct file_ops owner_file;
extern const struct file_ops info_file; /* info.c */

/* Its st_size. */
uint64_t file_size(struct entry *e, enum file_kind kind);

/* What the kind of file does. Never NULL. */
const struct file_ops *file_ops_of(enum file_kind kind);

/* What happened to an exec's streams, input, start and end: answers those who wait. */
void stream_changed(struct entry *e, enum stream_id stream);
void stdin_changed(struct entry *e);
void spec_started(struct entry *e, int err);
void exit_told(struct entry *e);

/*
 * Whether spec holds text, whose command starts at the last close: the kernel tells of that some
 * time after close(2) has returned.
 */
bool spec_is_to_start(const struct entry *e);

/* Answers a READ with the part of a text at off. */
void reply_text(fuse_req_t req, const struct text *t, size_t size, off_t off);

/* exit and status: short texts. exit waits for its one line, status never waits. */
#include <errno.h>

#include "file.h"
#include "mount.h"
#include "park.h"

void reply_text(fuse_req_t req, const struct text *t, size_t size, off_t off)
{
	size_t at = MIN((size_t)off, t->len);

	fuse_reply_buf(req, t->len ? t->data + at : NULL, MIN(size, t->len - at));
}

/* ---- exit ---- */

static void answer_exit(fuse_req_t req, const struct entry *e, size_t size, off_t off)
{
	AUTO_TEXT struct text t = {0};

	if (exec_print_result(e->exec, &t) < 0)
		fuse_reply_err(req, ENOMEM);
	else
		reply_text(req, &t, size, off);
}

static void exit_read(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock)
{
	if (exec_told(h->entry->exec))
		answer_exit(req, h->entry, size, off);
	else if (nonblock)
		fuse_reply_err(req, EAGAIN);
	else
		park_read(&h->entry->exit_reads, req, h, size, off);
}

void exit_told(struct entry *e)
{
	list_for_each_safe (p, &e->exit_reads, struct park, link) {
		answer_exit(p->req, e, p->size, p->off);
		park_free(p);
	}
	/* A start that never answered: its writer is not left waiting. */
	park_fail_all(&e->spec_writes, ECANCELED);
	handle_notify(e, FILE_EXIT);
}

/* 0 until it is there: test -s says whether the command has ended. */
static uint64_t exit_size(struct entry *e)
{
	AUTO_TEXT struct text t = {0};

	if (!exec_told(e->exec) || exec_print_result(e->exec, &t) < 0)
		return 0;
	return t.len;
}

static unsigned exit_poll(struct handle *h)
{
	return exec_told(h->entry->exec) ? POLLIN | POLLRDNORM : 0;
}

const struct file_ops exit_file = {
	.read = exit_read,
	.size = exit_size,
	.poll = exit_poll,
};

/* ---- status ---- */

/* A reader from the start sees now; one that goes on sees the rest of the same text. */
static void status_read(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock)
{
	if (off == 0) {
		text_done(&h->text);
		if (exec_print_status(h->entry->exec, &h->text) < 0) {
			fuse_reply_err(req, ENOMEM);
			return;
		}
	}
	reply_text(req, &h->text, size, off);
}

static uint64_t status_size(struct entry *e)
{
	AUTO_TEXT struct text t = {0};

	return exec_print_status(e->exec, &t) < 0 ? 0 : t.len;
}

const struct file_ops status_file = {
	.read = status_read,
	.size = status_size,
};

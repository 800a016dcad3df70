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

/* Empty until it is there: test -s says whether the command has ended. */
static int exit_print(struct entry *e, struct text *ret)
{
	return exec_told(e->exec) ? exec_print_result(e->exec, ret) : 0;
}

static unsigned exit_poll(struct handle *h)
{
	return exec_told(h->entry->exec) ? POLLIN | POLLRDNORM : 0;
}

const struct file_ops exit_file = {
	.read = exit_read,
	.print = exit_print,
	.poll = exit_poll,
};

/* ---- status ---- */

static int status_print(struct entry *e, struct text *ret)
{
	return exec_print_status(e->exec, ret);
}

const struct file_ops status_file = {
	.print = status_print,
};

/*
 * stdin: bytes on their way to the command. Writers are served in order of
 * arrival; one that was interrupted is told how much was taken.
 */
#include <errno.h>
#include <fcntl.h>

#include "file.h"
#include "mount.h"
#include "park.h"

static int stdin_open(struct handle *h, int flags)
{
	struct entry *e = h->entry;

	if (!h->writer)
		return 0;
	if (exec_input_is(e->exec, SPEC_STDIN_NONE))
		return -EPIPE;
	e->stdin_writers++;
	exec_open_input(e->exec);
	return 0;
}

/*
 * The end of input: once a writer that did not append has closed, and none is left.
 * It follows the release of the open file, since shells flush at every dup.
 */
static void stdin_release(struct handle *h)
{
	struct entry *e = h->entry;

	if (!h->writer)
		return;
	e->stdin_writers--;
	if (!h->append && (h->wrote || !h->touched))
		e->stdin_given = true;
	if (!e->stdin_writers && e->stdin_given)
		exec_close_input(e->exec);
}

static void stdin_write(fuse_req_t req, struct handle *h, const char *data, size_t size,
			bool nonblock)
{
	struct entry *e = h->entry;
	ssize_t n;

	h->wrote = true;
	if (!size) {
		fuse_reply_write(req, 0);
		return;
	}
	/* Nobody overtakes those who wait already. */
	n = list_empty(&e->stdin_writes) ? exec_write(e->exec, data, size) : -EAGAIN;
	if (n < 0 && n != -EAGAIN)
		fuse_reply_err(req, (int)-n);
	else if (n == (ssize_t)size || (n > 0 && nonblock))
		fuse_reply_write(req, (size_t)n);
	else if (nonblock)
		fuse_reply_err(req, EAGAIN);
	else
		park_write(&e->stdin_writes, req, h, data, size, n > 0 ? (size_t)n : 0, false);
}

/* Passes on more of a waiting write. Returns false when it has to wait still. */
static bool serve(struct entry *e, struct park *p)
{
	ssize_t n = exec_write(e->exec, p->data + p->done, p->size - p->done);

	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		/* What was taken was taken; the error comes with the next write. */
		if (p->done)
			park_reply_write(p, p->done);
		else
			park_reply_error(p, (int)-n);
		return true;
	}
	p->done += (size_t)n;
	if (p->done < p->size)
		return false;
	park_reply_write(p, p->size);
	return true;
}

void stdin_changed(struct entry *e)
{
	bool room = true;

	/* A write that fails reports it here, too: its request is in hand already. */
	if (e->stdin_serving)
		return;
	e->stdin_serving = true;
	while (room && !list_empty(&e->stdin_writes))
		room = serve(e, list_first(&e->stdin_writes, struct park, link));
	e->stdin_serving = false;
	if (room)
		handle_notify(e, FILE_STDIN);
}

/* A reader finds nothing: what was written is the command's. */
static void stdin_read(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock)
{
	fuse_reply_buf(req, NULL, 0);
}

static unsigned stdin_poll(struct handle *h)
{
	struct entry *e = h->entry;

	if (e->exec->input.error)
		return POLLOUT | POLLWRNORM | POLLERR;
	return list_empty(&e->stdin_writes) && exec_can_write(e->exec) ? POLLOUT | POLLWRNORM : 0;
}

const struct file_ops stdin_file = {
	.open = stdin_open,
	.release = stdin_release,
	.read = stdin_read,
	.write = stdin_write,
	.poll = stdin_poll,
};

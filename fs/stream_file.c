/*
 * stdout and stderr: growing files. A read at the end of what is there waits for
 * more; the bytes have addresses, so a reader that dies takes none with it.
 */
#include <errno.h>

#include "file.h"
#include "mount.h"
#include "park.h"

static enum stream_id stream_of(const struct handle *h)
{
	return h->kind == FILE_STDOUT ? STREAM_STDOUT : STREAM_STDERR;
}

static struct spool *spool_of(struct entry *e, enum stream_id stream)
{
	return &e->exec->streams[stream].spool;
}

static int stream_open(struct handle *h, int flags)
{
	exec_reader_open(h->entry->exec, stream_of(h), &h->reader);
	return 0;
}

static void stream_release(struct handle *h)
{
	exec_reader_close(h->entry->exec, stream_of(h), &h->reader);
}

/*
 * Answers with what is there. Returns 0, or -EAGAIN when there is nothing yet and
 * the request has not been answered.
 */
static int answer(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
	struct spool_slice slice;
	char *bounce = mount_bounce(h->mount);
	ssize_t n;

	if (!bounce) {
		fuse_reply_err(req, ENOMEM);
		return 0;
	}
	n = spool_peek(spool_of(h->entry, stream_of(h)), (uint64_t)off,
		       MIN(size, TRANSFER_BYTES_MAX), bounce, &slice);
	if (n == -EAGAIN)
		return -EAGAIN;
	if (n < 0) {
		fuse_reply_err(req, (int)-n);
		return 0;
	}
	if (n == 0) {
		fuse_reply_buf(req, NULL, 0);
		return 0;
	}
	/* Bytes that nobody was given are not passed: the reader may ask again. */
	if (fuse_reply_iov(req, slice.iov, slice.count) < 0)
		return 0;
	/* Last: it may let the command go on, which changes the spool. */
	exec_reader_move(h->entry->exec, stream_of(h), &h->reader, (uint64_t)(off + n));
	return 0;
}

static void stream_read(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock)
{
	if (answer(req, h, size, off) == 0)
		return;
	if (nonblock)
		fuse_reply_err(req, EAGAIN);
	else
		park_read(&h->entry->stream_reads[stream_of(h)], req, h, size, off);
}

void stream_changed(struct entry *e, enum stream_id stream)
{
	list_for_each_safe (p, &e->stream_reads[stream], struct park, link)
		if (answer(p->req, p->handle, p->size, p->off) == 0)
			park_free(p);
	handle_notify(e, stream == STREAM_STDOUT ? FILE_STDOUT : FILE_STDERR);
}

static uint64_t stream_size(struct entry *e, enum stream_id stream)
{
	return spool_of(e, stream)->next;
}

static uint64_t stdout_size(struct entry *e)
{
	return stream_size(e, STREAM_STDOUT);
}

static uint64_t stderr_size(struct entry *e)
{
	return stream_size(e, STREAM_STDERR);
}

/* Readable where the handle's last read ended: poll(2) has no offset of its own. */
static unsigned stream_poll(struct handle *h)
{
	const struct spool *s = spool_of(h->entry, stream_of(h));

	return h->reader.pos < s->next || s->ended ? POLLIN | POLLRDNORM : 0;
}

const struct file_ops stdout_file = {
	.open = stream_open,
	.release = stream_release,
	.read = stream_read,
	.size = stdout_size,
	.poll = stream_poll,
};

const struct file_ops stderr_file = {
	.open = stream_open,
	.release = stream_release,
	.read = stream_read,
	.size = stderr_size,
	.poll = stream_poll,
};

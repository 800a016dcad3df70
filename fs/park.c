/* Requests that wait. */
#include "park.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void interrupted(fuse_req_t req, void *data)
{
	struct park *p = data;

	if (p->done)
		park_reply_write(p, p->done);
	else
		park_reply_error(p, EINTR);
}

/*
 * The callback may run, and free p, from inside fuse_req_interrupt_func() when the
 * interrupt came first: so this is the last thing done with p.
 */
static void park(struct list *list, struct park *p)
{
	list_append(list, &p->link);
	fuse_req_interrupt_func(p->req, interrupted, p);
}

static struct park *park_new(fuse_req_t req, struct handle *h, size_t size, size_t copied)
{
	struct park *p = malloc(sizeof(*p) + copied);

	if (!p)
		return NULL;
	p->req = req;
	p->handle = h;
	p->size = size;
	p->done = 0;
	p->off = 0;
	return p;
}

void park_read(struct list *list, fuse_req_t req, struct handle *h, size_t size, off_t off)
{
	struct park *p = park_new(req, h, size, 0);

	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	p->off = off;
	park(list, p);
}

void park_write(struct list *list, fuse_req_t req, struct handle *h, const char *data, size_t size,
		size_t done, bool accepted)
{
	struct park *p = park_new(req, h, size, accepted ? 0 : size);

	if (!p) {
		/* What was taken was taken: the rest is for the writer to offer again. */
		if (done)
			fuse_reply_write(req, done);
		else
			fuse_reply_err(req, ENOMEM);
		return;
	}
	if (!accepted)
		memcpy(p->data + done, data + done, size - done);
	p->done = accepted ? size : done;
	park(list, p);
}

void park_free(struct park *p)
{
	list_remove(&p->link);
	free(p);
}

void park_reply_error(struct park *p, int err)
{
	fuse_reply_err(p->req, err);
	park_free(p);
}

void park_reply_write(struct park *p, size_t count)
{
	fuse_reply_write(p->req, count);
	park_free(p);
}

void park_reply_data(struct park *p, const char *data, size_t len)
{
	fuse_reply_buf(p->req, data, len);
	park_free(p);
}

void park_fail_all(struct list *list, int err)
{
	list_for_each_safe (p, list, struct park, link)
		park_reply_error(p, err);
}

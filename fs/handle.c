/* Open files, and who polls them. */
#include "handle.h"

#include <stdlib.h>

#include "mount.h"

struct handle *handle_new(struct mount *mount, struct entry *entry, enum file_kind kind)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->mount = mount;
	h->entry = entry;
	h->kind = kind;
	list_init(&h->poll_link);
	list_append(&mount->handles, &h->link);
	if (entry)
		exec_hold(entry->exec);
	return h;
}

void handle_free(struct handle *h)
{
	handle_set_poll(h, NULL);
	list_remove(&h->link);
	text_done(&h->text);
	spool_reader_close(&h->reader);
	if (h->entry)
		exec_unhold(h->entry->exec);
	free(h);
}

void handle_set_poll(struct handle *h, struct fuse_pollhandle *poll)
{
	if (h->poll)
		fuse_pollhandle_destroy(h->poll);
	list_remove(&h->poll_link);
	h->poll = poll;
	if (poll)
		list_append(&h->entry->polls, &h->poll_link);
}

void handle_notify(struct entry *e, enum file_kind kind)
{
	list_for_each_safe (h, &e->polls, struct handle, poll_link) {
		if (h->kind != kind)
			continue;
		fuse_lowlevel_notify_poll(h->poll);
		handle_set_poll(h, NULL);
	}
}

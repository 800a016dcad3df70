/*
 * A link is one connection to the host: an ssh master, its control socket in
 * proxy mode, and the channels on it.
 *
 * It begins with ssh_link_start(), says up() once, and ends with dead() once. After that its owner
 * frees it. Reports come from the loop, never from within a call here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "list.h"
#include "loop.h"
#include "ssh_client.h"
#include "ssh_wire.h"
#include "text.h"

struct ssh_link;
struct ssh_channel;

struct ssh_link_events {
	/* Channels can be opened. */
	void (*up)(struct ssh_link *link);
	/* A channel has ended: there may be room for another. */
	void (*room)(struct ssh_link *link);
	/*
	 * Every channel has been told. why: a sentence without a full stop about what
	 * happened, as ssh put it where it did.
	 */
	void (*dead)(struct ssh_link *link, const char *why);
};

struct ssh_link {
	const struct ssh_link_events *events;
	struct loop *loop;
	struct list link; /* the owner's */
	void *owner;
	struct ssh_client client;
	struct source socket;
	bool up;
	bool was_up;
	bool dead; /* dead() is on its way */
	struct text reason;
	uint64_t heard_ns; /* when the host was last heard of */

	char *in; /* SSH_IN_BYTES */
	size_t in_len;
	struct text out;
	size_t out_at; /* bytes of out that were sent */
	struct task flush;
	struct timer ending; /* armed from the end of the socket to that of the process */

	struct ssh_channel **channels; /* by our number; NULL: free */
	size_t channel_slots;
	size_t open;	     /* channels opening or open */
	size_t opened;	     /* channels that were ever opened */
	size_t limit;	     /* the server refused more; SIZE_MAX: not known */
	struct list waiting; /* channels that found no room in out */
};

/* Starts one. Returns 0, *ret to be freed after dead(); or -errno with a sentence. */
int ssh_link_start(struct loop *loop, const struct ssh_link_events *events, void *owner,
		   const struct ssh_options *options, enum ssh_what what, struct ssh_link **ret,
		   struct text *why);

/* Ends it without a report if need be, and frees it. Its channels must be released. */
void ssh_link_free(struct ssh_link *link);

/* Whether a channel more is worth a try. */
bool ssh_link_has_room(const struct ssh_link *link);

/* ---- For ssh_channel.c ---- */

/* Sends what was put into out, soon; err: that of putting it there. */
void ssh_link_put(struct ssh_link *link, int err);

/* Bytes of data that out has room for. */
size_t ssh_link_out_room(const struct ssh_link *link);

/* Ends the link because of something the other side did. */
void ssh_link_fail(struct ssh_link *link, const char *reason);

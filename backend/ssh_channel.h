/*
 * A channel: one command line on the host (RFC 4254, 6), with its streams, its windows and
 * the two ways in which it can end. What the command line means is the owner's business.
 *
 * Life: opening, then opened() or refused(); data and the rest; closed() or lost() at the
 * end. After refused(), closed() and lost() the channel is gone for the owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"
#include "ssh_link.h"

struct ssh_channel_events {
	/*
	 * It was not opened, or the host did not run the command line. full: because of too
	 * many channels on this link, which knows that now.
	 */
	void (*refused)(void *owner, bool full, const char *why);
	/* len bytes have come; they are charged to the window until ssh_channel_consumed(). */
	void (*data)(void *owner, enum stream_id stream, const char *data, size_t len);
	/* ssh_channel_send() would take a byte again. */
	void (*room)(void *owner);
	/* Nobody reads on the other side any more. */
	void (*input_closed)(void *owner);
	/* The command line has ended: by exiting with code 0 to 255, or by a signal ("KILL"). */
	void (*exited)(void *owner, int code);
	void (*signaled)(void *owner, const char *name);
	/* No more data. */
	void (*eof)(void *owner);
	/* What answers one ssh_channel_ping(). */
	void (*pong)(void *owner);
	/* The other side has closed it. */
	void (*closed)(void *owner);
	/* The link is dead. */
	void (*lost)(void *owner, const char *why);
};

struct ssh_channel {
	const struct ssh_channel_events *events;
	void *owner; /* NULL: released */
	struct ssh_link *link;
	struct list waiting; /* in link->waiting */
	uint32_t number;
	uint32_t peer; /* the host's number, once opened */
	char *command; /* until opened */
	bool opened;
	bool answered; /* the request to run the command line */
	bool eof_sent;
	bool close_sent;
	uint32_t send_window;
	uint32_t packet_max;
	uint32_t owed; /* consumed, and not yet granted again */
};

/* Opens a channel and runs a command line on it. Returns 0 or -ENOMEM. */
int ssh_channel_open(struct ssh_link *link, const struct ssh_channel_events *events, void *owner,
		     const char *command, struct ssh_channel **ret);

/* Closes it on our side and forgets the owner: no report will come. */
void ssh_channel_release(struct ssh_channel *channel);

/* Takes up to len bytes of input; returns how many. Fewer than len: room() will follow. */
size_t ssh_channel_send(struct ssh_channel *channel, const void *data, size_t len);

/* Whether a byte would be taken. When not, room() will follow. */
bool ssh_channel_can_send(struct ssh_channel *channel);

/* End of input. */
void ssh_channel_eof(struct ssh_channel *channel);

/* Asks for a pong(), which comes after all that the host has sent by then. */
void ssh_channel_ping(struct ssh_channel *channel);

/* len bytes of data need no more room here: the host may send as many again. */
void ssh_channel_consumed(struct ssh_channel *channel, size_t len);

/* ---- For ssh_link.c ---- */

/* Deals with a packet for a channel of this link. */
void ssh_channel_packet(struct ssh_link *link, const struct ssh_packet *packet);
/* The socket has taken bytes: channels that waited for that go on. */
void ssh_channel_serve(struct ssh_link *link);
/* Tells and frees all channels. */
void ssh_channel_lose_all(struct ssh_link *link, const char *why);

#include "ssh_channel.h"

#include <errno.h>
#include <string.h>

#include "bounds.h"

/* ---- Table ---- */

static struct ssh_channel *find(const struct ssh_link *link, uint32_t number)
{
	return number < link->channel_slots ? link->channels[number] : NULL;
}

static int insert(struct ssh_link *link, struct ssh_channel *c)
{
	size_t n = 0;

	while (n < link->channel_slots && link->channels[n])
		n++;
	if (n == link->channel_slots) {
		size_t slots = MAX(2 * n, (size_t)16);
		struct ssh_channel **channels =
			realloc(link->channels, slots * sizeof(struct ssh_channel *));

		if (!channels)
			return -ENOMEM;
		memset(channels + n, 0, (slots - n) * sizeof(struct ssh_channel *));
		link->channels = channels;
		link->channel_slots = slots;
	}
	link->channels[n] = c;
	c->number = (uint32_t)n;
	link->open++;
	return 0;
}

static void channel_free(struct ssh_channel *c)
{
	struct ssh_link *link = c->link;

	link->channels[c->number] = NULL;
	link->open--;
	list_remove(&c->waiting);
	free(c->command);
	free(c);
}

/* ---- Calls ---- */

int ssh_channel_open(struct ssh_link *link, const struct ssh_channel_events *events, void *owner,
		     const char *command, struct ssh_channel **ret)
{
	struct ssh_channel *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->events = events;
	c->owner = owner;
	c->link = link;
	c->command = strdup(command);
	list_init(&c->waiting);
	if (!c->command || insert(link, c) < 0) {
		free(c->command);
		free(c);
		return -ENOMEM;
	}
	ssh_link_put(link, ssh_put_open(&link->out, c->number, SSH_WINDOW_BYTES, SSH_PACKET_BYTES));
	*ret = c;
	return 0;
}

static void send_close(struct ssh_channel *c)
{
	if (c->close_sent)
		return;
	c->close_sent = true;
	ssh_link_put(c->link, ssh_put_close(&c->link->out, c->peer));
}

void ssh_channel_release(struct ssh_channel *c)
{
	c->owner = NULL;
	list_remove(&c->waiting);
	/* The number stays taken until the other side has closed it too. */
	if (c->opened)
		send_close(c);
}

size_t ssh_channel_send(struct ssh_channel *c, const void *data, size_t len)
{
	const char *at = data;
	size_t room = MIN(ssh_link_out_room(c->link), (size_t)c->send_window);
	size_t left = MIN(len, room);
	size_t taken = left;

	while (left) {
		size_t n = MIN(left, (size_t)c->packet_max);

		ssh_link_put(c->link, ssh_put_data(&c->link->out, c->peer, at, n));
		c->send_window -= (uint32_t)n;
		at += n;
		left -= n;
	}
	if (taken < len)
		ssh_channel_can_send(c);
	return taken;
}

bool ssh_channel_can_send(struct ssh_channel *c)
{
	if (!c->send_window)
		return false;
	if (ssh_link_out_room(c->link))
		return true;
	if (list_empty(&c->waiting))
		list_append(&c->link->waiting, &c->waiting);
	return false;
}

void ssh_channel_eof(struct ssh_channel *c)
{
	if (c->eof_sent || c->close_sent)
		return;
	c->eof_sent = true;
	ssh_link_put(c->link, ssh_put_eof(&c->link->out, c->peer));
}

void ssh_channel_ping(struct ssh_channel *c)
{
	if (!c->close_sent)
		ssh_link_put(c->link, ssh_put_ping(&c->link->out, c->peer));
}

void ssh_channel_consumed(struct ssh_channel *c, size_t len)
{
	c->owed += (uint32_t)len;
	/* A packet for each would cost as much as the data. */
	if (c->owed < SSH_WINDOW_BYTES / 4 || c->close_sent)
		return;
	ssh_link_put(c->link, ssh_put_window(&c->link->out, c->peer, c->owed));
	c->owed = 0;
}

/* ---- Packets ---- */

static void on_opened(struct ssh_channel *c, const struct ssh_packet *p)
{
	c->opened = true;
	c->link->opened++;
	c->peer = p->sender;
	c->send_window = p->window;
	c->packet_max = MIN(p->packet_max, (uint32_t)SSH_PACKET_BYTES);
	if (!c->packet_max)
		c->packet_max = 1;
	if (!c->owner) {
		send_close(c);
		return;
	}
	ssh_link_put(c->link, ssh_put_exec(&c->link->out, c->peer, c->command));
	free(TAKE_PTR(c->command));
}

static void refuse(struct ssh_channel *c, bool full, const struct ssh_string *said)
{
	AUTO_TEXT struct text why = {0};

	if (c->owner && text_append_printable(&why, said->data, said->len) == 0)
		c->events->refused(TAKE_PTR(c->owner), full, text_str(&why));
}

static void on_open_failure(struct ssh_channel *c, const struct ssh_packet *p)
{
	struct ssh_link *link = c->link;

	link->limit = link->open - 1;
	refuse(c, true, &p->data);
	channel_free(c);
}

static void on_data(struct ssh_channel *c, enum stream_id stream, const struct ssh_string *data)
{
	if (c->owner)
		c->events->data(c->owner, stream, data->data, data->len);
	else
		ssh_channel_consumed(c, data->len);
}

static void on_window(struct ssh_channel *c, uint32_t bytes)
{
	c->send_window = bytes > UINT32_MAX - c->send_window ? UINT32_MAX : c->send_window + bytes;
	if (c->owner)
		c->events->room(c->owner);
}

static void on_request(struct ssh_channel *c, const struct ssh_packet *p)
{
	char name[32];

	if (p->want_reply)
		ssh_link_put(c->link, ssh_put_failure(&c->link->out, c->peer));
	if (!c->owner)
		return;
	if (ssh_string_is(&p->name, "exit-status")) {
		c->events->exited(c->owner, (int)(p->code & 0xff));
	} else if (ssh_string_is(&p->name, "exit-signal") && p->data.len < sizeof(name)) {
		memcpy(name, p->data.data, p->data.len);
		name[p->data.len] = '\0';
		c->events->signaled(c->owner, name);
	} else if (ssh_string_is(&p->name, "eow@openssh.com")) {
		c->events->input_closed(c->owner);
	}
}

/* Requests are answered in order: the first one was for the command line. */
static void on_answer(struct ssh_channel *c, bool success)
{
	static const struct ssh_string no_reason = {"the server does not run commands", 32};

	if (c->answered) {
		if (c->owner)
			c->events->pong(c->owner);
		return;
	}
	c->answered = true;
	if (success || !c->owner)
		return;
	refuse(c, false, &no_reason);
	send_close(c);
}

static void on_close(struct ssh_channel *c)
{
	struct ssh_link *link = c->link;
	void *owner = c->owner;

	send_close(c);
	if (owner) {
		c->owner = NULL;
		c->events->closed(owner);
	}
	channel_free(c);
	link->events->room(link);
}

void ssh_channel_packet(struct ssh_link *link, const struct ssh_packet *p)
{
	struct ssh_channel *c = find(link, p->channel);
	bool reply =
		p->type == SSH_CHANNEL_OPEN_CONFIRMATION || p->type == SSH_CHANNEL_OPEN_FAILURE;

	if (!c || c->opened == reply) {
		ssh_link_fail(link, "ssh sent a packet that makes no sense");
		return;
	}
	switch (p->type) {
	case SSH_CHANNEL_OPEN_CONFIRMATION:
		on_opened(c, p);
		break;
	case SSH_CHANNEL_OPEN_FAILURE:
		on_open_failure(c, p);
		break;
	case SSH_CHANNEL_WINDOW_ADJUST:
		on_window(c, p->window);
		break;
	case SSH_CHANNEL_DATA:
		on_data(c, STREAM_STDOUT, &p->data);
		break;
	case SSH_CHANNEL_EXTENDED_DATA:
		on_data(c, STREAM_STDERR, &p->data);
		break;
	case SSH_CHANNEL_EOF:
		if (c->owner)
			c->events->eof(c->owner);
		break;
	case SSH_CHANNEL_CLOSE:
		on_close(c);
		break;
	case SSH_CHANNEL_REQUEST:
		on_request(c, p);
		break;
	case SSH_CHANNEL_SUCCESS:
	case SSH_CHANNEL_FAILURE:
		on_answer(c, p->type == SSH_CHANNEL_SUCCESS);
		break;
	default:
		break;
	}
}

/* ---- The link's ---- */

void ssh_channel_serve(struct ssh_link *link)
{
	struct list served;

	/* Those that find no room again go to the end of the line: each gets its turn. */
	list_init(&served);
	list_splice(&served, &link->waiting);
	while (!list_empty(&served)) {
		struct ssh_channel *c = list_first(&served, struct ssh_channel, waiting);

		list_remove(&c->waiting);
		if (!ssh_link_out_room(link))
			list_append(&link->waiting, &c->waiting);
		else if (c->owner)
			c->events->room(c->owner);
	}
}

void ssh_channel_lose_all(struct ssh_link *link, const char *why)
{
	for (size_t i = 0; i < link->channel_slots; i++) {
		struct ssh_channel *c = link->channels[i];

		if (!c)
			continue;
		if (c->owner)
			c->events->lost(TAKE_PTR(c->owner), why);
		channel_free(c);
	}
}

#include "ssh_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "bounds.h"
#include "log.h"
#include "ssh_channel.h"

/* One whole frame, and room for the next to begin. */
#define SSH_IN_BYTES (SSH_FRAME_MAX + 64 * KIB)

/* After the socket's end ssh says why, and ends; or it is ended. */
#define SSH_ENDING_MS 1000

/* ---- The end ---- */

static void die(struct ssh_link *link)
{
	const char *said = ssh_client_reason(&link->client);

	if (!link->reason.len)
		text_append_printable(&link->reason, said, strlen(said));
	if (!link->reason.len)
		text_printf(&link->reason, "the connection ended");
	timer_cancel(&link->ending);
	task_cancel(&link->flush);
	loop_unwatch(&link->socket);
	close_fd(&link->socket.fd);
	ssh_client_stop(&link->client);
	link->dead = true;
	link->up = false;
	ssh_channel_lose_all(link, text_str(&link->reason));
	link->events->dead(link, text_str(&link->reason));
}

static void on_ending(struct timer *timer)
{
	die(container_of(timer, struct ssh_link, ending));
}

static void on_client_ended(struct ssh_client *client)
{
	die(container_of(client, struct ssh_link, client));
}

/* No more is read or sent; the rest happens when the process has ended. */
static void wind_up(struct ssh_link *link, uint64_t patience_ms)
{
	if (link->dead || timer_armed(&link->ending))
		return;
	loop_unwatch(&link->socket);
	if (timer_arm(link->loop, &link->ending, patience_ms) < 0)
		log_error("ssh: no memory to end a connection");
}

void ssh_link_fail(struct ssh_link *link, const char *reason)
{
	if (!link->reason.len)
		text_append_printable(&link->reason, reason, strlen(reason));
	wind_up(link, 0);
}

static bool failed(const struct ssh_link *link)
{
	return link->dead || timer_armed(&link->ending);
}

/* ---- Sending ---- */

size_t ssh_link_out_room(const struct ssh_link *link)
{
	size_t used = link->out.len - link->out_at;

	return used < SSH_OUTPUT_BYTES ? SSH_OUTPUT_BYTES - used : 0;
}

void ssh_link_put(struct ssh_link *link, int err)
{
	if (err < 0)
		ssh_link_fail(link, "no memory");
	else if (!link->dead)
		loop_defer(link->loop, &link->flush);
}

/* What was sent makes room in front; moved only when it is worth it. */
static void compact(struct ssh_link *link)
{
	if (link->out_at == link->out.len) {
		link->out.len = link->out_at = 0;
	} else if (link->out_at > SSH_OUTPUT_BYTES / 2) {
		link->out.len -= link->out_at;
		memmove(link->out.data, link->out.data + link->out_at, link->out.len);
		link->out_at = 0;
	}
}

static void flush(struct task *task)
{
	struct ssh_link *link = container_of(task, struct ssh_link, flush);
	bool full = false;

	if (failed(link) || link->socket.fd < 0)
		return;
	while (link->out_at < link->out.len && !full) {
		ssize_t n = send(link->socket.fd, link->out.data + link->out_at,
				 link->out.len - link->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			link->out_at += (size_t)n;
		else if (errno == EAGAIN)
			full = true;
		else if (errno != EINTR) {
			wind_up(link, SSH_ENDING_MS);
			return;
		}
	}
	compact(link);
	loop_rewatch(&link->socket, full ? EPOLLIN | EPOLLOUT : EPOLLIN);
	if (!list_empty(&link->waiting) && ssh_link_out_room(link))
		ssh_channel_serve(link);
}

/* ---- Receiving ---- */

/* Returns bytes used, 0 or -EPROTO. */
static ssize_t greet(struct ssh_link *link, const char *data, size_t len)
{
	enum mux_reply reply;
	struct ssh_string why;
	ssize_t n = ssh_mux_read(data, len, &reply, &why);

	if (n <= 0)
		return n;
	if (reply == MUX_REFUSED) {
		text_append_printable(&link->reason, why.data, why.len);
		return -EPROTO;
	}
	if (reply == MUX_PROXY) {
		link->up = link->was_up = true;
		link->events->up(link);
	}
	return n;
}

static ssize_t take_packet(struct ssh_link *link, const char *data, size_t len)
{
	struct ssh_packet p;
	ssize_t n = ssh_packet_read(data, len, &p);

	if (n > 0 && p.type > SSH_CHANNEL_OPEN && p.type <= SSH_CHANNEL_FAILURE)
		ssh_channel_packet(link, &p);
	return n;
}

static void take_all(struct ssh_link *link)
{
	size_t at = 0;

	while (!failed(link)) {
		const char *data = link->in + at;
		size_t len = link->in_len - at;
		ssize_t n = link->up ? take_packet(link, data, len) : greet(link, data, len);

		if (n < 0)
			ssh_link_fail(link, "ssh does not speak the protocol of a master");
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	link->in_len -= at;
	memmove(link->in, link->in + at, link->in_len);
}

static void on_socket(struct source *source, uint32_t events)
{
	struct ssh_link *link = container_of(source, struct ssh_link, socket);
	size_t turn = 0;

	if (events & EPOLLOUT)
		loop_defer(link->loop, &link->flush);
	while (turn < READ_TURN_BYTES && !failed(link)) {
		size_t room = SSH_IN_BYTES - link->in_len;
		ssize_t n = recv(source->fd, link->in + link->in_len, room, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			wind_up(link, SSH_ENDING_MS);
			return;
		}
		link->heard_ns = monotonic_ns();
		link->in_len += (size_t)n;
		turn += (size_t)n;
		take_all(link);
		/* That was all there is; to be told so by EAGAIN costs a call for each packet. */
		if ((size_t)n < room)
			return;
	}
}

/* ---- The beginning ---- */

static void on_connected(struct ssh_client *client, int fd)
{
	struct ssh_link *link = container_of(client, struct ssh_link, client);

	link->socket.fd = fd;
	if (loop_watch(link->loop, &link->socket, EPOLLIN) < 0)
		ssh_link_fail(link, "no memory");
	else
		ssh_link_put(link, ssh_put_greeting(&link->out));
}

static const struct ssh_client_events client_events = {
	.connected = on_connected,
	.ended = on_client_ended,
};

int ssh_link_start(struct loop *loop, const struct ssh_link_events *events, void *owner,
		   const struct ssh_options *options, enum ssh_what what, struct ssh_link **ret,
		   struct text *why)
{
	struct ssh_link *link = calloc(1, sizeof(*link));
	int err;

	if (!link)
		return text_fail(why, -ENOMEM, "no memory");
	link->events = events;
	link->loop = loop;
	link->owner = owner;
	link->limit = SIZE_MAX;
	link->socket = (struct source){.fd = -1, .ready = on_socket};
	link->ending.fire = on_ending;
	task_init(&link->flush, flush);
	list_init(&link->waiting);
	list_init(&link->link);
	link->in = malloc(SSH_IN_BYTES);
	err = link->in ? ssh_client_start(&link->client, loop, &client_events, options, what, why)
		       : text_fail(why, -ENOMEM, "no memory");
	if (err < 0) {
		free(link->in);
		free(link);
		return err;
	}
	*ret = link;
	return 0;
}

void ssh_link_free(struct ssh_link *link)
{
	timer_cancel(&link->ending);
	task_cancel(&link->flush);
	loop_unwatch(&link->socket);
	close_fd(&link->socket.fd);
	ssh_client_stop(&link->client);
	ssh_channel_lose_all(link, "");
	list_remove(&link->link);
	text_wipe(&link->out);
	text_done(&link->reason);
	free(link->channels);
	free(link->in);
	free(link);
}

bool ssh_link_has_room(const struct ssh_link *link)
{
	return link->up && !failed(link) && link->open < link->limit;
}

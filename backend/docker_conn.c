#include "docker_conn.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bounds.h"

static void source_ready(struct source *source, uint32_t events);
static void retry_fired(struct timer *timer);

static void watch(struct docker_conn *conn)
{
	uint32_t events = 0;

	if (!conn->connected)
		events = EPOLLOUT;
	if (conn->connected && conn->wants_input)
		events |= EPOLLIN;
	if (conn->connected && (conn->wants_room || conn->tls.pending_len))
		events |= EPOLLOUT;
	/* EPOLLHUP comes unasked: nobody who wants nothing may be woken for ever. */
	if (!events || conn->source.fd < 0)
		loop_unwatch(&conn->source);
	else if (conn->source.loop)
		loop_rewatch(&conn->source, events);
	else if (loop_watch(conn->loop, &conn->source, events) < 0)
		conn->error = -ENOMEM;
}

/* A failure is told as an event, like everything else, in a later turn. */
static void fail(struct docker_conn *conn, int err)
{
	conn->error = err;
	timer_arm(conn->loop, &conn->retry, 0);
}

static void tls_connected(struct docker_tls *tls, int fd, int err)
{
	struct docker_conn *conn = container_of(tls, struct docker_conn, tls);

	conn->error = err;
	conn->connected = !err;
	conn->source.fd = fd;
	watch(conn);
	conn->event(conn);
}

static void connect_encrypted(struct docker_conn *conn)
{
	int err = docker_tls_open(&conn->tls, conn->loop, conn->host, tls_connected);

	conn->encrypted = true;
	if (err < 0)
		fail(conn, err);
}

static void connect_plain(struct docker_conn *conn)
{
	const struct docker_host *host = conn->host;
	int fd = socket(host->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		fail(conn, -errno);
		return;
	}
	conn->source.fd = fd;
	if (connect(fd, (const struct sockaddr *)&host->address, host->address_len) == 0) {
		conn->connected = true;
		watch(conn);
		return;
	}
	if (errno == EINPROGRESS) {
		watch(conn);
		return;
	}
	/* unix(7): a full backlog is EAGAIN, and nothing says when there is room. */
	if (errno == EAGAIN && conn->tries++ < DOCKER_CONNECT_TRIES) {
		close_fd(&conn->source.fd);
		timer_arm(conn->loop, &conn->retry, DOCKER_CONNECT_RETRY_MS);
		return;
	}
	fail(conn, -errno);
}

static void connect_now(struct docker_conn *conn)
{
	if (conn->host->transport == DOCKER_TLS)
		connect_encrypted(conn);
	else
		connect_plain(conn);
}

void docker_conn_open(struct docker_conn *conn, struct loop *loop, const struct docker_host *host,
		      void (*event)(struct docker_conn *conn))
{
	*conn = (struct docker_conn){
		.event = event,
		.host = host,
		.loop = loop,
		.source = {.fd = -1, .ready = source_ready},
		.retry = {.fire = retry_fired},
		.wants_input = true,
		.wants_room = true,
	};
	connect_now(conn);
}

void docker_conn_close(struct docker_conn *conn)
{
	if (!conn->loop)
		return;
	loop_unwatch(&conn->source);
	timer_cancel(&conn->retry);
	if (conn->encrypted)
		docker_tls_close(&conn->tls);
	else
		close_fd(&conn->source.fd);
	conn->loop = NULL;
}

bool docker_conn_is_open(const struct docker_conn *conn)
{
	return conn->loop;
}

static void retry_fired(struct timer *timer)
{
	struct docker_conn *conn = container_of(timer, struct docker_conn, retry);

	if (conn->error || conn->connected)
		conn->event(conn);
	else
		connect_now(conn);
}

static void source_ready(struct source *source, uint32_t events)
{
	struct docker_conn *conn = container_of(source, struct docker_conn, source);
	int err = 0;
	socklen_t len = sizeof(err);

	if (!conn->connected) {
		getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		conn->error = -err;
		conn->connected = !err;
		watch(conn);
	}
	if (conn->tls.pending_len && docker_tls_flush(&conn->tls) == 0)
		watch(conn);
	conn->event(conn);
}

ssize_t docker_conn_send(struct docker_conn *conn, const void *data, size_t len)
{
	ssize_t n;

	if (conn->error)
		return conn->error;
	if (!conn->connected)
		return -EAGAIN;
	if (!conn->encrypted) {
		n = send(conn->source.fd, data, len, MSG_NOSIGNAL);
		return n < 0 ? -errno : n;
	}
	n = docker_tls_send(&conn->tls, data, len);
	if (conn->tls.pending_len)
		watch(conn);
	return n;
}

bool docker_conn_has_room(const struct docker_conn *conn)
{
	struct pollfd wanted = {.fd = conn->source.fd, .events = POLLOUT};

	return conn->connected && !conn->tls.pending_len && poll(&wanted, 1, 0) == 1 &&
	       wanted.revents & POLLOUT;
}

ssize_t docker_conn_receive(struct docker_conn *conn, void *data, size_t len)
{
	ssize_t n;

	if (conn->error)
		return conn->error;
	if (!conn->connected)
		return -EAGAIN;
	if (conn->encrypted)
		return docker_tls_receive(&conn->tls, data, len);
	n = recv(conn->source.fd, data, len, 0);
	return n < 0 ? -errno : n;
}

void docker_conn_want(struct docker_conn *conn, bool input, bool room)
{
	if (!conn->loop || (conn->wants_input == input && conn->wants_room == room))
		return;
	conn->wants_input = input;
	conn->wants_room = room;
	watch(conn);
}

void docker_conn_again(struct docker_conn *conn)
{
	if (conn->encrypted && conn->loop)
		timer_arm(conn->loop, &conn->retry, 0);
}

void docker_conn_end(struct docker_conn *conn)
{
	if (conn->encrypted)
		docker_tls_end(&conn->tls);
	else if (conn->connected)
		shutdown(conn->source.fd, SHUT_WR);
}

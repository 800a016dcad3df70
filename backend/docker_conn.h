/*
 * One connection to the engine: a byte stream over a Unix socket, TCP or TLS that
 * never blocks. Its owner embeds it, is told by event() that something may be possible
 * now, and tries to send and receive.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "docker_tls.h"
#include "loop.h"

struct docker_conn {
	/* Something may have changed: connected, failed, bytes to take, room for more. */
	void (*event)(struct docker_conn *conn);

	/* The rest is docker_conn.c's own. */
	const struct docker_host *host;
	struct loop *loop;
	struct source source;
	struct timer retry;
	unsigned tries;
	struct docker_tls tls; /* with TLS: it owns the socket */
	bool encrypted;
	bool connected;
	int error;
	bool wants_input;
	bool wants_room;
};

/*
 * Begins to connect. Failures come later, from send and receive. event() is never
 * called from within a call of this file.
 */
void docker_conn_open(struct docker_conn *conn, struct loop *loop, const struct docker_host *host,
		      void (*event)(struct docker_conn *conn));

/* Harmless when it was never opened (zeroed), or is closed. */
void docker_conn_close(struct docker_conn *conn);
bool docker_conn_is_open(const struct docker_conn *conn);

/* Returns the bytes sent, -EAGAIN (not connected, or no room), or the final -errno. */
ssize_t docker_conn_send(struct docker_conn *conn, const void *data, size_t len);

/* Whether send would take a byte now. */
bool docker_conn_has_room(const struct docker_conn *conn);

/* Returns the bytes received, 0 at the end, -EAGAIN, or the final -errno. */
ssize_t docker_conn_receive(struct docker_conn *conn, void *data, size_t len);

/* What event() is wanted for, from now on. With neither, it is not called. */
void docker_conn_want(struct docker_conn *conn, bool input, bool room);

/* There may be more to receive than the socket says: calls event() again, in a later turn. */
void docker_conn_again(struct docker_conn *conn);

/* Ends our direction; the other goes on. */
void docker_conn_end(struct docker_conn *conn);

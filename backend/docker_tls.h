/*
 * TLS to an engine: libcurl connects, checks the certificates and hands over the connection
 * (CURLOPT_CONNECT_ONLY), which then carries whatever its two sides like.
 */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <sys/types.h>

#include "bounds.h"
#include "docker_host.h"
#include "loop.h"

/* One connection, embedded in its owner. */
struct docker_tls {
	/* The connection is there, with its fd (watched by the owner from now on), or err is
	 * -errno. */
	void (*connected)(struct docker_tls *tls, int fd, int err);

	/* The rest is docker_tls.c's own. */
	struct loop *loop;
	CURLM *multi;
	CURL *easy;
	struct curl_slist *names;
	struct source source; /* the socket, while libcurl connects */
	struct timer timer;
	bool done;
	/*
	 * A record that found no room is made already, and OpenSSL sends it and no other
	 * next (SSL_write(3)): its bytes count as sent, and wait here.
	 */
	char *pending; /* DOCKER_TLS_RECORD */
	size_t pending_len;
	bool end_due;
};

/* Begins. connected() follows in a later turn, unless -errno is returned. */
int docker_tls_open(struct docker_tls *tls, struct loop *loop, const struct docker_host *host,
		    void (*connected)(struct docker_tls *tls, int fd, int err));

/* Harmless on a zeroed one. Unwatch the fd first: it is closed. */
void docker_tls_close(struct docker_tls *tls);

/* Sends what is pending. Returns 0 when nothing is any more, -EAGAIN or the final -errno. */
int docker_tls_flush(struct docker_tls *tls);

/* As docker_conn_send() and docker_conn_receive(). */
ssize_t docker_tls_send(struct docker_tls *tls, const void *data, size_t len);
ssize_t docker_tls_receive(struct docker_tls *tls, void *data, size_t len);

/* Ends our direction, behind what is pending (close_notify, RFC 8446, 6.1); the other goes on. */
void docker_tls_end(struct docker_tls *tls);

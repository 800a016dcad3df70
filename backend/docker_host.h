/*
 * Where the engine listens: what DOCKER_HOST and its companions say, read as the docker
 * command reads them.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "text.h"

enum docker_transport { DOCKER_UNIX, DOCKER_TCP, DOCKER_TLS };

struct docker_host {
	char *url; /* "unix:///var/run/docker.sock", for sentences */
	enum docker_transport transport;
	char *name; /* TCP: the host as written, which a certificate must name */
	char *port;
	/* The file of a Unix socket, or the first address of the name, resolved once. */
	struct sockaddr_storage address;
	socklen_t address_len;
	/* TLS: files of DOCKER_CERT_PATH. */
	char *ca;
	char *cert;
	char *key;
	bool has_certificate; /* cert and key are there: the engine may ask for them */
	bool verify;
};

/* What the environment says; NULL: not set, or empty. */
struct docker_environment {
	const char *host;	/* DOCKER_HOST */
	const char *cert_path;	/* DOCKER_CERT_PATH; without it, $HOME/.docker */
	const char *tls;	/* DOCKER_TLS: TLS, the server's certificate unchecked */
	const char *tls_verify; /* DOCKER_TLS_VERIFY: TLS, checked */
	const char *home;	/* HOME */
};

/*
 * Makes sense of it. Resolves a host name, so it may block. Returns 0, or -errno with a
 * sentence: -EINVAL, an address nobody can use; -EHOSTUNREACH, a name nobody knows.
 * *ret is released by docker_host_done().
 */
int docker_host_init(struct docker_host *ret, const struct docker_environment *env,
		     struct text *why);
void docker_host_done(struct docker_host *host);

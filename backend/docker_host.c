#include "docker_host.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define DEFAULT_URL "unix:///var/run/docker.sock"
#define TCP_PORT "2375"
#define TLS_PORT "2376"

void docker_host_done(struct docker_host *host)
{
	free(host->url);
	free(host->name);
	free(host->port);
	free(host->ca);
	free(host->cert);
	free(host->key);
	*host = (struct docker_host){0};
}

static int parse_unix(struct docker_host *host, const char *path, struct text *why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (!*path || strlen(path) >= sizeof(address.sun_path))
		return text_fail(why, -EINVAL,
				 "docker: the socket path in %s must have 1 to %zu bytes",
				 host->url, sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	memcpy(&host->address, &address, sizeof(address));
	host->address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
	host->transport = DOCKER_UNIX;
	return 0;
}

static int resolve(struct docker_host *host, struct text *why)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found;
	int err = getaddrinfo(host->name, host->port, &hints, &found);

	if (err)
		return text_fail(why, -EHOSTUNREACH, "docker: cannot find the host of %s: %s",
				 host->url, gai_strerror(err));
	memcpy(&host->address, found->ai_addr, found->ai_addrlen);
	host->address_len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, and nothing behind it but a slash. */
static int parse_tcp(struct docker_host *host, const char *at, struct text *why)
{
	size_t len = strcspn(at, "/");
	const char *end = at + len;
	const char *name = at;
	size_t name_len;
	const char *rest;

	if (*at == '[') {
		name = at + 1;
		name_len = strcspn(name, "]");
		rest = name[name_len] ? name + name_len + 1 : end;
	} else {
		name_len = strcspn(name, ":/");
		rest = name + name_len;
	}
	if (!name_len || (*end && strcmp(end, "/") != 0) || (*rest && *rest != ':' && *rest != '/'))
		return text_fail(why, -EINVAL, "docker: %s is not tcp://HOST:PORT", host->url);
	host->name = strndup(name, name_len);
	if (*rest == ':')
		host->port = strndup(rest + 1, (size_t)(end - rest - 1));
	else
		host->port = strdup(host->transport == DOCKER_TLS ? TLS_PORT : TCP_PORT);
	if (!host->name || !host->port)
		return -ENOMEM;
	return resolve(host, why);
}

/* The three files that the docker command makes and reads. */
static int find_certificates(struct docker_host *host, const struct docker_environment *env,
			     struct text *why)
{
	AUTO_FREE char *home = NULL;
	const char *dir = env->cert_path;

	if (!dir) {
		if (asprintf(&home, "%s/.docker", env->home ? env->home : "") < 0)
			return -ENOMEM;
		dir = home;
	}
	if (asprintf(&host->ca, "%s/ca.pem", dir) < 0 ||
	    asprintf(&host->cert, "%s/cert.pem", dir) < 0 ||
	    asprintf(&host->key, "%s/key.pem", dir) < 0)
		return -ENOMEM;
	host->has_certificate = access(host->cert, R_OK) == 0 && access(host->key, R_OK) == 0;
	if (host->verify && access(host->ca, R_OK) < 0)
		return text_fail(why, -errno,
				 "docker: cannot read %s, by which the engine is checked: %s: set "
				 "DOCKER_CERT_PATH",
				 host->ca, strerror(errno));
	return 0;
}

int docker_host_init(struct docker_host *ret, const struct docker_environment *env,
		     struct text *why)
{
	struct docker_host host = {.transport = DOCKER_TCP, .verify = env->tls_verify};
	int err = 0;

	host.url = strdup(env->host ? env->host : DEFAULT_URL);
	if (!host.url)
		return -ENOMEM;
	if (env->tls || env->tls_verify) {
		host.transport = DOCKER_TLS;
		err = find_certificates(&host, env, why);
	}
	if (!err && strncmp(host.url, "unix://", 7) == 0)
		err = parse_unix(&host, host.url + 7, why);
	else if (!err && strncmp(host.url, "tcp://", 6) == 0)
		err = parse_tcp(&host, host.url + 6, why);
	else if (!err)
		err = text_fail(why, -EINVAL,
				"docker: %s: only unix:// and tcp:// are known; for an engine "
				"behind SSH, forward its socket: ssh -L /tmp/docker.sock:"
				"/var/run/docker.sock HOST",
				host.url);
	if (err < 0) {
		docker_host_done(&host);
		return err;
	}
	*ret = host;
	return 0;
}

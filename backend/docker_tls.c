#include "docker_tls.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "log.h"

/* What libcurl's failures stand for. */
static int error_of(CURLcode code)
{
	switch ((int)code) {
	case CURLE_OK:
		return 0;
	case CURLE_AGAIN:
		return -EAGAIN;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CONNECT_ERROR:
		return -EACCES;
	default:
		return -ECONNRESET;
	}
}

static SSL *session_of(struct docker_tls *tls)
{
	struct curl_tlssessioninfo *session = NULL;

	if (curl_easy_getinfo(tls->easy, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK || !session ||
	    session->backend != CURLSSLBACKEND_OPENSSL)
		return NULL;
	return session->internals;
}

/* A write that is tried again comes from the pending bytes, not from where it was first. */
static void allow_moving(struct docker_tls *tls)
{
	SSL *ssl = session_of(tls);

	if (ssl)
		SSL_set_mode(ssl, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

/* The one who is told may close the connection. */
static void look(struct docker_tls *tls)
{
	int left;
	CURLMsg *message = curl_multi_info_read(tls->multi, &left);
	curl_socket_t fd = CURL_SOCKET_BAD;
	CURLcode code;

	if (tls->done || !message || message->msg != CURLMSG_DONE)
		return;
	code = message->data.result;
	tls->done = true;
	loop_unwatch(&tls->source);
	timer_cancel(&tls->timer);
	if (code == CURLE_OK)
		code = curl_easy_getinfo(tls->easy, CURLINFO_ACTIVESOCKET, &fd);
	if (code == CURLE_OK)
		allow_moving(tls);
	else
		log_info("docker: TLS: %s", curl_easy_strerror(code));
	tls->connected(tls, fd, fd == CURL_SOCKET_BAD ? MIN(error_of(code), -1) : 0);
}

static void act(struct docker_tls *tls, curl_socket_t fd, int events)
{
	int running;

	curl_multi_socket_action(tls->multi, fd, events, &running);
	look(tls);
}

static void source_ready(struct source *source, uint32_t events)
{
	int what = 0;

	if (events & EPOLLIN)
		what |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (events & (EPOLLERR | EPOLLHUP))
		what |= CURL_CSELECT_ERR;
	act(container_of(source, struct docker_tls, source), source->fd, what);
}

static void timer_fired(struct timer *timer)
{
	act(container_of(timer, struct docker_tls, timer), CURL_SOCKET_TIMEOUT, 0);
}

/* There is one address, and so one socket at a time. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *owner, void *unused)
{
	struct docker_tls *tls = owner;
	uint32_t events = 0;

	loop_unwatch(&tls->source);
	if (tls->done || what == CURL_POLL_REMOVE)
		return 0;
	if (what & CURL_POLL_IN)
		events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		events |= EPOLLOUT;
	tls->source.fd = fd;
	return loop_watch(tls->loop, &tls->source, events) < 0 ? -1 : 0;
}

static int on_timer(CURLM *multi, long delay_ms, void *owner)
{
	struct docker_tls *tls = owner;

	if (delay_ms < 0)
		timer_cancel(&tls->timer);
	else if (!tls->done && timer_arm(tls->loop, &tls->timer, (uint64_t)delay_ms) < 0)
		return -1;
	return 0;
}

/* The name is for the certificate; it was resolved when the mount was made. */
static struct curl_slist *resolved(const struct docker_host *host)
{
	char ip[NI_MAXHOST];
	char line[2 * NI_MAXHOST];

	if (getnameinfo((const struct sockaddr *)&host->address, host->address_len, ip, sizeof(ip),
			NULL, 0, NI_NUMERICHOST))
		return NULL;
	snprintf(line, sizeof(line), "%s:%s:%s", host->name, host->port, ip);
	return curl_slist_append(NULL, line);
}

static void set_options(CURL *easy, const struct docker_host *host)
{
	curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	/* What follows is HTTP/1.1, which is what is spoken when nothing was negotiated. */
	curl_easy_setopt(easy, CURLOPT_SSL_ENABLE_ALPN, 0L);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, host->verify ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, host->verify ? 2L : 0L);
	if (host->verify)
		curl_easy_setopt(easy, CURLOPT_CAINFO, host->ca);
	if (host->has_certificate) {
		curl_easy_setopt(easy, CURLOPT_SSLCERT, host->cert);
		curl_easy_setopt(easy, CURLOPT_SSLKEY, host->key);
	}
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)DOCKER_CALL_MS);
}

int docker_tls_open(struct docker_tls *tls, struct loop *loop, const struct docker_host *host,
		    void (*connected)(struct docker_tls *tls, int fd, int err))
{
	AUTO_TEXT struct text url = {0};
	bool bracket = strchr(host->name, ':');

	*tls = (struct docker_tls){
		.connected = connected,
		.loop = loop,
		.source = {.fd = -1, .ready = source_ready},
		.timer = {.fire = timer_fired},
		.multi = curl_multi_init(),
		.easy = curl_easy_init(),
		.names = resolved(host),
		.pending = malloc(DOCKER_TLS_RECORD),
	};
	if (!tls->multi || !tls->easy || !tls->names || !tls->pending ||
	    text_printf(&url, bracket ? "https://[%s]:%s/" : "https://%s:%s/", host->name,
			host->port) < 0) {
		docker_tls_close(tls);
		return -ENOMEM;
	}
	curl_easy_setopt(tls->easy, CURLOPT_URL, text_str(&url));
	curl_easy_setopt(tls->easy, CURLOPT_RESOLVE, tls->names);
	set_options(tls->easy, host);
	curl_multi_setopt(tls->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(tls->multi, CURLMOPT_SOCKETDATA, tls);
	curl_multi_setopt(tls->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(tls->multi, CURLMOPT_TIMERDATA, tls);
	curl_multi_add_handle(tls->multi, tls->easy);
	return 0;
}

void docker_tls_close(struct docker_tls *tls)
{
	tls->done = true;
	if (tls->loop) {
		loop_unwatch(&tls->source);
		timer_cancel(&tls->timer);
	}
	if (tls->multi && tls->easy)
		curl_multi_remove_handle(tls->multi, tls->easy);
	curl_easy_cleanup(tls->easy);
	curl_multi_cleanup(tls->multi);
	curl_slist_free_all(tls->names);
	free(tls->pending);
	*tls = (struct docker_tls){0};
}

static void send_end(struct docker_tls *tls)
{
	SSL *ssl = session_of(tls);

	if (ssl)
		SSL_shutdown(ssl);
}

int docker_tls_flush(struct docker_tls *tls)
{
	size_t n = 0;
	CURLcode code = CURLE_OK;

	while (tls->pending_len && code == CURLE_OK) {
		code = curl_easy_send(tls->easy, tls->pending, tls->pending_len, &n);
		if (code != CURLE_OK)
			return error_of(code);
		tls->pending_len -= n;
		memmove(tls->pending, tls->pending + n, tls->pending_len);
	}
	if (tls->end_due)
		send_end(tls);
	tls->end_due = false;
	return 0;
}

ssize_t docker_tls_send(struct docker_tls *tls, const void *data, size_t len)
{
	size_t n = 0;
	int err = docker_tls_flush(tls);
	CURLcode code;

	if (err < 0)
		return err;
	len = MIN(len, DOCKER_TLS_RECORD);
	code = curl_easy_send(tls->easy, data, len, &n);
	if (code == CURLE_OK)
		return (ssize_t)n;
	if (code != CURLE_AGAIN)
		return error_of(code);
	memcpy(tls->pending, data, len);
	tls->pending_len = len;
	return (ssize_t)len;
}

ssize_t docker_tls_receive(struct docker_tls *tls, void *data, size_t len)
{
	size_t n = 0;
	CURLcode code = curl_easy_recv(tls->easy, data, len, &n);

	return code == CURLE_OK ? (ssize_t)n : error_of(code);
}

void docker_tls_end(struct docker_tls *tls)
{
	tls->end_due = true;
	docker_tls_flush(tls);
}

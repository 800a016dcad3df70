/*
 * libcurl's multi interface on the loop. Two things of libcurl decide the shape:
 * handles may not be added or removed from within its callbacks, so that is
 * left to a task; and unpausing delivers bytes at once, so that is left to it, too.
 */
#include "http.h"

#include <curl/curl.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "list.h"

struct http {
	struct loop *loop;
	CURLM *multi;
	struct http_options options;
	struct timer timer; /* libcurl's */
	struct task task;   /* works through todo, then collects what has ended */
	struct list exchanges;
	struct list todo;
	unsigned idle_max_s; /* the age at which an idle connection is not used again */
};

/* One transfer. It outlives a cancelled call until libcurl has let go of it. */
struct exchange {
	struct http *http;
	struct http_call *call; /* NULL: cancelled */
	CURL *easy;
	struct http_headers headers;
	struct list link;
	struct list todo;
	size_t body_read; /* bytes of the request's body that libcurl has taken */
	size_t skip;	  /* bytes of the held chunk that were taken before it was held */
	bool added;
	bool head_seen;
	bool held;
	bool hold_asked;
	bool resume_asked;
	char error[CURL_ERROR_SIZE];
};

struct http_socket {
	struct source source;
	struct http *http;
};

/* ---- One exchange ---- */

static void exchange_later(struct exchange *x)
{
	list_remove(&x->todo);
	list_append(&x->http->todo, &x->todo);
	loop_defer(x->http->loop, &x->http->task);
}

/*
 * libcurl 7.88 forgets to free what it keeps for a paused stream when the stream is taken off a
 * connection that others use: up to its HTTP/2 window of 32 MiB. So it is let out before.
 */
static void empty_held(struct exchange *x)
{
	x->call = NULL;
	if (x->added && x->held)
		curl_easy_pause(x->easy, CURLPAUSE_CONT);
}

static void exchange_free(struct exchange *x)
{
	empty_held(x);
	if (x->added)
		curl_multi_remove_handle(x->http->multi, x->easy);
	curl_easy_cleanup(x->easy);
	http_headers_done(&x->headers);
	list_remove(&x->link);
	list_remove(&x->todo);
	free(x);
}

/*
 * A server that says how long it keeps an idle connection (Keep-Alive: timeout=5) is
 * believed: a request on one that it is about to close gets no answer, and such a
 * request cannot be sent twice. Seen from Node's server; libcurl ignores the header.
 */
static void note_idle_limit(struct exchange *x)
{
	struct curl_header *header;
	const char *timeout;
	unsigned seconds;

	if (curl_easy_header(x->easy, "Keep-Alive", 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
		return;
	timeout = strcasestr(header->value, "timeout=");
	if (!timeout)
		return;
	seconds = (unsigned)strtoul(timeout + strlen("timeout="), NULL, 10);
	x->http->idle_max_s = MIN(HTTP_IDLE_MAX_S, seconds > 1 ? seconds - 1 : 1u);
}

static void note_head(struct exchange *x)
{
	struct http_call *call = x->call;
	struct curl_header *header;
	const char *type = NULL;
	long value = 0;

	if (x->head_seen)
		return;
	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &value);
	if (!value)
		return;
	x->head_seen = true;
	call->status = (int)value;
	curl_easy_getinfo(x->easy, CURLINFO_HTTP_VERSION, &value);
	call->is_h2 = value == CURL_HTTP_VERSION_2_0;
	curl_easy_getinfo(x->easy, CURLINFO_CONTENT_TYPE, &type);
	snprintf(call->content_type, sizeof(call->content_type), "%s", type ? type : "");
	if (curl_easy_header(x->easy, "Retry-After", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
		call->retry_after_s = (unsigned)strtoul(header->value, NULL, 10);
	note_idle_limit(x);
}

static size_t read_body(char *buf, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	size_t len;

	if (!x->call)
		return CURL_READFUNC_ABORT;
	len = MIN(size * count, x->call->body_len - x->body_read);
	if (len)
		memcpy(buf, (const char *)x->call->body + x->body_read, len);
	x->body_read += len;
	return len;
}

/* A body that was begun is never sent again: see http.h. */
static int rewind_body(void *arg, curl_off_t offset, int origin)
{
	struct exchange *x = arg;

	return x->body_read == 0 && offset == 0 && origin == SEEK_SET ? CURL_SEEKFUNC_OK
								      : CURL_SEEKFUNC_FAIL;
}

/* libcurl offers a held chunk again from its first byte: what was taken of it is skipped. */
static size_t write_body(char *data, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	size_t len = size * count;
	size_t taken;

	/* Cancelled: it is about to be taken off, or let out to be freed. */
	if (!x->call)
		return len;
	note_head(x);
	x->held = false;
	x->hold_asked = false;
	taken = x->call->on_body(x->call, data + x->skip, len - x->skip);
	if (!x->call)
		return len;
	taken += x->skip;
	if (taken == len && !x->hold_asked) {
		x->skip = 0;
		return len;
	}
	x->skip = taken;
	x->held = true;
	return CURL_WRITEFUNC_PAUSE;
}

/* Else the kernel tries for a quarter of an hour, and over HTTP/2 all later calls share that. */
static int set_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
	unsigned limit_ms = HTTP_UNACKED_MS;

	setsockopt(fd, SOL_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
	return CURL_SOCKOPT_OK;
}

static void set_transport(struct exchange *x)
{
	struct http *http = x->http;
	bool tls = strncmp(x->call->url, "https:", 6) == 0;

	curl_easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(x->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(x->easy, CURLOPT_BUFFERSIZE, (long)HTTP_BUFFER_BYTES);
	curl_easy_setopt(x->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_MS);
	curl_easy_setopt(x->easy, CURLOPT_TIMEOUT_MS, (long)x->call->limit_ms);
	curl_easy_setopt(x->easy, CURLOPT_SOCKOPTFUNCTION, set_socket);
	curl_easy_setopt(x->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(x->easy, CURLOPT_TCP_KEEPIDLE, (long)HTTP_TCP_KEEPALIVE_S);
	curl_easy_setopt(x->easy, CURLOPT_TCP_KEEPINTVL, (long)HTTP_TCP_KEEPALIVE_S);
	curl_easy_setopt(x->easy, CURLOPT_MAXAGE_CONN, (long)http->idle_max_s);
	/* Debian 12's libcurl cannot multiplex h2c (curl#10634): HTTP/2 is for TLS. */
	curl_easy_setopt(x->easy, CURLOPT_HTTP_VERSION,
			 (long)(tls ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
	curl_easy_setopt(x->easy, CURLOPT_PIPEWAIT, tls ? 1L : 0L);
	if (http->options.ca_file)
		curl_easy_setopt(x->easy, CURLOPT_CAINFO, http->options.ca_file);
	if (http->options.unix_socket)
		curl_easy_setopt(x->easy, CURLOPT_UNIX_SOCKET_PATH, http->options.unix_socket);
}

static void set_request(struct exchange *x)
{
	struct http_call *call = x->call;

	curl_easy_setopt(x->easy, CURLOPT_URL, call->url);
	curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers.list);
	curl_easy_setopt(x->easy, CURLOPT_ERRORBUFFER, x->error);
	curl_easy_setopt(x->easy, CURLOPT_PRIVATE, x);
	if (call->body) {
		curl_easy_setopt(x->easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)HTTP_UPLOAD_BYTES);
		curl_easy_setopt(x->easy, CURLOPT_POST, 1L);
		curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
		curl_easy_setopt(x->easy, CURLOPT_READFUNCTION, read_body);
		curl_easy_setopt(x->easy, CURLOPT_READDATA, x);
		curl_easy_setopt(x->easy, CURLOPT_SEEKFUNCTION, rewind_body);
		curl_easy_setopt(x->easy, CURLOPT_SEEKDATA, x);
	}
	curl_easy_setopt(x->easy, CURLOPT_CUSTOMREQUEST, call->method);
	curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, write_body);
	curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
}

/* ---- Ends ---- */

static int error_of(CURLcode code)
{
	switch ((int)code) {
	case CURLE_OK:
		return 0;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
		return -EPROTO;
	default:
		return -ECONNRESET;
	}
}

static void finish(struct exchange *x, CURLcode code)
{
	struct http_call *call = x->call;
	long sent = 0;

	if (!call) {
		exchange_free(x);
		return;
	}
	note_head(x);
	curl_easy_getinfo(x->easy, CURLINFO_REQUEST_SIZE, &sent);
	call->sent = sent > 0 || x->body_read > 0;
	/* What libcurl says of rewind_body() is nothing to a reader. */
	snprintf(call->why, sizeof(call->why), "%s",
		 code == CURLE_SEND_FAIL_REWIND ? "the connection ended without an answer"
		 : x->error[0]			? x->error
						: curl_easy_strerror(code));
	call->exchange = NULL;
	x->call = NULL;
	exchange_free(x);
	call->on_done(call, error_of(code));
}

static void collect(struct http *http)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(http->multi, &left))) {
		struct exchange *x = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&x);
		finish(x, message->data.result);
	}
}

static void work_on(struct exchange *x)
{
	if (!x->call) {
		exchange_free(x);
		return;
	}
	if (!x->added) {
		x->added = true;
		curl_multi_add_handle(x->http->multi, x->easy);
		return;
	}
	if (x->resume_asked) {
		x->resume_asked = false;
		x->held = false;
		curl_easy_pause(x->easy, CURLPAUSE_CONT);
	}
}

static void run_task(struct task *task)
{
	struct http *http = container_of(task, struct http, task);

	while (!list_empty(&http->todo)) {
		struct exchange *x = list_first(&http->todo, struct exchange, todo);

		list_remove(&x->todo);
		work_on(x);
	}
	collect(http);
}

/* ---- libcurl's sockets and timer ---- */

static void act(struct http *http, curl_socket_t fd, int mask)
{
	int running;

	curl_multi_socket_action(http->multi, fd, mask, &running);
	collect(http);
}

static void socket_ready(struct source *source, uint32_t events)
{
	struct http_socket *s = container_of(source, struct http_socket, source);
	int mask = 0;

	if (events & (EPOLLIN | EPOLLHUP))
		mask |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		mask |= CURL_CSELECT_OUT;
	if (events & EPOLLERR)
		mask |= CURL_CSELECT_ERR;
	act(s->http, source->fd, mask);
}

static void timer_fired(struct timer *timer)
{
	act(container_of(timer, struct http, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket)
{
	struct http *http = arg;
	struct http_socket *s = socket;
	uint32_t events =
		(what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

	if (what == CURL_POLL_REMOVE) {
		if (s)
			loop_unwatch(&s->source);
		free(s);
		curl_multi_assign(http->multi, fd, NULL);
		return 0;
	}
	if (s)
		return loop_rewatch(&s->source, events) < 0 ? -1 : 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -1;
	s->http = http;
	s->source.fd = fd;
	s->source.ready = socket_ready;
	if (loop_watch(http->loop, &s->source, events) < 0) {
		free(s);
		return -1;
	}
	curl_multi_assign(http->multi, fd, s);
	return 0;
}

static int set_timer(CURLM *multi, long delay_ms, void *arg)
{
	struct http *http = arg;

	if (delay_ms < 0)
		timer_cancel(&http->timer);
	else if (timer_arm(http->loop, &http->timer, (uint64_t)delay_ms) < 0)
		return -1;
	return 0;
}

/* ---- Calls of the header ---- */

int http_new(struct loop *loop, const struct http_options *options, struct http **ret)
{
	struct http *http = calloc(1, sizeof(*http));

	if (!http)
		return -ENOMEM;
	http->loop = loop;
	http->options = *options;
	http->idle_max_s = HTTP_IDLE_MAX_S;
	http->timer.fire = timer_fired;
	task_init(&http->task, run_task);
	list_init(&http->exchanges);
	list_init(&http->todo);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
		http->multi = curl_multi_init();
	if (!http->multi) {
		free(http);
		return -ENOMEM;
	}
	curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
	curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
	curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)HTTP_IDLE_CONNECTIONS);
	curl_multi_setopt(http->multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)HTTP_STREAMS_MAX);
	*ret = http;
	return 0;
}

void http_free(struct http *http)
{
	if (!http)
		return;
	list_for_each_safe (x, &http->exchanges, struct exchange, link) {
		if (x->call)
			x->call->exchange = NULL;
		x->call = NULL;
		exchange_free(x);
	}
	curl_multi_cleanup(http->multi);
	timer_cancel(&http->timer);
	task_cancel(&http->task);
	free(http);
}

int http_begin(struct http *http, struct http_call *call)
{
	struct exchange *x = calloc(1, sizeof(*x));

	if (x)
		x->easy = curl_easy_init();
	if (!x || !x->easy) {
		http_headers_done(&call->headers);
		free(x);
		return -ENOMEM;
	}
	x->http = http;
	x->call = call;
	x->headers = call->headers;
	call->headers.list = NULL;
	call->exchange = x;
	call->status = 0;
	call->retry_after_s = 0;
	call->sent = false;
	call->content_type[0] = '\0';
	call->why[0] = '\0';
	list_init(&x->todo);
	list_append(&http->exchanges, &x->link);
	set_transport(x);
	set_request(x);
	exchange_later(x);
	return 0;
}

void http_cancel(struct http_call *call)
{
	struct exchange *x = TAKE_PTR(call->exchange);

	http_headers_done(&call->headers);
	if (!x)
		return;
	x->call = NULL;
	exchange_later(x);
}

void http_hold(struct http_call *call)
{
	if (call->exchange)
		call->exchange->hold_asked = true;
}

void http_resume(struct http_call *call)
{
	struct exchange *x = call->exchange;

	if (!x || !(x->held || x->hold_asked))
		return;
	x->resume_asked = true;
	exchange_later(x);
}

#include "docker_call.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

#include "bounds.h"

int docker_request(struct text *ret, const struct docker_api *api, const char *method,
		   const char *path, const struct text *body, bool hijack)
{
	bool plain = api->host.transport == DOCKER_UNIX;
	int err;

	err = text_printf(ret, "%s %s%s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: spawnfs\r\n", method,
			  *api->version ? "/v" : "", api->version, path,
			  plain ? "docker" : api->host.name);
	if (!err)
		err = text_printf(ret, hijack ? "Connection: Upgrade\r\nUpgrade: tcp\r\n"
					      : "Connection: close\r\n");
	if (!err && body)
		err = text_printf(ret, "Content-Type: application/json\r\n");
	if (!err)
		err = text_printf(ret, "Content-Length: %zu\r\n\r\n", body ? body->len : 0);
	return !err && body ? text_append(ret, body->data, body->len) : err;
}

static void finish(struct docker_call *call, int err)
{
	docker_conn_close(&call->conn);
	timer_cancel(&call->deadline);
	text_wipe(&call->request);
	text_wipe(&call->input);
	call->running = false;
	call->done(call, err);
}

/* Returns 1 when the request is out, 0 when there is more to send, or -errno. */
static int send_request(struct docker_call *call)
{
	while (call->sent < call->request.len) {
		ssize_t n = docker_conn_send(&call->conn, call->request.data + call->sent,
					     call->request.len - call->sent);

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		call->sent += (size_t)n;
	}
	return 1;
}

/* Makes what it can of the bytes received so far. Returns 0 or -errno. */
static int parse(struct docker_call *call)
{
	ssize_t used = 0;

	if (!call->answer.status) {
		used = docker_answer_head(&call->answer, text_str(&call->input), call->input.len);
		if (used <= 0)
			return (int)used;
		docker_drop(&call->input, (size_t)used);
		if (call->bodiless)
			call->answer.complete = true;
	}
	used = docker_answer_body(&call->answer, text_str(&call->input), call->input.len,
				  &call->body);
	if (used < 0)
		return (int)used;
	docker_drop(&call->input, (size_t)used);
	return 0;
}

/* Returns 1 when the answer is complete, 0 when more will come, or -errno. */
static int receive_answer(struct docker_call *call)
{
	char data[16 * KIB];
	int err = 0;

	while (!call->answer.complete) {
		ssize_t n = docker_conn_receive(&call->conn, data, sizeof(data));

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		if (n == 0)
			err = docker_answer_end(&call->answer);
		else
			err = text_append(&call->input, data, (size_t)n);
		if (!err && n)
			err = parse(call);
		if (err < 0)
			return err;
	}
	return 1;
}

static void conn_event(struct docker_conn *conn)
{
	struct docker_call *call = container_of(conn, struct docker_call, conn);
	int sent = send_request(call);
	int got;

	docker_conn_want(conn, true, sent == 0);
	/* An engine may refuse, and close, before it has read the whole request. */
	got = receive_answer(call);
	if (got == 1)
		finish(call, 0);
	else if (got < 0 || sent < 0)
		finish(call, got < 0 ? got : sent);
}

static void deadline_fired(struct timer *timer)
{
	struct docker_call *call = container_of(timer, struct docker_call, deadline);

	finish(call, -ETIMEDOUT);
}

void docker_call_start(struct docker_call *call, struct docker_api *api, const char *method,
		       const char *path, const struct text *body, uint64_t timeout_ms,
		       void (*done)(struct docker_call *call, int err))
{
	docker_call_cancel(call);
	*call = (struct docker_call){
		.api = api,
		.done = done,
		.deadline = {.fire = deadline_fired},
		.bodiless = strcmp(method, "HEAD") == 0,
		.running = true,
	};
	if (docker_request(&call->request, api, method, path, body, false) < 0) {
		/* Without a request there is nothing to wait for but the deadline. */
		timer_arm(api->loop, &call->deadline, 0);
		return;
	}
	docker_conn_open(&call->conn, api->loop, &api->host, conn_event);
	if (timeout_ms)
		timer_arm(api->loop, &call->deadline, timeout_ms);
}

void docker_call_cancel(struct docker_call *call)
{
	docker_conn_close(&call->conn);
	timer_cancel(&call->deadline);
	text_wipe(&call->request);
	text_wipe(&call->input);
	text_wipe(&call->body);
	call->running = false;
}

cJSON *docker_call_json(const struct docker_call *call)
{
	return cJSON_ParseWithLength(text_str(&call->body), call->body.len);
}

char *docker_call_string(const struct docker_call *call, const char *key)
{
	cJSON *json = docker_call_json(call);
	const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
	char *ret = value ? strdup(value) : NULL;

	cJSON_Delete(json);
	return ret;
}

/* What a status of the Engine API stands for, besides success. */
static int status_error(int status)
{
	switch (status) {
	case 400:
		return -EINVAL;
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 409:
		return -ENXIO;
	default:
		return -EIO;
	}
}

/* The advice that goes with not reaching an engine at all. */
static const char *advice(const struct docker_host *host, int err)
{
	if (err == -EACCES)
		return ": you may not use this socket: join its group";
	if (host->transport == DOCKER_UNIX && (err == -ENOENT || err == -ECONNREFUSED))
		return ": is the engine running? DOCKER_HOST or -o docker_host=URL names another";
	return "";
}

/* What an engine that is not there is to the writer of a spec, whatever the call said. */
static int reach_error(int err)
{
	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EPIPE:
		return -EHOSTUNREACH;
	default:
		return err;
	}
}

int docker_why(const struct docker_api *api, int err, const struct docker_answer *answer,
	       const struct text *body, struct text *why, const char *what)
{
	const struct docker_host *host = &api->host;
	const char *said = NULL;
	cJSON *json;

	if (err < 0)
		return text_fail(why, reach_error(err), "%s: %s: %s%s", what, host->url,
				 strerror(-err), advice(host, err));
	json = cJSON_ParseWithLength(text_str(body), body->len);
	said = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "message"));
	err = status_error(answer->status);
	if (said)
		text_fail(why, err, "%s: %s", what, said);
	else
		text_fail(why, err, "%s: %s answered with HTTP status %d", what, host->url,
			  answer->status);
	cJSON_Delete(json);
	return err;
}

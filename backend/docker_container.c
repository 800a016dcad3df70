#include "docker_container.h"

#include <errno.h>

#include "bounds.h"
#include "log.h"

static void call(struct docker_command *c, struct docker_call *call, const char *method,
		 const char *what, uint64_t timeout_ms,
		 void (*done)(struct docker_call *call, int err))
{
	AUTO_TEXT struct text path = {0};

	text_printf(&path, "/containers/%s%s", c->container, what);
	docker_call_start(call, &c->docker->api, method, text_str(&path), NULL, timeout_ms, done);
}

void docker_container_call(struct docker_command *c, const char *method, const char *what,
			   uint64_t timeout_ms, void (*done)(struct docker_call *call, int err))
{
	call(c, &c->call, method, what, timeout_ms, done);
}

/* ---- The beginning ---- */

static void created(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	AUTO_TEXT struct text why = {0};

	if (!err && call->answer.status == 201)
		c->container = docker_call_string(call, "Id");
	if (!c->container) {
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot make a container");
		exec_refused(c->base.exec, err, "%s", text_str(&why));
		return;
	}
	if (!docker_container_is_killed(c))
		c->ready(c);
}

void docker_container_create(struct docker_command *c, const struct text *body,
			     void (*ready)(struct docker_command *c))
{
	c->ready = ready;
	docker_call_start(&c->call, &c->docker->api, "POST", "/containers/create", body,
			  DOCKER_START_MS, created);
}

int docker_container_attach(struct docker_command *c, struct docker_stream *stream,
			    const char *what, const struct docker_stream_events *events)
{
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text body = {0};

	if (text_printf(&path, "/containers/%s/attach?stream=1&%s", c->container, what) < 0)
		return -ENOMEM;
	return docker_stream_open(stream, &c->docker->api, text_str(&path), &body, events);
}

bool docker_container_has_started(const struct docker_call *call, int err)
{
	return !err && (call->answer.status == 204 || call->answer.status == 304);
}

/* ---- The end ---- */

static void removed(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, container_call);
	AUTO_TEXT struct text why = {0};

	c->removed = !err && (call->answer.status == 204 || call->answer.status == 404 ||
			      call->answer.status == 200);
	if (!c->removed)
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot remove the container of a command");
	if (c->refusal_err) {
		if (!c->removed)
			log_warning("%s", text_str(&why));
		exec_refused(c->base.exec, c->refusal_err, "%s", text_str(&c->refusal_why));
	} else if (c->removed) {
		c->kind->removed(c);
	} else if (c->killing) {
		exec_kill_failed(c->base.exec, err, "%s", text_str(&why));
	} else {
		timer_arm(c->docker->base.loop, &c->timer, DOCKER_LOOK_LAST_MS);
	}
}

void docker_container_remove(struct docker_command *c)
{
	if (!c->container_call.running)
		call(c, &c->container_call, "DELETE", "?force=1&v=1", DOCKER_CALL_MS, removed);
}

void docker_container_refuse(struct docker_command *c, int err, const char *why)
{
	c->refusal_err = err;
	text_done(&c->refusal_why);
	text_printf(&c->refusal_why, "%s", why);
	docker_stream_close(&c->stream);
	docker_container_remove(c);
}

bool docker_container_is_killed(struct docker_command *c)
{
	if (c->killing)
		docker_container_refuse(c, -ECANCELED, "docker: removed before it was started");
	return c->killing;
}

void docker_container_release(struct docker_command *c)
{
	if (c->container && !c->removed)
		docker_remove_later(&c->docker->removals, c->container);
}

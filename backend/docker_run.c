/*
 * A command in a container of its own, of an image without a shell: it is the first process.
 *
 *   POST containers/create -> POST containers/ID/attach (hijacked) -> POST containers/ID/start
 *     -> frames to the end, POST containers/ID/wait -> DELETE containers/ID
 *
 * The engine tells of the end only when it has dropped what was left of the output 2 s later: had
 * that to wait for a reader, the result is lost output_cut. For the same reason there are no
 * reports: what comes on the stream is the command's.
 */
#include <cjson/cJSON.h>
#include <errno.h>

#include "bounds.h"
#include "docker.h"
#include "docker_body.h"
#include "docker_container.h"
#include "docker_failure.h"

static void lose(struct docker_command *c, const char *reason, const char *why)
{
	c->phase = DOCKER_ENDED;
	exec_lost(c->base.exec, reason, "%s", why);
}

/* ---- The end ---- */

static void removed(struct docker_command *c)
{
	c->gone = true;
	if (c->phase == DOCKER_ENDED) {
		exec_gone(c->base.exec);
		return;
	}
	/* The end of its stream, and its code, will come now; not for ever. */
	docker_command_drain(c);
	timer_arm(c->docker->base.loop, &c->timer, DOCKER_END_MS);
}

static void end_if_known(struct docker_command *c)
{
	if (!c->eof || !c->result_known || c->phase != DOCKER_RUNNING)
		return;
	timer_cancel(&c->timer);
	docker_command_exited(c, c->code);
	/* A container whose first process has ended has no other. */
	exec_gone(c->base.exec);
}

static bool was_held(const struct docker_command *c)
{
	return c->held || (c->held_ns && monotonic_ns() - c->held_ns < DOCKER_END_MS * 1000000ull);
}

static void waited(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	AUTO_TEXT struct text why = {0};
	cJSON *json = err || call->answer.status != 200 ? NULL : docker_call_json(call);
	const cJSON *code = cJSON_GetObjectItemCaseSensitive(json, "StatusCode");

	c->result_known = cJSON_IsNumber(code);
	c->code = c->result_known ? code->valueint & 0xff : 0;
	cJSON_Delete(json);
	if (c->result_known) {
		c->output_lost = was_held(c) && !c->killing;
		docker_command_drain(c);
		timer_arm(c->docker->base.loop, &c->timer, DOCKER_END_MS);
		end_if_known(c);
		return;
	}
	if (c->phase == DOCKER_ENDED)
		return;
	docker_why(call->api, err, &call->answer, &call->body, &why,
		   "docker: the result of the command cannot be had");
	lose(c, "no_result", text_str(&why));
	if (c->gone)
		exec_gone(c->base.exec);
}

static void lose_stream(struct docker_command *c)
{
	if (c->phase < DOCKER_RUNNING)
		docker_command_started(c, 0);
	lose(c, "stream_closed",
	     "docker: the connection to the engine broke while the command ran");
}

static void stream_ended(struct docker_command *c, int err)
{
	if (c->phase == DOCKER_ENDED)
		return;
	if (!docker_command_may_be_whole(c, err) && !c->gone) {
		lose_stream(c);
		return;
	}
	c->broken = err < 0;
	if (c->broken && !c->result_known)
		timer_arm(c->docker->base.loop, &c->timer, DOCKER_END_MS);
	if (c->phase == DOCKER_RUNNING)
		exec_input_closed(c->base.exec, -EPIPE);
	end_if_known(c);
}

/* The end did not come by itself: what is known must do. */
static void timer_fired(struct timer *timer)
{
	struct docker_command *c = container_of(timer, struct docker_command, timer);

	if (c->phase == DOCKER_ENDED)
		return;
	if (!c->gone && !c->result_known) {
		if (c->broken)
			lose_stream(c);
		return;
	}
	docker_stream_close(&c->stream);
	c->eof = true;
	if (c->result_known) {
		end_if_known(c);
		return;
	}
	lose(c, "no_result", "docker: the engine does not say how the command ended");
	exec_gone(c->base.exec);
}

/* ---- The beginning ---- */

static void start_refused(struct docker_command *c, struct docker_call *call, int err)
{
	AUTO_TEXT struct text why = {0};
	struct docker_failure failure = {0};

	err = docker_why(call->api, err, &call->answer, &call->body, &why,
			 "docker: cannot start a container");
	if (call->answer.status)
		failure = docker_failure_parse(text_str(&why));
	if (failure.program) {
		docker_command_no_program(c, failure.err);
		exec_gone(c->base.exec);
		return;
	}
	docker_container_refuse(c, failure.err && failure.err != -EIO ? failure.err : err,
				text_str(&why));
}

static void started(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);

	if (!docker_container_has_started(call, err)) {
		start_refused(c, call, err);
		return;
	}
	if (docker_container_is_killed(c))
		return;
	docker_container_call(c, "POST", "/wait", 0, waited);
	docker_command_started(c, 0);
	/* It may have ended by now, and its stream with it. */
	if (c->eof)
		exec_input_closed(c->base.exec, -EPIPE);
}

static void answered(struct docker_command *c, int err)
{
	AUTO_TEXT struct text why = {0};

	if (!c->stream.up) {
		err = docker_why(&c->docker->api, err, &c->stream.answer, &c->stream.body, &why,
				 "docker: cannot attach to a new container");
		docker_container_refuse(c, err, text_str(&why));
		return;
	}
	if (docker_container_is_killed(c))
		return;
	c->phase = DOCKER_STARTING;
	docker_container_call(c, "POST", "/start", DOCKER_START_MS, started);
}

static void made(struct docker_command *c)
{
	AUTO_TEXT struct text path = {0};
	int err = text_printf(&path, "/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1",
			      c->container);

	if (!err)
		err = docker_command_stream(c, text_str(&path), "");
	if (err < 0)
		docker_container_refuse(c, err, "docker: out of memory");
}

static int begin(struct docker_command *c, struct text *why)
{
	AUTO_TEXT struct text body = {0};
	int err = docker_run_body(c, &body, why);

	c->timer.fire = timer_fired;
	if (!err)
		docker_container_create(c, &body, made);
	text_wipe(&body);
	return err;
}

/* ---- Killing ---- */

static void kill_command(struct docker_command *c)
{
	docker_command_abandon(c);
	/* Until the start is answered, the container may begin to run just behind a removal. */
	if (c->phase >= DOCKER_RUNNING)
		docker_container_remove(c);
}

/* The engine would tell the container's first process alone, which ignores what it has no handler
 * for. */
static int signal_command(struct docker_command *c, int signo, struct text *why)
{
	return text_fail(why, -EOPNOTSUPP,
			 "docker: the image %s has no /bin/sh, without which no signal reaches the "
			 "command's process group; `kill` ends its container",
			 c->docker->image);
}

const struct docker_kind docker_run_kind = {
	.begin = begin,
	.answered = answered,
	.ended = stream_ended,
	.removed = removed,
	.kill = kill_command,
	.signal = signal_command,
	.release = docker_container_release,
};

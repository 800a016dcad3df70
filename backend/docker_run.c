/*
 * A command in a container of its own, which is made for it and removed after it.
 *
 *   POST containers/create -> POST containers/ID/attach (hijacked) -> POST containers/ID/start
 *     -> frames to the end, POST containers/ID/wait -> DELETE containers/ID
 *
 * The container is the process tree: to remove it by force is to kill, and nothing escapes.
 * Its labels say whose it is, so that the next mount finds what a dead daemon left.
 */
#include <cjson/cJSON.h>
#include <errno.h>

#include "bounds.h"
#include "docker.h"
#include "docker_body.h"
#include "docker_failure.h"
#include "log.h"

static void remove_container(struct docker_command *c);

static void call(struct docker_command *c, struct docker_call *call, const char *method,
		 const char *what, uint64_t timeout_ms,
		 void (*done)(struct docker_call *call, int err))
{
	AUTO_TEXT struct text path = {0};

	text_printf(&path, "/containers/%s%s", c->id, what);
	docker_call_start(call, &c->docker->api, method, text_str(&path), NULL, timeout_ms, done);
}

/* It never ran: that is reported once its container is gone. */
static void refuse(struct docker_command *c, int err, const char *why)
{
	c->refusal_err = err;
	text_done(&c->refusal_why);
	text_printf(&c->refusal_why, "%s", why);
	docker_stream_close(&c->stream);
	remove_container(c);
}

static void lose(struct docker_command *c, const char *reason, const char *why)
{
	c->phase = DOCKER_ENDED;
	exec_lost(c->base.exec, reason, "%s", why);
}

/* ---- Removal ---- */

static void gone(struct docker_command *c)
{
	c->gone = true;
	if (c->refusal_err) {
		exec_refused(c->base.exec, c->refusal_err, "%s", text_str(&c->refusal_why));
		return;
	}
	if (c->phase == DOCKER_ENDED) {
		exec_gone(c->base.exec);
		return;
	}
	/* The end of its stream, and its code, will come now; not for ever. */
	docker_command_drain(c);
	timer_arm(c->docker->base.loop, &c->timer, DOCKER_END_MS);
}

static void removed(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, remove_call);
	AUTO_TEXT struct text why = {0};

	if (!err && (call->answer.status == 204 || call->answer.status == 404 ||
		     call->answer.status == 200)) {
		c->removed = true;
		gone(c);
		return;
	}
	err = docker_why(call->api, err, &call->answer, &call->body, &why,
			 "docker: cannot remove the container of a command");
	if (c->refusal_err) {
		log_warning("%s", text_str(&why));
		exec_refused(c->base.exec, c->refusal_err, "%s", text_str(&c->refusal_why));
	} else {
		exec_kill_failed(c->base.exec, err, "%s", text_str(&why));
	}
}

static void remove_container(struct docker_command *c)
{
	if (!c->remove_call.running)
		call(c, &c->remove_call, "DELETE", "?force=1&v=1", DOCKER_CALL_MS, removed);
}

/* ---- The end ---- */

static void end_if_known(struct docker_command *c)
{
	AUTO_TEXT struct text why = {0};
	bool program;
	int err;

	if (!c->eof || !c->result_known || c->phase == DOCKER_ENDED)
		return;
	timer_cancel(&c->timer);
	if (c->phase == DOCKER_RUNNING) {
		docker_command_exited(c, c->code);
		/* A container whose first process has ended has no other. */
		exec_gone(c->base.exec);
		return;
	}
	/* The far shell never became the command. */
	err = c->killing ? text_fail(&why, -ECANCELED, "docker: removed before it was started")
			 : docker_command_why_not(c, &why, &program);
	exec_refused(c->base.exec, err, "%s", text_str(&why));
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
		docker_command_drain(c);
		timer_arm(c->docker->base.loop, &c->timer, DOCKER_END_MS);
		end_if_known(c);
		return;
	}
	if (c->phase == DOCKER_ENDED)
		return;
	docker_why(call->api, err, &call->answer, &call->body, &why,
		   "docker: the result of the command cannot be had");
	if (c->phase == DOCKER_STARTING)
		docker_command_started(c, 0);
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
	if (c->phase == DOCKER_STARTING)
		docker_command_started(c, 0);
	lose(c, "no_result", "docker: the engine does not say how the command ended");
	exec_gone(c->base.exec);
}

/* ---- The beginning ---- */

/* Whether a kill has come in between; then nothing more is begun. */
static bool stopped(struct docker_command *c)
{
	if (c->killing)
		refuse(c, -ECANCELED, "docker: removed before it was started");
	return c->killing;
}

static void start_refused(struct docker_command *c, struct docker_call *call, int err)
{
	AUTO_TEXT struct text why = {0};
	struct docker_failure failure = {0};

	err = docker_why(call->api, err, &call->answer, &call->body, &why,
			 "docker: cannot start a container");
	if (call->answer.status)
		failure = docker_failure_parse(text_str(&why));
	if (failure.program && !c->output.reports) {
		docker_command_no_program(c, failure.err);
		exec_gone(c->base.exec);
		return;
	}
	refuse(c, failure.err && failure.err != -EIO ? failure.err : err, text_str(&why));
}

static void started(struct docker_call *start_call, int err)
{
	struct docker_command *c = container_of(start_call, struct docker_command, call);

	if (err || (start_call->answer.status != 204 && start_call->answer.status != 304)) {
		start_refused(c, start_call, err);
		return;
	}
	if (stopped(c))
		return;
	c->waiting = true;
	call(c, &c->call, "POST", "/wait", 0, waited);
	if (!c->output.reports)
		docker_command_started(c, 0);
}

static void answered(struct docker_command *c, int err)
{
	AUTO_TEXT struct text why = {0};

	if (c->stream.up) {
		if (stopped(c))
			return;
		c->phase = DOCKER_STARTING;
		call(c, &c->call, "POST", "/start", DOCKER_START_MS, started);
		return;
	}
	err = docker_why(&c->docker->api, err, &c->stream.answer, &c->stream.body, &why,
			 "docker: cannot attach to a new container");
	refuse(c, err, text_str(&why));
}

static void created(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	AUTO_TEXT struct text why = {0};
	AUTO_TEXT struct text path = {0};

	c->id = err || call->answer.status != 201 ? NULL : docker_call_string(call, "Id");
	if (!c->id) {
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot make a container");
		exec_refused(c->base.exec, err, "%s", text_str(&why));
		return;
	}
	if (stopped(c))
		return;
	err = text_printf(&path, "/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1", c->id);
	if (!err)
		err = docker_command_stream(c, text_str(&path), "");
	if (err < 0)
		refuse(c, err, "docker: out of memory");
}

static int begin(struct docker_command *c, struct text *why)
{
	AUTO_TEXT struct text body = {0};
	int err = 0;

	c->timer.fire = timer_fired;
	c->output.reports = c->docker->image_shell;
	if (c->output.reports)
		err = docker_command_line(c);
	if (!err)
		err = docker_run_body(c, &body, why);
	if (!err)
		docker_call_start(&c->call, &c->docker->api, "POST", "/containers/create", &body,
				  DOCKER_START_MS, created);
	text_wipe(&body);
	return err;
}

/* ---- Killing ---- */

static void kill_command(struct docker_command *c)
{
	docker_command_abandon(c);
	/* Until the start is answered, the container may begin to run just behind a removal. */
	if (c->phase >= DOCKER_RUNNING || (c->phase == DOCKER_STARTING && c->waiting))
		remove_container(c);
}

static int signal_command(struct docker_command *c, int signo, struct text *why);

static void signal_sent(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, signal_call);

	if (err || call->answer.status != 204)
		log_info("docker: a signal to the container %s was not sent: %d", c->id,
			 err ? err : call->answer.status);
	/* One by one, or they would overtake each other. */
	if (c->signal_count) {
		int next = c->signals[0];

		c->signal_count--;
		memmove(c->signals, c->signals + 1, c->signal_count * sizeof(*c->signals));
		signal_command(c, next, NULL);
	}
}

/* To the container's init, which passes it on. */
static int signal_command(struct docker_command *c, int signo, struct text *why)
{
	AUTO_TEXT struct text what = {0};

	if (c->signal_call.running) {
		if (c->signal_count == ARRAY_LEN(c->signals))
			return text_fail(why, -EAGAIN, "docker: too many signals are on their way");
		c->signals[c->signal_count++] = signo;
		return 0;
	}
	if (text_printf(&what, "/kill?signal=%d", signo) < 0)
		return -ENOMEM;
	call(c, &c->signal_call, "POST", text_str(&what), DOCKER_CALL_MS, signal_sent);
	return 0;
}

static void release(struct docker_command *c)
{
	if (c->id && !c->removed)
		docker_remove_later(&c->docker->removals, c->id);
}

const struct docker_kind docker_run_kind = {
	.begin = begin,
	.answered = answered,
	.ended = stream_ended,
	.kill = kill_command,
	.signal = signal_command,
	.release = release,
};

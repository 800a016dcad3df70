/*
 * A command in a running container: an exec of the engine.
 *
 *   POST containers/C/exec -> POST exec/ID/start (hijacked) -> frames to the end -> GET
 * exec/ID/json
 *
 * What the engine leaves open, and how it is closed here:
 *   - it answers before the process runs, and writes a failed start into the stream: the far
 *     shell's reports tell that it runs; without a shell, a look at the exec does;
 *   - 2 s after the end of the process it cuts the stream, whatever is left in it: as long
 *     as output waits for a reader, the exec is looked at, and once it has ended all is taken;
 *   - it has no kill, and no word on children: docker_helper.c.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "docker.h"
#include "docker_body.h"

/* What the engine tells of an exec. */
struct facts {
	bool running;
	int code;
	int64_t pid; /* on the engine's machine; 0: it never ran, or (Podman) has ended */
};

static void look_again(struct docker_command *c);

/* ---- Gone ---- */

static void report_gone_if_known(struct docker_command *c)
{
	if (c->gone && c->phase == DOCKER_ENDED)
		exec_gone(c->base.exec);
}

/* Nobody holds the stream any more: its end, and the code, will come now. */
void docker_exec_found_gone(struct docker_command *c)
{
	c->gone = true;
	c->gone_ns = monotonic_ns();
	if (c->phase == DOCKER_RUNNING) {
		docker_command_drain(c);
		look_again(c);
	}
	report_gone_if_known(c);
}

static void lose(struct docker_command *c, const char *reason, const char *why)
{
	c->phase = DOCKER_ENDED;
	timer_cancel(&c->timer);
	exec_lost(c->base.exec, reason, "%s", why);
}

/* A container that does not run has no processes. Returns whether that is known. */
static bool container_has_stopped(const struct docker_call *call, int err, bool *paused)
{
	cJSON *json = err ? NULL : docker_call_json(call);
	const cJSON *state = cJSON_GetObjectItemCaseSensitive(json, "State");
	bool stopped = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(state, "Running"));

	*paused = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(state, "Paused"));
	cJSON_Delete(json);
	return !err &&
	       (call->answer.status == 404 || (call->answer.status == 200 && stopped && !*paused));
}

bool docker_exec_container_stopped(struct docker_command *c, const struct docker_call *call,
				   int err, bool *paused)
{
	if (!container_has_stopped(call, err, paused))
		return false;
	docker_helper_forget(c->helper);
	if (c->phase == DOCKER_RUNNING)
		lose(c, "container_stopped",
		     "docker: the container was stopped or removed while the command ran");
	docker_exec_found_gone(c);
	return true;
}

static void container_seen(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	AUTO_TEXT struct text why = {0};
	bool paused;

	if (docker_exec_container_stopped(c, call, err, &paused))
		return;
	if (!c->killing) {
		/* It may just be ending, and its helper was the first to go. */
		if (c->asks++ < DOCKER_CHECK_TRIES)
			timer_arm(c->docker->base.loop, &c->timer, DOCKER_LOOK_LAST_MS);
		return;
	}
	if (err || call->answer.status != 200)
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot kill a command");
	else
		err = text_fail(&why, -EBUSY, "docker: cannot kill a command in %s: %s",
				c->docker->container,
				paused ? "it is paused: unpause it" : text_str(&c->ask_why));
	exec_kill_failed(c->base.exec, err, "%s", text_str(&why));
}

static void answered_ask(struct docker_ask *ask, int answer, const char *why)
{
	struct docker_command *c = container_of(ask, struct docker_command, ask);
	AUTO_TEXT struct text path = {0};

	if (answer == 0) {
		docker_exec_found_gone(c);
		return;
	}
	if (answer == 1) {
		if (c->killing)
			exec_kill_failed(c->base.exec, -EBUSY,
					 "docker: processes of the command in %s survive SIGKILL: "
					 "they may wait for a device or a network file system",
					 c->docker->container);
		return;
	}
	text_done(&c->ask_why);
	text_printf(&c->ask_why, "%s", why);
	text_printf(&path, "/containers/%s/json", c->container);
	docker_call_start(&c->call, &c->docker->api, "GET", text_str(&path), NULL, DOCKER_CALL_MS,
			  container_seen);
}

/* Whether anything is left is known by looking; until it is, the command is not gone. */
static void ask_helper(struct docker_command *c, enum docker_ask_kind kind)
{
	if (!c->output.reports) {
		docker_bare_ask(c);
		return;
	}
	c->ask.mark = c->mark;
	c->ask.runs =
		c->phase == DOCKER_RUNNING ||
		(c->result_known && monotonic_ns() - c->eof_ns < DOCKER_TRUST_MS * 1000000ull);
	c->ask.done = answered_ask;
	docker_helper_ask(c->helper, &c->ask, kind);
}

/* ---- The end ---- */

/* Podman forgets the pid of an ended exec: there, only its own words tell a failed start. */
static bool never_ran(const struct docker_command *c, const struct facts *facts)
{
	if (c->output.reports)
		return true;
	if (facts->pid)
		return false;
	return !c->docker->api.podman ||
	       (facts->code >= 125 && facts->code <= 127 &&
		strncmp(docker_output_refusal(&c->output), "Error: ", 7) == 0);
}

static void not_started(struct docker_command *c)
{
	AUTO_TEXT struct text why = {0};
	bool program;
	int err = docker_command_why_not(c, &why, &program);

	if (!program) {
		exec_refused(c->base.exec, err, "%s", text_str(&why));
		return;
	}
	docker_command_no_program(c, err);
	exec_gone(c->base.exec);
}

/* The exec has ended and so has the stream: everything is known but what its children do. */
static void ended(struct docker_command *c, const struct facts *facts)
{
	timer_cancel(&c->timer);
	if (c->phase == DOCKER_STARTING && never_ran(c, facts)) {
		not_started(c);
		return;
	}
	if (c->phase == DOCKER_STARTING)
		docker_command_started(c, 0);
	c->result_known = true;
	if (!c->output.reports && facts->pid && !c->ask.pid)
		docker_bare_leader(c, facts->pid);
	docker_command_exited(c, facts->code);
	if (c->gone)
		exec_gone(c->base.exec);
	else
		c->kind->finish(c);
}

static int parse_facts(const struct docker_call *call, struct facts *ret)
{
	cJSON *json = docker_call_json(call);
	const cJSON *running = cJSON_GetObjectItemCaseSensitive(json, "Running");
	const cJSON *code = cJSON_GetObjectItemCaseSensitive(json, "ExitCode");
	const cJSON *pid = cJSON_GetObjectItemCaseSensitive(json, "Pid");
	int err = cJSON_IsBool(running) ? 0 : -EBADMSG;

	*ret = (struct facts){
		.running = cJSON_IsTrue(running),
		.code = cJSON_IsNumber(code) ? code->valueint : 0,
		.pid = cJSON_IsNumber(pid) ? pid->valueint : 0,
	};
	cJSON_Delete(json);
	return err;
}

static void look_again(struct docker_command *c)
{
	uint64_t last = c->held ? DOCKER_HELD_LOOK_MS : DOCKER_LOOK_LAST_MS;
	uint64_t delay = (uint64_t)DOCKER_LOOK_FIRST_MS << MIN(c->looks, 10u);

	c->looks++;
	timer_arm(c->docker->base.loop, &c->timer, MIN(delay, last));
}

/*
 * It runs no more, and output was held back. Was it not seen to run within the engine's
 * patience, then the end of its output may have been dropped, and nothing tells whether.
 */
static void drain(struct docker_command *c)
{
	if (c->held && !c->output.draining && !c->killing &&
	    monotonic_ns() - c->ran_ns > DOCKER_CUT_MS * 1000000ull)
		c->output_lost = true;
	docker_command_drain(c);
}

static void look_failed(struct docker_command *c, int err)
{
	AUTO_TEXT struct text why = {0};

	if (!c->eof || (c->looks < DOCKER_LOST_LOOKS && !c->gone)) {
		look_again(c);
		return;
	}
	docker_why(c->call.api, err, &c->call.answer, &c->call.body, &why,
		   "docker: the result of the command cannot be had");
	if (c->phase == DOCKER_STARTING)
		docker_command_started(c, 0);
	lose(c, "no_result", text_str(&why));
	report_gone_if_known(c);
}

static void lose_stream(struct docker_command *c)
{
	if (c->phase == DOCKER_STARTING)
		docker_command_started(c, 0);
	lose(c, "stream_closed",
	     "docker: the connection to the engine broke while the command ran");
}

static void looked(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	struct facts facts;

	if (err < 0 || call->answer.status != 200 || parse_facts(call, &facts) < 0) {
		look_failed(c, err);
		return;
	}
	if (c->phase == DOCKER_STARTING && facts.pid && !c->output.reports) {
		c->looks = 0;
		docker_bare_leader(c, facts.pid);
		docker_command_started(c, facts.pid);
	}
	if (!facts.running && c->eof) {
		ended(c, &facts);
		return;
	}
	if (c->broken && c->looks >= DOCKER_LOST_LOOKS) {
		lose_stream(c);
		return;
	}
	if (facts.running)
		c->ran_ns = c->asked_ns;
	else
		drain(c);
	if (c->eof || c->held || c->gone || c->phase == DOCKER_STARTING)
		look_again(c);
}

static void look(struct docker_command *c)
{
	AUTO_TEXT struct text path = {0};

	if (c->call.running)
		return;
	c->asked_ns = monotonic_ns();
	text_printf(&path, "/exec/%s/json", c->id);
	docker_call_start(&c->call, &c->docker->api, "GET", text_str(&path), NULL, DOCKER_CALL_MS,
			  looked);
}

void docker_exec_ended(struct docker_command *c, int err)
{
	if (c->phase == DOCKER_ENDED)
		return;
	if (!docker_command_may_be_whole(c, err)) {
		lose_stream(c);
		return;
	}
	c->broken = err < 0;
	if (c->phase == DOCKER_RUNNING)
		exec_input_closed(c->base.exec, -EPIPE);
	c->looks = 0;
	docker_call_cancel(&c->call);
	look(c);
}

/* ---- The beginning ---- */

void docker_exec_answered(struct docker_command *c, int err)
{
	AUTO_TEXT struct text why = {0};

	if (c->stream.up) {
		/* Without a far shell's report, only the exec's pid tells that it runs. */
		if (!c->output.reports)
			look_again(c);
		return;
	}
	/* Without an answer it may have been started all the same. */
	if (err < 0) {
		docker_command_started(c, 0);
		lose(c, "stream_closed", "docker: the connection to the engine broke at the start");
		return;
	}
	err = docker_why(&c->docker->api, err, &c->stream.answer, &c->stream.body, &why,
			 "docker: cannot start a command");
	if (strstr(text_str(&why), "unable to find"))
		err = -ENOENT;
	exec_refused(c->base.exec, err, "%s", text_str(&why));
}

static void created(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	AUTO_TEXT struct text why = {0};
	AUTO_TEXT struct text path = {0};

	c->id = err || call->answer.status != 201 ? NULL : docker_call_string(call, "Id");
	if (!c->id) {
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot run a command");
		if (err == -ENXIO && c->helper)
			docker_helper_forget(c->helper);
		exec_refused(c->base.exec, err, "%s", text_str(&why));
		return;
	}
	err = text_printf(&path, "/exec/%s/start", c->id);
	if (!err)
		err = docker_command_stream(c, text_str(&path), "{\"Detach\":false,\"Tty\":false}");
	if (err < 0) {
		exec_refused(c->base.exec, err, "docker: out of memory");
		return;
	}
	c->phase = DOCKER_STARTING;
}

int docker_exec_make(struct docker_command *c, struct text *why)
{
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text body = {0};
	int err = 0;

	if (c->output.reports)
		err = docker_command_line(c);
	if (!err)
		err = docker_exec_body(c, &body, why);
	if (!err)
		err = text_printf(&path, "/containers/%s/exec", c->container);
	if (!err)
		docker_call_start(&c->call, &c->docker->api, "POST", text_str(&path), &body,
				  DOCKER_CALL_MS, created);
	text_wipe(&body);
	return err;
}

static void ensured(struct docker_ensure *ensure, int err, const char *sentence)
{
	struct docker_command *c = container_of(ensure, struct docker_command, ensure);
	AUTO_TEXT struct text why = {0};

	if (err < 0) {
		text_printf(&why, "%s", sentence);
	} else {
		c->container = strdup(c->helper->container);
		c->output.reports = c->helper->shell;
		err = c->container ? docker_exec_make(c, &why) : -ENOMEM;
	}
	if (err < 0)
		exec_refused(c->base.exec, err, "%s", text_str(&why));
}

static void finish(struct docker_command *c)
{
	ask_helper(c, c->killing ? DOCKER_ASK_KILL : DOCKER_ASK_CHECK);
}

void docker_exec_timer_fired(struct timer *timer)
{
	struct docker_command *c = container_of(timer, struct docker_command, timer);

	if (c->gone && c->phase == DOCKER_RUNNING &&
	    monotonic_ns() - c->gone_ns >= DOCKER_END_MS * 1000000ull) {
		lose(c, "no_result", "docker: the engine does not say how the command ended");
		report_gone_if_known(c);
		return;
	}
	if (c->phase != DOCKER_ENDED)
		look(c);
	else if (!c->gone && !c->ask.queued)
		c->kind->finish(c);
}

static int begin(struct docker_command *c, struct text *why)
{
	c->timer.fire = docker_exec_timer_fired;
	c->ensure.done = ensured;
	c->helper = docker_helper_of(c->docker, c->spec);
	if (!c->helper)
		return -ENOMEM;
	docker_helper_ensure(c->helper, &c->ensure);
	return 0;
}

/* ---- Killing ---- */

static void refuse_killed(struct task *task)
{
	struct docker_command *c = container_of(task, struct docker_command, task);

	exec_refused(c->base.exec, -ECANCELED, "docker: removed before it was started");
}

static void kill_command(struct docker_command *c)
{
	docker_command_abandon(c);
	if (c->phase == DOCKER_MAKING) {
		docker_ensure_cancel(&c->ensure);
		docker_call_cancel(&c->call);
		c->task.run = refuse_killed;
		loop_defer(c->docker->base.loop, &c->task);
		return;
	}
	/* Until it is known to run, a look around could find nothing just before it begins. */
	if (c->phase == DOCKER_STARTING)
		return;
	if (!c->ask.queued || c->ask.kind != DOCKER_ASK_KILL)
		ask_helper(c, DOCKER_ASK_KILL);
}

static int signal_command(struct docker_command *c, int signo, struct text *why)
{
	return c->output.reports ? docker_helper_signal(c->helper, &c->ask, c->mark, signo)
				 : docker_bare_signal(c, signo, why);
}

const struct docker_kind docker_exec_kind = {
	.begin = begin,
	.answered = docker_exec_answered,
	.ended = docker_exec_ended,
	.finish = finish,
	.kill = kill_command,
	.signal = signal_command,
};

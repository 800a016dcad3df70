#include "e2b_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "e2b_control.h"
#include "log.h"
#include "random_hex.h"

/* ---- The wrapper around the program ---- */

/*
 * $0 is where setsid is, or empty; $1 and on are the command. A session of its own is
 * what signals and kills go to: envd starts all commands in its own. The program is looked for
 * before, so that a missing one has the same line on stderr on every target; the slow look is for
 * the line only.
 */
static const char wrapper_head[] = "case $1 in\n"
				   "*/*) [ -f \"$1\" ] && [ -x \"$1\" ] ;;\n"
				   "*) command -v -- \"$1\" >/dev/null 2>&1 ;;\n"
				   "esac && ";
static const char wrapper_with_setsid[] = "exec \"$0\" -- \"$@\"\n";
static const char wrapper_without[] =
	"{\n"
	"	command -v setsid >/dev/null 2>&1 && exec setsid -- \"$@\"\n"
	"	exec \"$@\"\n"
	"}\n";
static const char wrapper_tail[] = "code=127 reason='command not found'\n"
				   "case $1 in\n"
				   "*/*)\n"
				   "	reason='No such file or directory'\n"
				   "	[ -e \"$1\" ] && code=126 ;;\n"
				   "?*)\n"
				   "	IFS=:\n"
				   "	for dir in $PATH; do\n"
				   "		[ -f \"${dir:-.}/$1\" ] && code=126\n"
				   "	done ;;\n"
				   "esac\n"
				   "[ $code = 126 ] && reason='Permission denied'\n"
				   "printf 'spawnfs: %s: %s\\n' \"$1\" \"$reason\" >&2\n"
				   "exit $code\n";

/* Unsets what the sandbox itself may set. The names are identifiers: see e2b_check(). */
static int add_unset(struct text *t, const struct spec *spec)
{
	int err = 0;

	for (size_t i = 0; err == 0 && i < spec->env_count; i++)
		if (!spec->env[i].value)
			err = text_printf(t, "unset %s\n", spec->env[i].name);
	return err;
}

static int make_script(struct e2b_command *c, const struct e2b_user *user)
{
	int err = 0;

	if (c->spec->stderr_mode == SPEC_STDERR_MERGED)
		err = text_printf(&c->script, "exec 2>&1\n");
	if (err == 0)
		err = add_unset(&c->script, c->spec);
	if (err == 0)
		err = text_printf(&c->script, "%s%s%s", wrapper_head,
				  user->setsid ? wrapper_with_setsid : wrapper_without,
				  wrapper_tail);
	return err;
}

static bool names_variable(const struct spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->env_count; i++)
		if (strcmp(spec->env[i].name, name) == 0)
			return true;
	return false;
}

/* The spec's variables, the mark, and PATH unless the spec says something of it. */
static int make_envs(struct e2b_command *c, const struct e2b_user *user)
{
	size_t count = c->spec->env_count;

	c->envs = calloc(count + 2, sizeof(*c->envs));
	if (!c->envs)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		c->envs[i] = c->spec->env[i];
	c->envs[count++] = (struct spec_variable){.name = (char *)E2B_MARK_NAME, .value = c->mark};
	if (user->path && !names_variable(c->spec, "PATH"))
		c->envs[count++] =
			(struct spec_variable){.name = (char *)"PATH", .value = user->path};
	c->start.envs = c->envs;
	c->start.env_count = count;
	return 0;
}

static int make_args(struct e2b_command *c, const struct e2b_user *user)
{
	size_t count = 0;

	c->args = calloc(c->spec->argc + 3, sizeof(*c->args));
	if (!c->args)
		return -ENOMEM;
	c->args[count++] = "-c";
	c->args[count++] = text_str(&c->script);
	c->args[count++] = user->setsid ? user->setsid : "spawnfs";
	for (size_t i = 0; i < c->spec->argc; i++)
		c->args[count++] = c->spec->argv[i];
	c->start.args = c->args;
	c->start.arg_count = count;
	return 0;
}

static int make_start(struct e2b_command *c, const struct e2b_user *user)
{
	int err = make_script(c, user);

	if (err == 0)
		err = make_envs(c, user);
	if (err == 0)
		err = make_args(c, user);
	c->start.cmd = "/bin/sh";
	c->start.cwd = c->spec->cwd;
	c->start.tag = c->tag;
	c->start.input = c->spec->stdin_mode != SPEC_STDIN_NONE;
	return err;
}

/* What only the request needed. */
static void drop_start(struct e2b_command *c)
{
	text_done(&c->script);
	free(TAKE_PTR(c->args));
	free(TAKE_PTR(c->envs));
}

/* ---- What is told ---- */

void e2b_command_refuse(struct e2b_command *c, int err, const char *sentence)
{
	c->phase = E2B_FINISHED;
	exec_refused(c->base.exec, err, "%s", sentence);
}

void e2b_command_lose(struct e2b_command *c, const char *reason, const char *sentence)
{
	c->phase = E2B_ENDED;
	c->number_ns = monotonic_ns();
	timer_cancel(&c->timer);
	e2b_stream_cancel(&c->stream);
	if (c->leader_told) {
		/* Only what children still wrote is lost, which is theirs: they go on. */
		exec_output_end(c->base.exec, STREAM_STDOUT);
		exec_output_end(c->base.exec, STREAM_STDERR);
		e2b_end_check(c);
		return;
	}
	exec_lost(c->base.exec, reason, "%s", sentence);
}

static void began(struct e2b_command *c, uint32_t pid)
{
	const struct settings *settings = c->base.backend->settings;
	uint64_t now = monotonic_ns();

	c->phase = E2B_RUNNING;
	c->pid = pid;
	c->pace_ns = MIN(now - c->started_ns, settings->drain_quiet_ms * 1000000) / 2;
	c->started_ns = now;
	c->output_ns = c->started_ns;
	drop_start(c);
	exec_started(c->base.exec, pid);
}

/* ---- A start without its word ---- */

/*
 * The answer to Start is lost, or is a gateway's, which may have passed the request on before: it
 * ran, or runs, or does neither. Its process may be found by its tag, and what is found no more may
 * have ended; so it is never told that it did not start. What it wrote until now is gone, so there
 * is no result in any case; the exec kills what there may be, by its mark.
 */
static void lose_start(struct e2b_command *c, uint32_t pid)
{
	uint64_t waited_ms = (monotonic_ns() - c->started_ns) / 1000000;

	c->start_unsure = true;
	/* What has been under way for long may come as late again. */
	c->unsure_ms = MAX(waited_ms, (uint64_t)E2B_UNSURE_MS);
	began(c, pid);
	e2b_command_lose(c, "stream_closed", c->start_fault.text);
}

static void lookup_done(struct e2b_unary *u, const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(u, struct e2b_command, lookup);
	int64_t pid = fault ? 0 : e2b_list_find(text_str(&u->answer), u->answer.len, c->tag);

	text_done(&u->answer);
	lose_start(c, pid > 0 ? (uint32_t)pid : 0);
}

static void look_up(struct e2b_command *c, const struct e2b_fault *fault)
{
	c->start_fault = *fault;
	c->lookup.sandbox = c->sandbox;
	c->lookup.request.method = E2B_LIST;
	c->lookup.limit_ms = E2B_CALL_LIMIT_MS;
	c->lookup.done = lookup_done;
	if (e2b_unary_begin(&c->lookup) < 0)
		lose_start(c, 0);
}

/* Nothing of its stream is believed or waited for any more. */
static void give_up_start(struct e2b_command *c, struct e2b_fault *fault)
{
	timer_cancel(&c->timer);
	e2b_stream_cancel(&c->stream);
	look_up(c, fault);
}

void e2b_command_start_expired(struct e2b_command *c)
{
	struct e2b_fault fault = {.err = -ETIMEDOUT, .unsure = true};

	snprintf(fault.text, sizeof(fault.text), "e2b: sandbox %s did not answer Start within %d s",
		 c->sandbox->id, E2B_START_LIMIT_MS / 1000);
	give_up_start(c, &fault);
}

/* ---- Events ---- */

static bool take_output(struct e2b_command *c, enum stream_id id, struct payload *payload)
{
	struct e2b_fault fault = {
		.err = -EPROTO,
		.unsure = true,
		.text = "e2b: the stream of Start brought output before its first event",
	};

	if (c->phase != E2B_STARTING)
		return e2b_output_event(c, id, payload);
	give_up_start(c, &fault);
	return true;
}

static bool stream_event(struct e2b_stream *stream, struct e2b_event *event)
{
	struct e2b_command *c = container_of(stream, struct e2b_command, stream);

	switch (event->kind) {
	case E2B_EVENT_START:
		if (c->phase == E2B_STARTING) {
			c->job.pid = event->pid;
			e2b_end_watch(c);
			began(c, event->pid);
			/* Until now it was not to be found. */
			if (c->kill_asked)
				e2b_kill(&c->base);
		}
		return true;
	case E2B_EVENT_STDOUT:
		return take_output(c, STREAM_STDOUT, &event->payload);
	case E2B_EVENT_STDERR:
		return take_output(c, STREAM_STDERR, &event->payload);
	case E2B_EVENT_END:
		if (c->phase == E2B_RUNNING)
			e2b_end_event(c, event);
		return true;
	case E2B_EVENT_OTHER:
		return true;
	}
	return true;
}

static void stream_done(struct e2b_stream *stream, const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(stream, struct e2b_command, stream);
	static const struct e2b_fault no_start = {
		.err = -EIO,
		.unsure = true,
		.text = "e2b: the stream of Start ended without its first event",
	};

	if (c->phase == E2B_STARTING) {
		timer_cancel(&c->timer);
		fault = fault ? fault : &no_start;
		if (fault->unsure)
			look_up(c, fault);
		else
			e2b_command_refuse(c, fault->err, fault->text);
	} else if (c->phase == E2B_RUNNING) {
		e2b_command_lose(c, "stream_closed",
				 fault ? fault->text
				       : "e2b: the stream of Start ended without an end event");
	}
}

/* ---- The start ---- */

static void sandbox_ready(struct e2b_waiter *w, const struct e2b_user *user,
			  const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(w, struct e2b_command, waiter);

	if (fault) {
		e2b_command_refuse(c, fault->err, fault->text);
		return;
	}
	c->stream.sandbox = c->sandbox;
	c->stream.start = &c->start;
	c->stream.user = c->spec->user;
	c->stream.event = stream_event;
	c->stream.done = stream_done;
	if (make_start(c, user) < 0 || e2b_stream_begin(&c->stream) < 0) {
		e2b_command_refuse(c, -ENOMEM, "e2b: no memory");
		return;
	}
	c->phase = E2B_STARTING;
	c->started_ns = monotonic_ns();
	timer_arm(c->base.backend->loop, &c->timer, E2B_START_LIMIT_MS);
}

static int make_mark(struct e2b_command *c)
{
	int err = random_hex(c->mark, E2B_MARK_LEN);

	if (err < 0)
		return err;
	snprintf(c->tag, sizeof(c->tag), "spawnfs-%s", c->mark);
	return 0;
}

int e2b_command_start(struct backend *backend, struct exec *exec, const struct spec *spec,
		      struct command **ret, struct text *why)
{
	struct e2b *e2b = e2b_of(backend);
	struct e2b_command *c = calloc(1, sizeof(*c));

	if (c)
		c->sandbox = e2b->sandbox ? e2b->sandbox : e2b_sandbox_get(e2b, spec->sandbox);
	if (!c || !c->sandbox || make_mark(c) < 0) {
		free(c);
		return text_fail(why, -ENOMEM, "e2b: no memory");
	}
	c->base = (struct command){.exec = exec, .backend = backend};
	c->spec = spec;
	list_init(&c->link);
	e2b_output_init(c);
	e2b_input_init(c);
	e2b_end_init(c);
	c->waiter.user = spec->user;
	c->waiter.ready = sandbox_ready;
	c->sandbox->commands++;
	e2b_renewal_wake(c->sandbox);
	e2b_sandbox_wait(c->sandbox, &c->waiter);
	*ret = &c->base;
	return 0;
}

/* ---- Release ---- */

static void command_free(struct e2b_command *c)
{
	list_remove(&c->link);
	free(c);
}

void e2b_commands_free(struct e2b *e2b)
{
	list_for_each_safe (c, &e2b->released, struct e2b_command, link)
		command_free(c);
}

/* Freed a little later: the report that led here came from a callback of one of its calls. */
void e2b_command_release(struct command *command)
{
	struct e2b_command *c = e2b_command_of(command);
	struct e2b *e2b = c->sandbox->e2b;

	c->phase = E2B_FINISHED;
	c->sandbox->commands--;
	if (!list_empty(&c->waiter.link))
		e2b_waiter_cancel(&c->waiter);
	e2b_stream_cancel(&c->stream);
	e2b_unary_cancel(&c->lookup);
	e2b_output_done(c);
	e2b_input_done(c);
	e2b_end_done(c);
	e2b_signal_forget(c);
	drop_start(c);
	list_append(&e2b->released, &c->link);
	loop_defer(e2b->base.loop, &e2b->free_task);
}

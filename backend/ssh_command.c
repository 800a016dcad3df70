/*
 * A command: from the wait for a channel to the certainty that nothing of it is left.
 *
 * What comes from the channel is only noted; step() is the one place that decides what follows from
 * all that is known, and the one that reports.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "exec.h"
#include "log.h"
#include "ssh.h"

/* Pongs without data in between, after which nothing is left in the host's pipes. */
#define SILENT_PONGS 3

static const struct ssh_channel_events channel_events;

void ssh_command_step(struct ssh_command *c)
{
	loop_defer(c->ssh->backend.loop, &c->step);
}

/* ---- The start ---- */

/* It never ran, and never will. */
static void refuse(struct ssh_command *c, int err)
{
	if (c->refusal)
		return;
	c->refusal = err;
	ssh_command_step(c);
}

void ssh_command_no_link(struct ssh_command *c, int err, const char *why)
{
	text_fail(&c->why, err, "%s: no connection: %s", c->ssh->options.host, why);
	refuse(c, err);
}

void ssh_command_open(struct ssh_command *c, struct ssh_link *link)
{
	AUTO_TEXT struct text command = {0};
	int err;

	memcpy(c->mark, c->helper->prefix, SSH_PREFIX_HEX);
	ssh_random_hex(c->mark + SSH_PREFIX_HEX, FAR_MARK_HEX - SSH_PREFIX_HEX);
	c->stage = SSH_OPENING;
	err = far_ready_command(&command, c->mark);
	err = err ? err
		  : ssh_channel_open(link, &channel_events, c, text_str(&command), &c->channel);
	if (err < 0) {
		text_fail(&c->why, err, "no memory");
		refuse(c, err);
	}
}

static void send_line(struct ssh_command *c)
{
	if (c->line_at == c->line.len)
		return;
	c->line_at +=
		ssh_channel_send(c->channel, c->line.data + c->line_at, c->line.len - c->line_at);
	if (c->line_at < c->line.len)
		return;
	text_wipe(&c->line);
	c->line_at = 0;
	if (c->spec->stdin_mode == SPEC_STDIN_NONE)
		ssh_channel_eof(c->channel);
}

/* Not before: what a login shell takes from its input is not ours, and is no secret of ours. */
void ssh_command_ready(struct ssh_command *c, const char *pid)
{
	int err;

	c->pid = atoll(pid);
	if (c->killed)
		return;
	err = far_tell(&c->line, c->mark);
	err = err ? err : far_start(&c->line, c->spec);
	if (err < 0) {
		text_fail(&c->why, err, "no memory");
		refuse(c, err);
		return;
	}
	c->stage = SSH_STARTING;
	send_line(c);
}

void ssh_command_started(struct ssh_command *c, const char *ticks)
{
	snprintf(c->ticks, sizeof(c->ticks), "%.*s", (int)strspn(ticks, "0123456789"), ticks);
	c->stage = SSH_RUNNING;
	exec_started(c->command.exec, c->pid);
}

void ssh_command_refused(struct ssh_command *c, const char *what, const char *detail)
{
	const char *host = c->ssh->options.host;
	int err;

	if (strcmp(what, "cwd") == 0) {
		err = strcmp(detail, "ENOENT") == 0    ? -ENOENT
		      : strcmp(detail, "ENOTDIR") == 0 ? -ENOTDIR
						       : -EACCES;
		text_fail(&c->why, err, "spec: key \"cwd\": %s on %s: %s", c->spec->cwd, host,
			  strerror(-err));
	} else {
		err = text_fail(&c->why, -EINVAL,
				"spec: key \"env\": the /bin/sh of %s cannot set %s to that value",
				host, detail);
	}
	refuse(c, err);
}

/* The channel has ended before the command began. */
static void refuse_unstarted(struct ssh_command *c)
{
	const char *host = c->ssh->options.host;

	if (c->killed) {
		text_fail(&c->why, 0, "killed before it started");
		refuse(c, -ECANCELED);
	} else if (c->stage == SSH_OPENING) {
		text_fail(&c->why, 0, "%s: the login shell did not run /bin/sh", host);
		ssh_stream_noise(c, &c->why);
		refuse(c, -EACCES);
	} else {
		text_fail(&c->why, 0, "%s: /bin/sh ended before the command began", host);
		refuse(c, -EIO);
	}
}

/* Nothing of it can have begun: another connection is as good. */
static void start_again(struct ssh_command *c)
{
	for (int i = 0; i < STREAM_COUNT; i++) {
		text_done(&c->streams[i].kept);
		c->streams[i] = (struct ssh_stream){0};
	}
	text_wipe(&c->line);
	c->line_at = 0;
	c->pid = 0;
	c->helper = NULL;
	c->stage = SSH_WAITING;
	ssh_pool_queue(c->ssh, c);
}

/* Whether the line that starts it may have arrived as a whole. */
static bool may_run(const struct ssh_command *c)
{
	return c->stage == SSH_RUNNING || (c->stage == SSH_STARTING && !c->line.len);
}

/* ---- The end ---- */

static void report_end(struct ssh_command *c)
{
	struct exec *exec = c->command.exec;

	c->end_reported = true;
	if (c->signo > 0)
		exec_signaled(exec, c->signo);
	else if (c->signo == 0)
		exec_exited(exec, c->code);
	else
		exec_lost(exec, "unknown_signal",
			  "the command was ended by a signal that the server of %s does not name",
			  c->ssh->options.host);
}

static bool push_all(struct ssh_command *c)
{
	bool out = ssh_stream_push(c, STREAM_STDOUT);

	return ssh_stream_push(c, STREAM_STDERR) && out;
}

static void report_eof(struct ssh_command *c)
{
	c->eof_reported = true;
	exec_output_end(c->command.exec, STREAM_STDOUT);
	exec_output_end(c->command.exec, STREAM_STDERR);
}

/*
 * The status comes when the leader is reaped, and what it wrote just before may still be
 * in the pipes. Their end tells, but a background child can hold them open: then pings do. The
 * server answers each in a turn of its own, in which it reads the pipes too: after
 * some answers with nothing in between they were empty.
 */
static void await_output(struct ssh_command *c)
{
	if (c->silence >= SILENT_PONGS) {
		report_end(c);
	} else if (!c->pinged) {
		c->pinged = true;
		c->data_since = false;
		ssh_channel_ping(c->channel);
	}
}

static void step_end(struct ssh_command *c)
{
	bool empty;

	/* From here on nobody's reading is waited for. */
	if (c->ended && !c->end_reported)
		ssh_stream_overdraw(c);
	empty = push_all(c);
	if (c->eof && empty && !c->eof_reported)
		report_eof(c);
	if (c->ended && !c->end_reported && empty) {
		if (c->eof)
			report_end(c);
		else
			await_output(c);
	}
	/* Both were cut off after the end: a child that still writes gets SIGPIPE. */
	if (c->end_reported && c->channel && c->streams[STREAM_STDOUT].cut &&
	    c->streams[STREAM_STDERR].cut) {
		ssh_channel_release(TAKE_PTR(c->channel));
		c->closed = true;
	}
}

/* Nothing is left, and the channel has ended or is not waited for. */
static void finish(struct ssh_command *c)
{
	timer_cancel(&c->patience);
	ssh_stream_overdraw(c);
	if (c->ended && !c->end_reported)
		report_end(c);
	exec_gone(c->command.exec);
}

static void step(struct task *task)
{
	struct ssh_command *c = container_of(task, struct ssh_command, step);

	if (c->refusal) {
		exec_refused(c->command.exec, c->refusal, "%s", text_str(&c->why));
		return;
	}
	if (c->stage != SSH_RUNNING)
		return;
	step_end(c);
	if (c->gone && (c->closed || !timer_armed(&c->patience))) {
		finish(c);
		return;
	}
	/* The end of the leader is not the end of all: whether it was is asked. */
	if (c->closed && c->end_reported && !c->gone && list_empty(&c->errand.link) && !c->asked) {
		c->asked = true;
		c->errand.kind = SSH_CHECK;
		c->errand.alone = false;
		ssh_pool_ask(c->ssh, c->helper, &c->errand);
	}
}

static void on_patience(struct timer *timer)
{
	ssh_command_step(container_of(timer, struct ssh_command, patience));
}

static void note_gone(struct ssh_command *c)
{
	c->gone = true;
	/* What they wrote last is on its way, and so is the status. */
	if (!c->closed)
		timer_arm(c->ssh->backend.loop, &c->patience, SSH_CLOSE_MS);
	ssh_command_step(c);
}

static void report_survivors(struct ssh_command *c, enum ssh_answer answer)
{
	struct exec *exec = c->command.exec;
	const char *host = c->ssh->options.host;

	if (answer == SSH_SOME_LEFT)
		exec_kill_failed(exec, -EBUSY,
				 "%s: processes of the command are still there after SIGKILL: they "
				 "hang in the kernel, or belong to another user",
				 host);
	else if (answer == SSH_BLIND)
		exec_kill_failed(exec, -EOPNOTSUPP,
				 "%s: the host has no readable /proc: what runs there cannot be "
				 "found",
				 host);
	else
		exec_kill_failed(
			exec, -EHOSTUNREACH, "%s cannot be asked to kill the command: %s", host,
			c->ssh->failure.len ? text_str(&c->ssh->failure) : "no connection");
}

static void on_errand_done(struct ssh_errand *errand, enum ssh_answer answer)
{
	struct ssh_command *c = container_of(errand, struct ssh_command, errand);

	if (answer == SSH_NONE_LEFT) {
		/* Before the start it was only a shell: the end of the channel follows. */
		if (c->stage == SSH_RUNNING)
			note_gone(c);
	} else if (errand->kind == SSH_KILL) {
		report_survivors(c, answer);
	} else if (answer == SSH_NO_ANSWER) {
		c->asked = false;
	}
}

/* ---- Reports of the channel ---- */

static void on_refused(void *owner, bool full, const char *why)
{
	struct ssh_command *c = owner;
	struct ssh_link *link = c->channel->link;
	struct ssh_helper *h = c->helper;

	c->channel = NULL;
	if (c->killed || c->refusal)
		return;
	if (full && link->opened <= 1 && ssh_helper_usable(h))
		c->ssh->helpers_apart = true;
	if (full && (link->opened || h->channel)) {
		start_again(c);
		return;
	}
	text_fail(&c->why, 0, "%s: no session: %s", c->ssh->options.host, why);
	refuse(c, -EACCES);
}

static void on_data(void *owner, enum stream_id stream, const char *data, size_t len)
{
	ssh_stream_data(owner, stream, data, len);
}

static void on_room(void *owner)
{
	struct ssh_command *c = owner;

	if (c->line.len)
		send_line(c);
	else if (c->stage == SSH_RUNNING && ssh_channel_can_send(c->channel))
		exec_input_ready(c->command.exec);
}

static void on_input_closed(void *owner)
{
	struct ssh_command *c = owner;

	if (c->stage == SSH_RUNNING)
		exec_input_closed(c->command.exec, -EPIPE);
}

static void on_exited(void *owner, int code)
{
	struct ssh_command *c = owner;

	c->ended = true;
	c->code = code;
	ssh_command_step(c);
}

static void on_signaled(void *owner, const char *name)
{
	struct ssh_command *c = owner;
	int signo = signal_parse(name);

	c->ended = true;
	c->signo = signo > 0 ? signo : -1;
	ssh_command_step(c);
}

static void on_eof(void *owner)
{
	struct ssh_command *c = owner;

	c->eof = true;
	ssh_command_step(c);
}

static void on_pong(void *owner)
{
	struct ssh_command *c = owner;

	c->pinged = false;
	c->silence = c->data_since ? 0 : c->silence + 1;
	ssh_command_step(c);
}

static void on_closed(void *owner)
{
	struct ssh_command *c = owner;

	c->channel = NULL;
	c->eof = true;
	c->closed = true;
	if (c->refusal)
		return;
	if (c->stage != SSH_RUNNING) {
		refuse_unstarted(c);
		return;
	}
	if (!c->ended && !c->end_reported) {
		c->end_reported = true;
		exec_lost(c->command.exec, "no_status",
			  "%s: the server ended the session without a result",
			  c->ssh->options.host);
	}
	ssh_command_step(c);
}

/*
 * What the connection took with it: nothing, when the end had come; the result, when not. A command
 * that cannot have begun waits for another connection; it is never run twice.
 */
static void on_lost(void *owner, const char *why)
{
	struct ssh_command *c = owner;
	bool complete = c->ended && c->eof;

	c->channel = NULL;
	c->helper = NULL;
	if (c->refusal)
		return;
	if (!may_run(c)) {
		start_again(c);
		return;
	}
	c->closed = true;
	c->lost = true;
	if (c->stage != SSH_RUNNING) {
		c->stage = SSH_RUNNING;
		exec_started(c->command.exec, c->pid);
	}
	if (!complete && !c->end_reported) {
		c->end_reported = true;
		exec_lost(c->command.exec, "connection_lost", "%s: the connection was lost: %s",
			  c->ssh->options.host, why);
	}
	c->eof = true;
	ssh_command_step(c);
}

static const struct ssh_channel_events channel_events = {
	.refused = on_refused,
	.data = on_data,
	.room = on_room,
	.input_closed = on_input_closed,
	.exited = on_exited,
	.signaled = on_signaled,
	.eof = on_eof,
	.pong = on_pong,
	.closed = on_closed,
	.lost = on_lost,
};

/* ---- Calls ---- */

int ssh_command_start(struct backend *backend, struct exec *exec, const struct spec *spec,
		      struct command **ret, struct text *why)
{
	struct ssh_command *c = calloc(1, sizeof(*c));

	if (!c)
		return text_fail(why, -ENOMEM, "no memory");
	c->command = (struct command){.exec = exec, .backend = backend};
	c->ssh = container_of(backend, struct ssh, backend);
	c->spec = spec;
	list_init(&c->link);
	list_init(&c->errand.link);
	c->errand.done = on_errand_done;
	c->patience.fire = on_patience;
	task_init(&c->step, step);
	*ret = &c->command;
	ssh_pool_queue(c->ssh, c);
	return 0;
}

static struct ssh_command *of(struct command *command)
{
	return container_of(command, struct ssh_command, command);
}

ssize_t ssh_command_write(struct command *command, const void *data, size_t len)
{
	struct ssh_command *c = of(command);

	if (!c->channel)
		return -EPIPE;
	return (ssize_t)ssh_channel_send(c->channel, data, len);
}

bool ssh_command_can_write(struct command *command)
{
	struct ssh_command *c = of(command);

	return !c->channel || ssh_channel_can_send(c->channel);
}

void ssh_command_close_input(struct command *command)
{
	struct ssh_command *c = of(command);

	if (c->channel)
		ssh_channel_eof(c->channel);
}

void ssh_command_resume(struct command *command, enum stream_id stream)
{
	ssh_command_step(of(command));
}

void ssh_command_close_output(struct command *command, enum stream_id stream)
{
	struct ssh_command *c = of(command);

	ssh_stream_cut(c, stream);
	ssh_command_step(c);
}

int ssh_command_signal(struct command *command, int signo, struct text *why)
{
	struct ssh_command *c = of(command);
	int err;

	if (c->stage != SSH_RUNNING || c->ended)
		return text_fail(why, -ESRCH, "ctl: the command does not run");
	err = ssh_helper_signal(c->helper, c, signo);
	if (err < 0)
		return text_fail(why, err, "ctl: %s cannot be asked to send a signal now",
				 c->ssh->options.host);
	return 0;
}

void ssh_command_kill(struct command *command)
{
	struct ssh_command *c = of(command);

	c->killed = true;
	if (c->refusal || c->gone)
		return;
	if (!may_run(c)) {
		/* A shell whose line does not come to its end runs nothing of it. */
		list_remove(&c->link);
		if (c->channel)
			ssh_channel_release(TAKE_PTR(c->channel));
		text_fail(&c->why, 0, "killed before it started");
		refuse(c, -ECANCELED);
		return;
	}
	c->errand.kind = SSH_KILL;
	c->errand.alone = false;
	ssh_pool_ask(c->ssh, c->helper, &c->errand);
}

void ssh_command_release(struct command *command)
{
	struct ssh_command *c = of(command);

	list_remove(&c->link);
	list_remove(&c->errand.link);
	timer_cancel(&c->patience);
	task_cancel(&c->step);
	if (c->channel)
		ssh_channel_release(c->channel);
	for (int i = 0; i < STREAM_COUNT; i++)
		text_done(&c->streams[i].kept);
	text_wipe(&c->line);
	text_done(&c->why);
	free(c);
}

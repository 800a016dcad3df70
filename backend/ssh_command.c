/*
 * A command: its start, what its channel reports, and its calls. What comes from the channel is
 * mostly noted; what follows from it is decided in ssh_end.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "exec.h"
#include "log.h"
#include "random_hex.h"
#include "ssh.h"

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
	err = random_hex(c->mark + SSH_PREFIX_HEX, FAR_MARK_HEX - SSH_PREFIX_HEX);
	c->stage = SSH_OPENING;
	err = err ? err : far_ready_command(&command, c->mark);
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
	if (c->helper)
		c->place = c->helper->place;
	if (c->killed)
		return;
	err = far_tell(&c->line, c->mark);
	/* Where each session has processes of its own, no kill would reach it. */
	if (!err && c->helper && c->helper->sees)
		err = far_near(&c->line, c->helper->pid, c->helper->ticks);
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
	c->started_ns = monotonic_ns();
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
	} else if (strcmp(what, "apart") == 0) {
		err = text_fail(&c->why, -EOPNOTSUPP,
				"%s: each session of the host has processes of its own that no "
				"other sees: a command could not be killed; try via:ssh",
				host);
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
	ssh_helper_leave(c);
	c->stage = SSH_WAITING;
	ssh_pool_queue(c->ssh, c);
}

/* A command whose start is what breaks connections would break each that is made. */
static void lose_start(struct ssh_command *c, const char *why)
{
	if (c->tries++ < SSH_START_TRIES) {
		start_again(c);
		return;
	}
	text_fail(&c->why, 0, "%s: the connection broke each time the command was to start: %s",
		  c->ssh->options.host, why);
	refuse(c, -EHOSTUNREACH);
}

/* Whether the line that starts it may have arrived as a whole. */
static bool may_run(const struct ssh_command *c)
{
	return c->stage == SSH_RUNNING || (c->stage == SSH_STARTING && !c->line.len);
}

void ssh_command_note_held(struct ssh_command *c, uint64_t ns)
{
	uint64_t ticks = strtoull(c->ticks, NULL, 10);

	if (c->held_ns)
		return;
	c->held_ns = ns;
	c->until = far_until(ticks, c->started_ns, ns);
}

/* ---- Reports of the channel ---- */

static void on_refused(void *owner, bool full, const char *why)
{
	struct ssh_command *c = owner;
	struct ssh_link *link = c->channel->link;
	struct ssh_helper *h = link->owner;

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
	ssh_command_note_held(c, monotonic_ns());
	c->code = code;
	ssh_command_step(c);
}

static void on_signaled(void *owner, const char *name)
{
	struct ssh_command *c = owner;
	int signo = signal_parse(name);

	c->ended = true;
	ssh_command_note_held(c, monotonic_ns());
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
	ssh_command_note_held(c, monotonic_ns());
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
	uint64_t heard_ns = c->channel ? c->channel->link->heard_ns : 0;

	c->channel = NULL;
	ssh_helper_leave(c);
	if (c->refusal)
		return;
	if (!may_run(c)) {
		lose_start(c, why);
		return;
	}
	c->closed = true;
	c->lost = true;
	ssh_command_note_held(c, heard_ns);
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

void ssh_command_lose(struct ssh_command *c, const char *why)
{
	ssh_channel_release(TAKE_PTR(c->channel));
	on_lost(c, why);
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
	list_init(&c->of_helper);
	list_init(&c->errand.link);
	c->errand.done = ssh_end_errand_done;
	c->patience.fire = ssh_end_patience;
	task_init(&c->step, ssh_end_step);
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
	ssh_helper_leave(c);
	list_remove(&c->errand.link);
	timer_cancel(&c->patience);
	task_cancel(&c->step);
	if (c->channel)
		ssh_channel_release(c->channel);
	for (int i = 0; i < STREAM_COUNT; i++)
		text_done(&c->streams[i].kept);
	text_wipe(&c->line);
	text_done(&c->survivors);
	text_done(&c->why);
	free(c);
}

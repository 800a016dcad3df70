/*
 * A command behind a prefix: its start, and what its call tells. Marks and ends of streams only
 * change the facts; what follows from them is decided in via_judge.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "random_hex.h"
#include "via.h"

void via_keep_noise(struct text *noise, const char *data, size_t len)
{
	size_t room = VIA_NOISE_BYTES - MIN(noise->len, VIA_NOISE_BYTES);

	/* It is only there for a sentence: without memory there is none. */
	text_append(noise, data, MIN(len, room));
}

/* ---- Marks ---- */

static void take_start(struct via_command *c, const char *words)
{
	long long pid;

	if (c->phase != VIA_STARTING)
		return;
	if (sscanf(words, "%23s %lld", c->place.ticks, &pid) != 2)
		return;
	c->phase = VIA_RUNNING;
	c->place.pid = pid;
	exec_started(c->base.exec, pid);
	call_resume(&c->call, STREAM_STDOUT);
}

static void take_place(struct via_command *c, const char *words)
{
	char boot[sizeof(c->place.boot)];
	char space[sizeof(c->place.space)];
	int shell;

	c->place_told = true;
	if (sscanf(words, "%63s %63s %d", boot, space, &shell) != 3)
		return;
	/* The far side has no way to tell. */
	if (strcmp(boot, "-") == 0 || strcmp(space, "-") == 0)
		return;
	strcpy(c->place.boot, boot);
	strcpy(c->place.space, space);
	c->own_space = via_space_ends_with(&c->place, c->call.pid);
	c->dies_with_call = via_dies_with(&c->place, shell, c->call.pid);
}

/*
 * The leader has ended. The other stream may be held back with the same mark in it, and either
 * with the one behind it (take_left()): they get the room that is due to an ended command.
 */
static void take_end(struct via_command *c, enum stream_id stream, bool signaled, const char *words)
{
	enum stream_id other = stream == STREAM_STDOUT ? STREAM_STDERR : STREAM_STDOUT;
	char *rest;
	long code = strtol(words, &rest, 10);

	/* Not a status: then there is none, and the call's end will be a loss. */
	if (rest == words || *rest || code < 0 || code > 255)
		return;
	c->signaled = signaled;
	c->code = (int)code;
	c->end_seen[stream] = true;
	if (c->end_seen[other] || c->phase != VIA_RUNNING)
		return;
	for (int i = 0; i < STREAM_COUNT; i++)
		exec_output_overdraw(c->base.exec, (enum stream_id)i, DRAIN_ALLOWANCE);
	call_resume(&c->call, other);
}

/* WHAT PID: the directory's error, or the variable. */
static void take_refusal(struct via_command *c, const char *words, bool variable)
{
	char what[sizeof(c->refused_variable)] = "";

	sscanf(words, "%63s", what);
	if (variable) {
		c->refusal = -EINVAL;
		strcpy(c->refused_variable, what);
	} else {
		c->refusal = strcmp(what, "ENOENT") == 0    ? -ENOENT
			     : strcmp(what, "ENOTDIR") == 0 ? -ENOTDIR
							    : -EACCES;
	}
}

static void take_left(struct via_command *c, enum stream_id stream, const char *words)
{
	enum via_left left = strcmp(words, "none") == 0	  ? VIA_LEFT_NONE
			     : strcmp(words, "some") == 0 ? VIA_LEFT_SOME
			     : strcmp(words, "held") == 0 ? VIA_LEFT_HELD
							  : VIA_LEFT_UNKNOWN;

	if (stream == STREAM_STDERR)
		c->left = left;
	c->complete[stream] = left == VIA_LEFT_NONE || left == VIA_LEFT_SOME;
}

/* The words after key and a space, or NULL. */
static const char *after(const char *words, const char *key)
{
	size_t len = strlen(key);

	return strncmp(words, key, len) == 0 && words[len] == ' ' ? words + len + 1 : NULL;
}

static void mark(struct call *call, enum stream_id stream, const char *words)
{
	struct via_command *c = container_of(call, struct via_command, call);
	const char *rest;

	if (strcmp(words, "ready") == 0) {
		c->mixed |= c->ready[stream] && stream == STREAM_STDOUT;
		c->ready[stream] = true;
	} else if ((rest = after(words, "exit"))) {
		take_end(c, stream, false, rest);
	} else if ((rest = after(words, "signal"))) {
		take_end(c, stream, true, rest);
	} else if ((rest = after(words, "left"))) {
		take_left(c, stream, rest);
	} else if (stream != STREAM_STDERR) {
		log_debug("via: unexpected mark on stdout");
	} else if ((rest = after(words, "start"))) {
		take_start(c, rest);
	} else if ((rest = after(words, "place"))) {
		take_place(c, rest);
	} else if ((rest = after(words, "cwd"))) {
		take_refusal(c, rest, false);
	} else if ((rest = after(words, "env"))) {
		take_refusal(c, rest, true);
	}
}

/* ---- Streams ---- */

/* Between the supervisor's first word and the start only stderr has anything to say. */
static bool has_room(struct call *call, enum stream_id stream)
{
	struct via_command *c = container_of(call, struct via_command, call);

	if (c->phase < VIA_RUNNING)
		return stream == STREAM_STDERR || c->phase == VIA_CALLING;
	return c->cut[stream] || c->complete[stream] || exec_output_has_room(c->base.exec, stream);
}

/*
 * As much as the stream has room for, to the byte. What comes behind the mark of the end is the
 * command's children's, until the far side has said that none has the stream; then the prefix's.
 */
static size_t pass_on(struct via_command *c, enum stream_id stream, const char *data, size_t len)
{
	size_t done = 0;

	if (c->cut[stream] || c->complete[stream])
		return len;
	while (done < len) {
		void *room;
		size_t n = MIN(exec_output_reserve(c->base.exec, stream, &room), len - done);

		if (!n)
			break;
		memcpy(room, data + done, n);
		exec_output_commit(c->base.exec, stream, n);
		done += n;
	}
	return done;
}

/* What comes before the command does is the prefix's own, and never in the command's output. */
static size_t bytes(struct call *call, enum stream_id stream, const char *data, size_t len)
{
	struct via_command *c = container_of(call, struct via_command, call);
	bool merged = c->spec->stderr_mode == SPEC_STDERR_MERGED && stream == STREAM_STDERR;

	if (c->phase >= VIA_RUNNING && !merged)
		return pass_on(c, stream, data, len);
	via_keep_noise(&c->noise, data, len);
	return len;
}

static void input(struct call *call, int err)
{
	struct via_command *c = container_of(call, struct via_command, call);

	if (err < 0)
		exec_input_closed(c->base.exec, err);
	else
		exec_input_ready(c->base.exec);
}

static void changed(struct call *call)
{
	via_judge(container_of(call, struct via_command, call));
}

static const struct call_events events = {
	.mark = mark,
	.has_room = has_room,
	.bytes = bytes,
	.input = input,
	.changed = changed,
};

/* ---- Start and release ---- */

void via_close_output(struct command *command, enum stream_id stream)
{
	struct via_command *c = container_of(command, struct via_command, base);

	c->cut[stream] = true;
	call_resume(&c->call, stream);
	loop_defer(command->backend->loop, &c->judge_task);
}

static void judge_later(struct task *task)
{
	via_judge(container_of(task, struct via_command, judge_task));
}

static void command_free(struct via_command *c)
{
	lease_leave(c);
	text_done(&c->noise);
	explicit_bzero(c->secret, sizeof(c->secret));
	free(c);
}

int via_start(struct backend *backend, struct exec *exec, const struct spec *spec,
	      struct command **ret, struct text *why)
{
	struct via *via = container_of(backend, struct via, base);
	const struct call_setup setup = {backend->loop, via->keeper, via->prefix};
	struct via_command *c = calloc(1, sizeof(*c));
	AUTO_TEXT struct text line = {0};
	int err;

	if (!c)
		return text_fail(why, -ENOMEM, "via: no memory for a command");
	c->base = (struct command){exec, backend};
	c->spec = spec;
	c->linger.fire = via_linger_fired;
	c->look.fire = via_look_fired;
	list_init(&c->errands);
	task_init(&c->judge_task, judge_later);
	lease_join(c);
	err = random_hex(c->secret, MARK_SECRET_BYTES);
	if (err == 0)
		err = random_hex(c->mark + VIA_PREFIX_HEX, FAR_MARK_HEX - VIA_PREFIX_HEX);
	memcpy(c->mark, via->lease.prefix, VIA_PREFIX_HEX);
	if (err == 0)
		err = script_supervise(&line, c->secret, c->mark);
	if (err < 0) {
		command_free(c);
		return text_fail(why, err, "via: cannot prepare the supervisor: %s",
				 strerror(-err));
	}
	err = call_start(&c->call, &setup, &events, c->secret, why);
	if (err < 0) {
		command_free(c);
		return err;
	}
	call_send(&c->call, &line);
	*ret = &c->base;
	return 0;
}

void via_release(struct command *command)
{
	struct via_command *c = container_of(command, struct via_command, base);

	list_for_each_safe (e, &c->errands, struct errand, link)
		errand_free(e);
	timer_cancel(&c->linger);
	timer_cancel(&c->look);
	task_cancel(&c->judge_task);
	call_done(&c->call);
	command_free(c);
}

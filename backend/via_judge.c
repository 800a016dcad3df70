/*
 * What follows from the facts about a command, decided in one place: when everything that
 * came in this turn has been taken, when a kill is asked for, and when a time has passed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "via.h"

void via_describe_end(struct text *ret, const struct call *call, const struct text *noise)
{
	size_t len = noise->len;

	while (len && strchr(" \r\n", noise->data[len - 1]))
		len--;
	if (call->start_error)
		text_printf(ret, "it could not be run: %s", strerror(call->start_error));
	else if (call->status >= 0 && WIFSIGNALED(call->status))
		text_printf(ret, "it was killed by signal %d", WTERMSIG(call->status));
	else if (call->status >= 0)
		text_printf(ret, "it ended with status %d", WEXITSTATUS(call->status));
	else
		text_printf(ret, "it ended");
	if (!len)
		return;
	text_printf(ret, ", saying \"");
	text_append_printable(ret, noise->data, len);
	text_printf(ret, "\"");
}

static const char *prefix_of(const struct via_command *c)
{
	return container_of(c->base.backend, struct via, base)->prefix[0];
}

void via_linger(struct via_command *c)
{
	if (!timer_armed(&c->linger) && !c->lingered)
		timer_arm(c->base.backend->loop, &c->linger, VIA_LINGER_MS);
}

/* A helper that the prefix has left behind, and that holds the streams, is not waited for. */
void via_linger_fired(struct timer *timer)
{
	struct via_command *c = container_of(timer, struct via_command, linger);

	call_kill(&c->call);
	c->lingered = true;
	via_judge(c);
}

static bool call_finished(const struct via_command *c)
{
	return call_over(&c->call) || (c->lingered && c->call.ended);
}

static void refuse_call(struct via_command *c)
{
	AUTO_TEXT struct text end = {0};

	via_describe_end(&end, &c->call, &c->noise);
	exec_refused(c->base.exec, -ENXIO,
		     "via: the prefix \"%s\" did not lead to a shell: %s; try: %s /bin/sh -c true",
		     prefix_of(c), text_str(&end), c->base.backend->target + 4);
}

static void refuse_command(struct via_command *c)
{
	if (c->refused_variable[0])
		exec_refused(c->base.exec, c->refusal,
			     "spec: key \"env\": the shell on the target does not let %s be set",
			     c->refused_variable);
	else
		exec_refused(c->base.exec, c->refusal,
			     "spec: key \"cwd\": cannot enter %s on the target: %s",
			     c->spec->cwd ? c->spec->cwd : "?", strerror(-c->refusal));
}

/* The supervisor runs on both streams: it gets the command. Returns 0 or -errno. */
static int send_command(struct via_command *c)
{
	struct text line = {0};
	int err = script_become(&line, c->secret, c->spec);

	c->phase = VIA_STARTING;
	if (err == 0)
		err = call_send(&c->call, &line);
	text_wipe(&line);
	return err;
}

/* Nothing of the command has been sent: whatever happens now, it never runs. */
static bool judge_calling(struct via_command *c)
{
	int err;

	if (call_finished(c) && c->killing) {
		exec_refused(c->base.exec, -ECANCELED, "via: killed before it was started");
		return true;
	}
	if (c->mixed) {
		exec_refused(c->base.exec, -ENOTSUP,
			     "via: the prefix mixes stderr into stdout: leave out what asks for a "
			     "terminal (-t)");
		return true;
	}
	if (call_finished(c)) {
		refuse_call(c);
		return true;
	}
	if (c->killing) {
		call_kill(&c->call);
	} else if (c->call.ended) {
		via_linger(c);
	} else if (c->ready[STREAM_STDOUT] && c->ready[STREAM_STDERR] && lease_allows(c)) {
		err = send_command(c);
		if (err < 0) {
			exec_refused(c->base.exec, err, "via: no memory to send the command");
			return true;
		}
	}
	return false;
}

/* The command has been sent; the supervisor has not said yet that it runs. */
static bool judge_starting(struct via_command *c)
{
	if (c->refusal) {
		refuse_command(c);
		return true;
	}
	if (c->end_seen[STREAM_STDERR]) {
		exec_refused(
			c->base.exec, -EIO,
			"via: the shell on the target did not start the command (status %d): %s",
			c->code, text_str(&c->noise));
		return true;
	}
	if (!call_finished(c)) {
		if (c->call.ended || c->killing)
			via_linger(c);
		return false;
	}
	/* It may have started, and may run: only a kill can tell. */
	c->phase = VIA_RUNNING;
	exec_started(c->base.exec, 0);
	return false;
}

static void lose(struct via_command *c)
{
	AUTO_TEXT struct text end = {0};

	c->phase = VIA_LOST;
	if (c->killing)
		return;
	via_describe_end(&end, &c->call, &c->noise);
	exec_lost(c->base.exec, "stream_closed",
		  "via: the prefix \"%s\" ended before the command did: %s", prefix_of(c),
		  text_str(&end));
}

static bool both_over(const struct via_command *c)
{
	return c->call.over[STREAM_STDOUT] && c->call.over[STREAM_STDERR];
}

/*
 * What is left of the command is told a moment after its end. The time for draining what children
 * have still to say starts then, and not while the far side looks for them.
 */
static bool left_told(struct via_command *c)
{
	if (c->left != VIA_LEFT_UNTOLD || c->call.over[STREAM_STDERR] || c->looks)
		return true;
	if (!timer_armed(&c->look))
		timer_arm(c->base.backend->loop, &c->look, VIA_LINGER_MS);
	return false;
}

static void end(struct via_command *c)
{
	c->phase = VIA_ENDED;
	timer_cancel(&c->linger);
	timer_cancel(&c->look);
	c->lingered = false;
	c->looks = 0;
	if (c->left == VIA_LEFT_UNTOLD)
		c->left = VIA_LEFT_UNKNOWN;
	if (c->signaled)
		exec_signaled(c->base.exec, c->code);
	else
		exec_exited(c->base.exec, c->code);
}

static void judge_running(struct via_command *c)
{
	if (c->end_seen[STREAM_STDOUT] && c->end_seen[STREAM_STDERR]) {
		if (left_told(c) || call_finished(c))
			end(c);
	} else if (call_finished(c) || (both_over(c) && c->call.ended)) {
		lose(c);
	} else if (both_over(c) || c->call.ended) {
		via_linger(c);
	}
}

/*
 * When nobody holds a stream it is complete, though its end has not come yet; where nobody
 * can tell, its end will. The end of the input lets the supervisor go; a name space that would end
 * with it, and take the children along that the command has left, is kept until they are killed.
 */
static void judge_ended(struct via_command *c)
{
	bool done = true;

	for (int i = 0; i < STREAM_COUNT; i++) {
		if (!c->stream_told[i] && (c->call.over[i] || c->complete[i])) {
			c->stream_told[i] = true;
			exec_output_end(c->base.exec, (enum stream_id)i);
		}
		done &= c->stream_told[i] || c->cut[i];
	}
	if (c->left == VIA_LEFT_UNKNOWN)
		call_close_input(&c->call);
	if (!done || (c->own_space && c->left != VIA_LEFT_NONE))
		return;
	call_close_input(&c->call);
	via_linger(c);
}

void via_judge(struct via_command *c)
{
	if (c->phase == VIA_CALLING && judge_calling(c))
		return;
	if (c->phase == VIA_STARTING && judge_starting(c))
		return;
	if (c->phase == VIA_RUNNING)
		judge_running(c);
	if (c->phase == VIA_ENDED)
		judge_ended(c);
	if (c->phase >= VIA_STARTING)
		via_judge_kill(c);
}

/*
 * Input: SendInput, one at a time. envd answers when all bytes are in the command's pipe,
 * so a command that does not read makes the call last, and that is the backpressure. What
 * is written meanwhile is gathered for the next one. A call whose answer is lost may have delivered
 * anything from nothing to all: it is not repeated, and the input ends with an error. Only what
 * somebody before envd put off has certainly not arrived, and is sent again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "e2b_command.h"

static void send_later(struct e2b_command *c)
{
	loop_defer(c->base.backend->loop, &c->input.task);
}

static void give_up(struct e2b_command *c, int err, const char *sentence)
{
	c->input.closed = true;
	text_wipe(&c->input.sending);
	text_wipe(&c->input.next);
	if (sentence && c->phase == E2B_RUNNING)
		exec_note(c->base.exec, "%s", sentence);
	exec_input_closed(c->base.exec, err);
}

/*
 * The command is gone, or reads no more: envd says "not_found" to the one, and "internal" to the
 * other, with the text of write(2)'s error.
 */
static bool is_closed(const struct e2b_fault *fault)
{
	const char *message = fault->error.message;

	return strcmp(fault->error.code, "not_found") == 0 || strstr(message, "broken pipe") ||
	       strstr(message, "stdin not enabled or closed") ||
	       strstr(message, "file already closed");
}

/* A proxy's rate limit, or a sandbox that is about to be resumed; envd's own errors have a code. */
static bool is_put_off(const struct e2b_fault *fault)
{
	return (fault->status == 429 || fault->status == 409) && !fault->error.code[0];
}

/* Has the call made again later, unless that was done too often. */
static bool try_again(struct e2b_command *c, const struct e2b_fault *fault)
{
	struct e2b_input *in = &c->input;
	uint64_t delay_ms = E2B_INPUT_RETRY_MS << in->tries;

	if (++in->tries >= E2B_INPUT_TRIES)
		return false;
	delay_ms = MAX(delay_ms, MIN(fault->retry_after_s, E2B_RETRY_AFTER_MAX_S) * 1000ull);
	return timer_arm(c->base.backend->loop, &in->timer, delay_ms) == 0;
}

static void input_done(struct e2b_unary *u, const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(u, struct e2b_command, input.call);
	struct e2b_input *in = &c->input;

	text_done(&u->answer);
	if (fault && is_put_off(fault) && try_again(c, fault))
		return;
	text_wipe(&in->sending);
	if (!fault) {
		in->tries = 0;
		send_later(c);
		if (in->starved) {
			in->starved = false;
			exec_input_ready(c->base.exec);
		}
	} else if (is_closed(fault)) {
		give_up(c, -EPIPE, NULL);
	} else {
		give_up(c, -EIO, fault->text);
	}
}

static void close_done(struct e2b_unary *u, const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(u, struct e2b_command, input.call);

	text_done(&u->answer);
	if (!fault || is_closed(fault)) {
		c->input.closed = true;
	} else if (!try_again(c, fault)) {
		/* Closing twice is success, so it was asked again. */
		give_up(c, -EIO, fault->text);
	}
}

static void begin(struct e2b_command *c, enum e2b_method method, uint64_t limit_ms,
		  void (*done)(struct e2b_unary *u, const struct e2b_fault *fault))
{
	struct e2b_unary *call = &c->input.call;

	call->sandbox = c->sandbox;
	call->request = (struct e2b_request){
		.method = method,
		.pid = c->pid,
		.input = c->input.sending.data,
		.input_len = c->input.sending.len,
	};
	call->limit_ms = limit_ms;
	call->done = done;
	if (e2b_unary_begin(call) < 0)
		give_up(c, -ENOMEM, "e2b: no memory to send input");
}

static void close_stdin(struct e2b_command *c)
{
	char why[200];

	c->input.close_asked = false;
	if (!e2b_sandbox_older(c->sandbox, 0, 5, 2)) {
		begin(c, E2B_CLOSE_STDIN, E2B_CALL_LIMIT_MS, close_done);
		return;
	}
	snprintf(why, sizeof(why),
		 "e2b: the end of input cannot be told: envd in sandbox %s is %u.%u.%u, and has "
		 "that since 0.5.2: use \"stdin\":\"none\" or a newer template",
		 c->sandbox->id, c->sandbox->version.part[0], c->sandbox->version.part[1],
		 c->sandbox->version.part[2]);
	give_up(c, -EOPNOTSUPP, why);
}

static void timer_fired(struct timer *timer)
{
	struct e2b_command *c = container_of(timer, struct e2b_command, input.timer);

	if (c->phase != E2B_RUNNING)
		return;
	if (c->input.sending.len)
		begin(c, E2B_SEND_INPUT, E2B_INPUT_LIMIT_MS, input_done);
	else
		close_stdin(c);
}

static void run_task(struct task *task)
{
	struct e2b_command *c = container_of(task, struct e2b_command, input.task);
	struct e2b_input *in = &c->input;
	struct text spare;

	if (in->closed || http_active(&in->call.call) || timer_armed(&in->timer) ||
	    c->phase != E2B_RUNNING)
		return;
	if (in->next.len) {
		spare = in->sending;
		in->sending = in->next;
		in->next = spare;
		begin(c, E2B_SEND_INPUT, E2B_INPUT_LIMIT_MS, input_done);
		if (in->starved && !in->closed) {
			in->starved = false;
			exec_input_ready(c->base.exec);
		}
	} else if (in->close_asked) {
		close_stdin(c);
	}
}

static size_t room(const struct e2b_input *in)
{
	return E2B_INPUT_BYTES - in->next.len;
}

ssize_t e2b_input_write(struct command *command, const void *data, size_t len)
{
	struct e2b_command *c = e2b_command_of(command);
	struct e2b_input *in = &c->input;
	size_t take = MIN(len, room(in));
	int err;

	if (in->closed)
		return -EPIPE;
	if (take) {
		err = text_append(&in->next, data, take);
		if (err < 0)
			return err;
		send_later(c);
	}
	in->starved = take < len;
	return (ssize_t)take;
}

bool e2b_input_can_write(struct command *command)
{
	struct e2b_input *in = &e2b_command_of(command)->input;

	in->starved = !in->closed && !room(in);
	return !in->starved;
}

void e2b_input_close(struct command *command)
{
	struct e2b_command *c = e2b_command_of(command);

	c->input.close_asked = true;
	send_later(c);
}

void e2b_input_init(struct e2b_command *c)
{
	task_init(&c->input.task, run_task);
	c->input.timer.fire = timer_fired;
}

void e2b_input_done(struct e2b_command *c)
{
	task_cancel(&c->input.task);
	timer_cancel(&c->input.timer);
	e2b_unary_cancel(&c->input.call);
	text_wipe(&c->input.sending);
	text_wipe(&c->input.next);
}

/*
 * Input: queued before the start, passed on after it. The queue holds only what
 * came before the start; from then on a writer waits for the command itself.
 *
 * The end of input is declared in one of two ways: by eof, for good; or by the
 * close of the last writer, which counts from the start on, unless the spec
 * keeps the input open.
 */
#include <errno.h>
#include <string.h>

#include "exec_private.h"

bool exec_input_is(const struct exec *exec, enum spec_stdin mode)
{
	return exec->spec && exec->spec->stdin_mode == mode;
}

void exec_input_fail(struct exec *exec, int err)
{
	struct input *in = &exec->input;

	if (in->error)
		return;
	in->error = err;
	text_wipe(&in->queue);
	exec->table->observer->input(exec);
}

static bool running(const struct exec *exec)
{
	return exec->state == EXEC_RUNNING && exec->command;
}

static bool eof_due(const struct exec *exec)
{
	const struct input *in = &exec->input;

	return in->ended || (in->closed && running(exec) && !exec_input_is(exec, SPEC_STDIN_OPEN));
}

static ssize_t queue_input(struct exec *exec, const void *data, size_t len)
{
	struct input *in = &exec->input;
	size_t limit = exec->table->settings->stdin_queue;
	size_t room = limit > in->queue.len ? limit - in->queue.len : 0;
	size_t take = MIN(len, room);
	int err;

	if (!take)
		return -EAGAIN;
	err = text_append(&in->queue, data, take);
	if (err < 0)
		return err;
	in->bytes += take;
	return (ssize_t)take;
}

/* Asks the backend to take bytes. Its refusals are final. */
static ssize_t pass_on(struct exec *exec, const void *data, size_t len)
{
	struct input *in = &exec->input;
	ssize_t n = exec->table->backend->ops->write(exec->command, data, len);

	if (n < 0) {
		exec_input_fail(exec, (int)n);
		return n;
	}
	in->blocked = (size_t)n < len;
	return n ? n : -EAGAIN;
}

/* A kill is never an end of input: the command must not finish half a job because of it. */
static void send_eof(struct exec *exec)
{
	struct input *in = &exec->input;

	if (!eof_due(exec) || in->eof_sent || in->queue.len || in->error || !running(exec) ||
	    exec->kill_since_ns)
		return;
	in->eof_sent = true;
	exec->table->backend->ops->close_input(exec->command);
}

ssize_t exec_write(struct exec *exec, const void *data, size_t len)
{
	struct input *in = &exec->input;
	ssize_t n;

	if (in->error)
		return in->error;
	if (eof_due(exec))
		return -EPIPE;
	if (!running(exec))
		return queue_input(exec, data, len);
	if (in->blocked || in->queue.len)
		return -EAGAIN;
	n = pass_on(exec, data, len);
	if (n > 0)
		in->bytes += (uint64_t)n;
	return n;
}

bool exec_can_write(struct exec *exec)
{
	struct input *in = &exec->input;

	if (in->error || eof_due(exec))
		return true;
	if (!running(exec))
		return in->queue.len < exec->table->settings->stdin_queue;
	if (in->blocked || in->queue.len)
		return false;
	in->blocked = !exec->table->backend->ops->can_write(exec->command);
	return !in->blocked;
}

void exec_input_flush(struct exec *exec)
{
	struct input *in = &exec->input;
	size_t done = 0;

	while (done < in->queue.len && running(exec)) {
		ssize_t n = pass_on(exec, in->queue.data + done, in->queue.len - done);

		if (n < 0)
			break;
		done += (size_t)n;
	}
	if (done && done < in->queue.len)
		memmove(in->queue.data, in->queue.data + done, in->queue.len - done);
	in->queue.len -= MIN(done, in->queue.len);
	if (!in->queue.len)
		text_wipe(&in->queue);
	send_eof(exec);
}

void exec_open_input(struct exec *exec)
{
	if (!exec->input.eof_sent)
		exec->input.closed = false;
}

void exec_close_input(struct exec *exec)
{
	exec->input.closed = true;
	send_eof(exec);
}

void exec_end_input(struct exec *exec)
{
	exec->input.ended = true;
	exec->table->observer->input(exec);
	send_eof(exec);
}

void exec_input_ready(struct exec *exec)
{
	exec->input.blocked = false;
	exec_input_flush(exec);
	if (!exec->input.blocked)
		exec->table->observer->input(exec);
}

void exec_input_closed(struct exec *exec, int err)
{
	exec_input_fail(exec, err);
}

/* The pipes of local: commands, read straight into the spool. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "local.h"
#include "pipe_grow.h"
#include "util.h"

static void output_ready(struct source *source, uint32_t events);
static void input_ready(struct source *source, uint32_t events);

/* ---- Making and closing ---- */

/* Makes a pipe of which our end, 0 to read or 1 to write, does not block. */
static int make_pipe(int ours, int *ret_ours, int *ret_theirs)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	if (fcntl(ends[ours], F_SETFL, O_NONBLOCK) < 0) {
		int err = -errno;

		close(ends[0]);
		close(ends[1]);
		return err;
	}
	*ret_ours = ends[ours];
	*ret_theirs = ends[!ours];
	return 0;
}

static void init_output(struct local_command *c, enum stream_id id)
{
	c->outputs[id] = (struct local_output){
		.source = {.fd = -1, .ready = output_ready},
		.command = c,
		.id = id,
	};
}

int local_make_pipes(struct local_command *c, const struct spec *spec, struct local_ends *ret)
{
	int err;

	init_output(c, STREAM_STDOUT);
	init_output(c, STREAM_STDERR);
	c->input.source = (struct source){.fd = -1, .ready = input_ready};
	err = make_pipe(0, &c->status.fd, &ret->status);
	if (err == 0)
		err = make_pipe(0, &c->outputs[STREAM_STDOUT].source.fd, &ret->output);
	if (err == 0 && spec->stderr_mode == SPEC_STDERR_PASSTHROUGH)
		err = make_pipe(0, &c->outputs[STREAM_STDERR].source.fd, &ret->error);
	if (err == 0 && spec->stdin_mode != SPEC_STDIN_NONE)
		err = make_pipe(1, &c->input.source.fd, &ret->input);
	return err;
}

static void close_source(struct source *source)
{
	loop_unwatch(source);
	close_fd(&source->fd);
}

void local_close_pipes(struct local_command *c)
{
	close_source(&c->status);
	close_source(&c->input.source);
	for (int i = 0; i < STREAM_COUNT; i++)
		close_source(&c->outputs[i].source);
}

int local_watch_pipes(struct local_command *c, struct loop *loop)
{
	int err = 0;

	for (int i = 0; err == 0 && i < STREAM_COUNT; i++)
		if (c->outputs[i].source.fd >= 0)
			err = loop_watch(loop, &c->outputs[i].source, EPOLLIN);
	/* No event but EPOLLERR, which says that the last reader has closed. */
	if (err == 0 && c->input.source.fd >= 0)
		err = loop_watch(loop, &c->input.source, 0);
	return err;
}

/* ---- Output ---- */

static void end_output(struct local_output *o)
{
	close_source(&o->source);
	exec_output_end(o->command->command.exec, o->id);
}

/* Without room it is not watched at all: the end of a pipe would be reported again and again. */
static void hold(struct local_output *o)
{
	o->held = true;
	loop_unwatch(&o->source);
}

/*
 * Moves up to max bytes from the pipe to the spool. Returns the bytes moved; fewer than max when
 * the pipe was empty, at its end (then it has been closed) or there was no room (held).
 */
static size_t move(struct local_output *o, size_t max)
{
	struct exec *exec = o->command->command.exec;
	size_t moved = 0;

	while (moved < max) {
		void *room;
		size_t want = exec_output_reserve(exec, o->id, &room);
		ssize_t n;

		if (!want) {
			hold(o);
			break;
		}
		want = MIN(want, max - moved);
		n = read(o->source.fd, room, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			end_output(o);
		if (n <= 0)
			break;
		exec_output_commit(exec, o->id, (size_t)n);
		moved += (size_t)n;
		if ((size_t)n < want)
			break;
	}
	return moved;
}

static void output_ready(struct source *source, uint32_t events)
{
	struct local_output *o = container_of(source, struct local_output, source);

	if (move(o, READ_TURN_BYTES) >= PIPE_BYTES_DEFAULT && source->fd >= 0)
		pipe_grow(source->fd, &o->grown);
}

/* Whether all of the pipe that there will be has been taken. */
static bool take_rest(struct local_output *o)
{
	struct pollfd pipe = {.fd = o->source.fd, .events = POLLIN};
	int left = 0;

	if (pipe.fd < 0)
		return true;
	if (ioctl(pipe.fd, FIONREAD, &left) == 0 && left > 0) {
		exec_output_overdraw(o->command->command.exec, o->id, (size_t)left);
		if (move(o, (size_t)left) < (size_t)left && o->source.fd >= 0)
			return false;
	}
	if (o->source.fd >= 0 && poll(&pipe, 1, 0) == 1 && pipe.revents == POLLHUP)
		end_output(o);
	return true;
}

bool local_take_rest(struct local_command *c)
{
	bool all = true;

	for (int i = 0; i < STREAM_COUNT; i++)
		all = take_rest(&c->outputs[i]) && all;
	return all;
}

void local_resume(struct command *command, enum stream_id id)
{
	struct local_command *c = container_of(command, struct local_command, command);
	struct local_output *o = &c->outputs[id];

	if (!o->held || o->source.fd < 0)
		return;
	o->held = false;
	if (loop_watch(command->backend->loop, &o->source, EPOLLIN) < 0)
		o->held = true;
	if (c->exited || c->gone)
		loop_defer(command->backend->loop, &c->finish);
}

void local_close_output(struct command *command, enum stream_id id)
{
	struct local_command *c = container_of(command, struct local_command, command);

	/* Whoever wrote what is in the pipe was told that it was taken. */
	take_rest(&c->outputs[id]);
	close_source(&c->outputs[id].source);
	if (c->exited || c->gone)
		loop_defer(command->backend->loop, &c->finish);
}

/* ---- Input ---- */

static void input_ready(struct source *source, uint32_t events)
{
	struct local_input *in = container_of(source, struct local_input, source);
	struct local_command *c = container_of(in, struct local_command, input);

	if (events & (EPOLLERR | EPOLLHUP)) {
		close_source(source);
		exec_input_closed(c->command.exec, -EPIPE);
		return;
	}
	in->blocked = false;
	loop_rewatch(source, 0);
	exec_input_ready(c->command.exec);
}

/* Returns whether readiness will be reported. */
static void wait_for_room(struct local_input *in)
{
	in->blocked = true;
	loop_rewatch(&in->source, EPOLLOUT);
}

ssize_t local_write(struct command *command, const void *data, size_t len)
{
	struct local_command *c = container_of(command, struct local_command, command);
	struct local_input *in = &c->input;
	ssize_t n;

	if (in->source.fd < 0)
		return -EPIPE;
	do
		n = write(in->source.fd, data, len);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return -errno;
	n = MAX(n, (ssize_t)0);
	if ((size_t)n < len) {
		pipe_grow(in->source.fd, &in->grown);
		wait_for_room(in);
	}
	return n;
}

bool local_can_write(struct command *command)
{
	struct local_command *c = container_of(command, struct local_command, command);
	struct pollfd pipe = {.fd = c->input.source.fd, .events = POLLOUT};

	if (pipe.fd < 0 || poll(&pipe, 1, 0) == 1)
		return true;
	wait_for_room(&c->input);
	return false;
}

void local_close_input(struct command *command)
{
	struct local_command *c = container_of(command, struct local_command, command);

	/* Both copies go: this one and the keeper's. */
	keeper_close_input(&c->kept);
	close_source(&c->input.source);
}

#include "via_call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "pipe_grow.h"
#include "spawn.h"
#include "via_script.h"

/* Where a read lands before its bytes are handed on; there is one thread. */
static char landing[READ_TURN_BYTES];

/* ---- Streams ---- */

static void stream_over(struct call *call, enum stream_id id)
{
	loop_unwatch(&call->streams[id]);
	close_fd(&call->streams[id].fd);
	call->over[id] = true;
	loop_defer(call->loop, &call->change);
}

/* Bytes cannot be kept: rather than lose some of a stream, all of it is lost, and seen to be. */
static void give_up(struct call *call, enum stream_id id, int err)
{
	log_warning("via: a stream is given up: %s", strerror(-err));
	text_done(&call->refused[id]);
	text_done(&call->unread[id]);
	stream_over(call, id);
	call_kill(call);
}

/* Hands on what was found. Returns 0, -EAGAIN when bytes were put by, or -ENOMEM, -E2BIG. */
static int hand_on(struct call *call, enum stream_id id, const struct mark_find *find)
{
	size_t taken;
	int err;

	switch (find->piece) {
	case MARK_WORDS:
		loop_defer(call->loop, &call->change);
		call->events->mark(call, id, find->data);
		return 0;
	case MARK_BYTES:
		taken = call->events->bytes(call, id, find->data, find->len);
		if (taken == find->len)
			return 0;
		err = text_append(&call->refused[id], find->data + taken, find->len - taken);
		return err ? err : -EAGAIN;
	case MARK_NOTHING:
		break;
	}
	return 0;
}

/* Returns how many of the bytes were dealt with; fewer than len only when *err is set. */
static size_t scan(struct call *call, enum stream_id id, const char *data, size_t len, int *err)
{
	struct mark_find find;
	size_t done = 0;

	while (done < len && *err == 0) {
		done += mark_scan(&call->scanners[id], data + done, len - done, &find);
		*err = hand_on(call, id, &find);
	}
	return done;
}

static void drop_front(struct text *t, size_t len)
{
	memmove(t->data, t->data + len, t->len - len);
	t->len -= len;
	if (!t->len)
		text_done(t);
}

/* What was put by goes first. Returns 0 when nothing of it is left. */
static int hand_on_kept(struct call *call, enum stream_id id)
{
	struct text *refused = &call->refused[id];
	struct text *unread = &call->unread[id];
	int err = 0;

	if (refused->len) {
		drop_front(refused, call->events->bytes(call, id, refused->data, refused->len));
		if (refused->len)
			return -EAGAIN;
	}
	if (unread->len)
		drop_front(unread, scan(call, id, unread->data, unread->len, &err));
	return err;
}

static int read_some(struct call *call, enum stream_id id)
{
	ssize_t n = read(call->streams[id].fd, landing, sizeof(landing));
	struct mark_find find;
	int err = 0;
	size_t done;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : -errno;
	if (n == 0) {
		call->at_end[id] = true;
		mark_scan_end(&call->scanners[id], &find);
		return hand_on(call, id, &find);
	}
	if ((size_t)n >= PIPE_BYTES_DEFAULT)
		pipe_grow(call->streams[id].fd, &call->grown[id]);
	done = scan(call, id, landing, (size_t)n, &err);
	if (done < (size_t)n && err == -EAGAIN &&
	    text_append(&call->unread[id], landing + done, (size_t)n - done) < 0)
		return -ENOMEM;
	return err;
}

/* Holds the stream while there is no room: a pipe at its end would wake the loop for nothing. */
static void stream_step(struct call *call, enum stream_id id, bool readable)
{
	struct source *source = &call->streams[id];
	int err = hand_on_kept(call, id);

	if (err == 0 && readable && !call->at_end[id]) {
		if (!call->events->has_room || call->events->has_room(call, id))
			err = read_some(call, id);
		else
			err = -EAGAIN;
	}
	if (err == 0 && call->at_end[id]) {
		stream_over(call, id);
	} else if (err == -EAGAIN) {
		loop_unwatch(source);
	} else if (err == 0 && !source->loop) {
		err = loop_watch(call->loop, source, EPOLLIN);
	}
	if (err < 0 && err != -EAGAIN)
		give_up(call, id, err);
}

static void stdout_ready(struct source *source, uint32_t events)
{
	stream_step(container_of(source, struct call, streams[STREAM_STDOUT]), STREAM_STDOUT, true);
}

static void stderr_ready(struct source *source, uint32_t events)
{
	stream_step(container_of(source, struct call, streams[STREAM_STDERR]), STREAM_STDERR, true);
}

void call_resume(struct call *call, enum stream_id id)
{
	if (!call->over[id] && !call->streams[id].loop)
		stream_step(call, id, false);
}

/* ---- Input ---- */

static void input_close(struct call *call)
{
	loop_unwatch(&call->input);
	close_fd(&call->input.fd);
	text_wipe(&call->lines);
	keeper_close_input(&call->kept);
}

static void input_wait(struct call *call)
{
	if (!call->input.loop && loop_watch(call->loop, &call->input, EPOLLOUT) < 0)
		input_close(call);
}

/* Sends what goes ahead of the input. Returns 0 when nothing of it is left, else -errno. */
static int send_lines(struct call *call)
{
	while (call->lines.len) {
		ssize_t n = write(call->input.fd, call->lines.data, call->lines.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		memmove(call->lines.data, call->lines.data + n, call->lines.len - (size_t)n);
		call->lines.len -= (size_t)n;
	}
	text_wipe(&call->lines);
	if (call->input_ends)
		input_close(call);
	return 0;
}

static void input_ready(struct source *source, uint32_t events)
{
	struct call *call = container_of(source, struct call, input);
	int err = send_lines(call);

	if (err == -EAGAIN)
		return;
	loop_unwatch(source);
	if (err < 0 || events & EPOLLERR) {
		err = -EPIPE;
		input_close(call);
	}
	if (call->input_waits) {
		call->input_waits = false;
		call->events->input(call, err);
	}
}

int call_send(struct call *call, const struct text *line)
{
	int err = text_append(&call->lines, line->data, line->len);

	if (err < 0)
		return err;
	if (call->input.fd < 0) {
		text_wipe(&call->lines);
		return 0; /* The prefix has gone: its end will tell. */
	}
	err = send_lines(call);
	if (err == -EAGAIN)
		input_wait(call);
	else if (err < 0)
		input_close(call);
	return 0;
}

ssize_t call_write(struct call *call, const void *data, size_t len)
{
	ssize_t n = 0;

	if (call->input.fd < 0)
		return -EPIPE;
	if (!call->lines.len) {
		do
			n = write(call->input.fd, data, len);
		while (n < 0 && errno == EINTR);
		if (n < 0 && errno != EAGAIN) {
			input_close(call);
			return -EPIPE;
		}
		if (n != (ssize_t)len)
			pipe_grow(call->input.fd, &call->input_grown);
	}
	n = MAX(n, (ssize_t)0);
	if ((size_t)n < len) {
		call->input_waits = true;
		input_wait(call);
	}
	return n;
}

bool call_can_write(struct call *call)
{
	struct pollfd p = {.fd = call->input.fd, .events = POLLOUT};

	if (p.fd < 0 || (!call->lines.len && poll(&p, 1, 0) == 1))
		return true;
	call->input_waits = true;
	input_wait(call);
	return false;
}

void call_close_input(struct call *call)
{
	if (call->input_ends)
		return;
	call->input_ends = true;
	if (!call->lines.len)
		input_close(call);
}

/* ---- The process ---- */

static void exited(struct kept *kept, int status)
{
	struct call *call = container_of(kept, struct call, kept);

	call->ended = true;
	call->status = status;
	loop_defer(call->loop, &call->change);
}

static void lost(struct kept *kept)
{
	exited(kept, -1);
}

static void gone(struct kept *kept)
{
	struct call *call = container_of(kept, struct call, kept);

	call->gone = true;
	loop_defer(call->loop, &call->change);
}

static void report_ready(struct source *source, uint32_t events)
{
	struct call *call = container_of(source, struct call, report);
	struct spawn_report report;
	ssize_t n = read(source->fd, &report, sizeof(report));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == (ssize_t)sizeof(report)) {
		if (report.stage == SPAWN_PID)
			call->pid = report.value;
		else
			call->start_error = report.value;
		return;
	}
	loop_unwatch(source);
	close_fd(&source->fd);
	loop_defer(call->loop, &call->change);
}

static void change(struct task *task)
{
	struct call *call = container_of(task, struct call, change);

	call->events->changed(call);
}

/* ---- Start and end ---- */

/* One pipe: ours does not block, theirs does. */
static int open_pipe(struct source *ours, int *theirs, bool we_write)
{
	int fds[2];
	int mine;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	mine = fds[we_write];
	ours->fd = mine;
	*theirs = fds[!we_write];
	return fcntl(mine, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_pipes(struct call *call, struct keeper_start *start)
{
	int err = open_pipe(&call->input, &start->input, true);

	if (err == 0)
		err = open_pipe(&call->streams[STREAM_STDOUT], &start->output, false);
	if (err == 0)
		err = open_pipe(&call->streams[STREAM_STDERR], &start->error, false);
	if (err == 0)
		err = open_pipe(&call->report, &start->status, false);
	start->input_write = call->input.fd;
	return err;
}

static void close_theirs(struct keeper_start *start)
{
	close_fd(&start->input);
	close_fd(&start->output);
	close_fd(&start->error);
	close_fd(&start->status);
}

static int watch_all(struct call *call)
{
	int err = loop_watch(call->loop, &call->streams[STREAM_STDOUT], EPOLLIN);

	if (err == 0)
		err = loop_watch(call->loop, &call->streams[STREAM_STDERR], EPOLLIN);
	if (err == 0)
		err = loop_watch(call->loop, &call->report, EPOLLIN);
	return err;
}

/* Runs the prefix with the loader as its last words. */
static int start_process(struct call *call, const struct call_setup *setup,
			 struct keeper_start *start, struct text *why)
{
	static const char *const loader[] = {"/bin/sh", "-c", SCRIPT_LOADER};
	AUTO_FREE char **argv = NULL;
	struct spec spec = {.keys = SPEC_KEY_CMD};
	size_t words = 0;

	while (setup->prefix[words])
		words++;
	argv = calloc(words + ARRAY_LEN(loader) + 1, sizeof(*argv));
	if (!argv)
		return text_fail(why, -ENOMEM, "via: no memory for a call of the prefix");
	memcpy(argv, setup->prefix, words * sizeof(*argv));
	memcpy(argv + words, loader, sizeof(loader));
	spec.argv = argv;
	spec.argc = words + ARRAY_LEN(loader);
	start->spec = &spec;
	return keeper_start(setup->keeper, &call->kept, start, why);
}

static void init(struct call *call, const struct call_setup *setup,
		 const struct call_events *events, const char *secret)
{
	*call = (struct call){
		.status = -1,
		.events = events,
		.loop = setup->loop,
		.kept = {.exited = exited, .lost = lost, .gone = gone},
		.input = {.fd = -1, .ready = input_ready},
		.streams = {{.fd = -1, .ready = stdout_ready}, {.fd = -1, .ready = stderr_ready}},
		.report = {.fd = -1, .ready = report_ready},
	};
	for (int i = 0; i < STREAM_COUNT; i++)
		mark_scanner_init(&call->scanners[i], secret);
	task_init(&call->change, change);
}

int call_start(struct call *call, const struct call_setup *setup, const struct call_events *events,
	       const char *secret, struct text *why)
{
	struct keeper_start start = {.input = -1, .output = -1, .error = -1, .status = -1};
	int err;

	init(call, setup, events, secret);
	err = open_pipes(call, &start);
	if (err == 0)
		err = watch_all(call);
	if (err < 0)
		text_fail(why, err, "via: no pipes for a call of the prefix: %s", strerror(-err));
	else
		err = start_process(call, setup, &start, why);
	close_theirs(&start);
	if (err < 0)
		call_done(call);
	return err;
}

void call_kill(struct call *call)
{
	if (!call->gone)
		keeper_kill(&call->kept);
}

void call_done(struct call *call)
{
	if (call->kept.keeper) {
		keeper_kill(&call->kept);
		keeper_forget(&call->kept);
	}
	task_cancel(&call->change);
	loop_unwatch(&call->input);
	close_fd(&call->input.fd);
	loop_unwatch(&call->report);
	close_fd(&call->report.fd);
	for (int i = 0; i < STREAM_COUNT; i++) {
		loop_unwatch(&call->streams[i]);
		close_fd(&call->streams[i].fd);
		text_done(&call->refused[i]);
		text_done(&call->unread[i]);
	}
	text_wipe(&call->lines);
}

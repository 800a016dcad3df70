/*
 * Output: from the backend into the spools, and the backpressure between both
 * ends: a stream without room is held, and goes on when a reader has moved.
 */
#include <errno.h>
#include <string.h>

#include "exec_private.h"
#include "log.h"

/* A stream that was cut off, or whose end readers have seen, takes nothing more. */
static bool closed(const struct exec *exec, enum stream_id id)
{
	return exec->streams[id].ended || exec->state == EXEC_DONE;
}

/* No room: when that is the disk's or the memory's fault, no reader will say when to go on. */
static void hold(struct exec *exec, enum stream_id id, bool no_memory)
{
	struct stream *s = &exec->streams[id];

	if (!s->held && s->spool.file_error)
		log_warning("exec \"%s\": cannot spool output in %s: %s: the command is held back "
			    "until "
			    "there is room (see the mount option spool)",
			    exec->name, exec->table->settings->spool_dir,
			    strerror(-s->spool.file_error));
	s->held = true;
	if (s->spool.file_error || no_memory)
		timer_arm(exec->table->loop, &exec->spool_timer, SPOOL_RETRY_MS);
}

size_t exec_output_reserve(struct exec *exec, enum stream_id id, void **ret)
{
	struct stream *s = &exec->streams[id];
	ssize_t room;

	if (closed(exec, id))
		return 0;
	room = spool_reserve(&s->spool, ret);
	if (room <= 0) {
		hold(exec, id, room < 0);
		return 0;
	}
	s->held = false;
	return (size_t)room;
}

static void added(struct exec *exec, enum stream_id id)
{
	if (exec->state == EXEC_DRAINING)
		exec_drain_active(exec);
	exec->streams[id].news = true;
	loop_defer(exec->table->loop, &exec->news_task);
}

void exec_tell_news(struct task *task)
{
	struct exec *exec = container_of(task, struct exec, news_task);

	for (int i = 0; i < STREAM_COUNT; i++) {
		if (!exec->streams[i].news)
			continue;
		exec->streams[i].news = false;
		exec->table->observer->output(exec, (enum stream_id)i);
	}
}

void exec_output_commit(struct exec *exec, enum stream_id id, size_t len)
{
	if (!len)
		return;
	spool_commit(&exec->streams[id].spool, len);
	added(exec, id);
}

bool exec_output(struct exec *exec, enum stream_id id, const void *data, size_t len)
{
	struct stream *s = &exec->streams[id];
	int err;

	if (!len || closed(exec, id))
		return true;
	err = spool_append(&s->spool, data, len);
	if (err < 0) {
		hold(exec, id, err == -ENOMEM);
		return false;
	}
	s->held = false;
	added(exec, id);
	return true;
}

bool exec_output_has_room(struct exec *exec, enum stream_id id)
{
	struct stream *s = &exec->streams[id];

	if (closed(exec, id))
		return true;
	if (!spool_has_room(&s->spool)) {
		hold(exec, id, false);
		return false;
	}
	s->held = false;
	return true;
}

void exec_output_overdraw(struct exec *exec, enum stream_id id, size_t len)
{
	spool_overdraw(&exec->streams[id].spool, MIN(len, DRAIN_ALLOWANCE));
}

static void end_stream(struct exec *exec, enum stream_id id)
{
	struct stream *s = &exec->streams[id];

	if (s->ended)
		return;
	s->ended = true;
	s->held = false;
	spool_end(&s->spool);
	s->news = true;
	loop_defer(exec->table->loop, &exec->news_task);
}

void exec_output_end(struct exec *exec, enum stream_id id)
{
	end_stream(exec, id);
	if (id == STREAM_STDOUT && exec->spec->stderr_mode == SPEC_STDERR_MERGED)
		end_stream(exec, STREAM_STDERR);
	exec_settle_later(exec);
}

void exec_cut_streams(struct exec *exec)
{
	const struct backend_ops *ops = exec->table->backend->ops;

	for (int i = 0; i < STREAM_COUNT; i++) {
		if (!exec->streams[i].ended && exec->command && ops->close_output)
			ops->close_output(exec->command, (enum stream_id)i);
		end_stream(exec, (enum stream_id)i);
	}
}

bool exec_drained(const struct exec *exec)
{
	return exec->streams[STREAM_STDOUT].ended && exec->streams[STREAM_STDERR].ended;
}

/* ---- Readers ---- */

/* There may be room again: then the command goes on. */
static void let_go_on(struct exec *exec, enum stream_id id)
{
	struct stream *s = &exec->streams[id];

	if (!s->held || !exec->command)
		return;
	if (!spool_has_room(&s->spool)) {
		hold(exec, id, false);
		return;
	}
	s->held = false;
	exec->table->backend->ops->resume(exec->command, id);
}

void exec_spool_timer_fired(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, spool_timer);

	for (int i = 0; i < STREAM_COUNT; i++)
		let_go_on(exec, (enum stream_id)i);
}

void exec_reader_open(struct exec *exec, enum stream_id id, struct spool_reader *r)
{
	spool_reader_open(&exec->streams[id].spool, r);
}

void exec_reader_move(struct exec *exec, enum stream_id id, struct spool_reader *r, uint64_t pos)
{
	spool_reader_move(r, pos);
	let_go_on(exec, id);
}

void exec_reader_close(struct exec *exec, enum stream_id id, struct spool_reader *r)
{
	spool_reader_close(r);
	let_go_on(exec, id);
}

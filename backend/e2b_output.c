/*
 * Output: from the events of the stream into the exec's spools. Both streams come in one transfer,
 * which is paused when one of them has no room.
 *
 * After the leader's end what it left is on its way, as if in a pipe: up to DRAIN_ALLOWANCE of it
 * is taken into a backlog, to see whether that is all. If so it is passed on beyond the bound,
 * so that nobody must read before the exit is told; if not, it waits for a reader.
 */
#include <errno.h>
#include <string.h>

#include "bounds.h"
#include "e2b_command.h"

/* A piece of the backlog: len bytes of a stream follow. */
struct piece {
	enum stream_id stream;
	size_t len;
};

/* ---- For the end of output that a child holds open: see e2b_end.c ---- */

static size_t size_of(const struct payload *payload)
{
	return payload->base64 ? payload->len / 4 * 3 : payload->len;
}

static void note_output(struct e2b_command *c, size_t len)
{
	uint64_t now = monotonic_ns();
	uint64_t pause = now - MAX(c->output_ns, c->zombie_ns);

	c->output_ns = now;
	if (c->offered)
		return;
	if (c->zombie_ns) {
		c->drain_bytes += len;
		c->drain_gap |= pause >= e2b_output_gap(c);
	}
	if (c->full)
		c->pace_ns = MAX(pause, c->pace_ns - c->pace_ns / 8);
	c->full = len >= E2B_READ_BYTES;
	if (c->full)
		c->full_ns = now;
}

/* envd fills its buffer only when the pipe has as much; then the rest is on its way, as a rule. */
uint64_t e2b_output_gap(const struct e2b_command *c)
{
	uint64_t gap = MAX(2 * c->pace_ns, E2B_DRAIN_GAP_MS * 1000000ull);

	return c->full ? MAX(gap, c->base.backend->settings->drain_limit_ms * 1000000) : gap;
}

/* Returns 1 when all is taken, 0 when there is no room, or -EPROTO. */
static int pass_on(struct e2b_command *c, enum stream_id stream, struct payload *payload)
{
	while (payload->len && !c->cut[stream]) {
		void *room;
		size_t size = exec_output_reserve(c->base.exec, stream, &room);
		ssize_t n;

		if (!size) {
			c->held[stream] = true;
			return 0;
		}
		n = payload_read(payload, room, size);
		if (n < 0)
			return (int)n;
		exec_output_commit(c->base.exec, stream, (size_t)n);
	}
	c->held[stream] = false;
	return 1;
}

/* ---- The backlog ---- */

static bool backlog_takes(const struct e2b_command *c, size_t len)
{
	return (c->zombie_ns || c->gone_ns) && c->backlog.len + len <= DRAIN_ALLOWANCE;
}

static int keep(struct e2b_command *c, enum stream_id stream, struct payload *payload)
{
	char buf[16 * KIB];
	ssize_t n;

	while ((n = payload_read(payload, buf, sizeof(buf))) > 0) {
		struct piece piece = {.stream = stream, .len = (size_t)n};

		if (text_append(&c->backlog, &piece, sizeof(piece)) < 0 ||
		    text_append(&c->backlog, buf, piece.len) < 0)
			return -ENOMEM;
	}
	return n < 0 ? (int)n : 1;
}

/* Passes on what there is room for. Returns 1 when the backlog is empty, 0 when it is not. */
static int pass_on_backlog(struct e2b_command *c)
{
	while (c->backlog_taken < c->backlog.len) {
		char *at = c->backlog.data + c->backlog_taken;
		struct piece piece;
		struct payload payload;

		memcpy(&piece, at, sizeof(piece));
		payload = (struct payload){.data = at + sizeof(piece), .len = piece.len};
		if (pass_on(c, piece.stream, &payload) == 1) {
			c->backlog_taken += sizeof(piece) + piece.len;
			continue;
		}
		/* The rest of the piece stays, with a new head right before it. */
		at += piece.len - payload.len;
		piece.len = payload.len;
		memcpy(at, &piece, sizeof(piece));
		c->backlog_taken = (size_t)(at - c->backlog.data);
		return 0;
	}
	text_done(&c->backlog);
	c->backlog_taken = 0;
	return 1;
}

void e2b_output_finish(struct e2b_command *c)
{
	for (int i = 0; c->backlog.len && i < STREAM_COUNT; i++)
		exec_output_overdraw(c->base.exec, (enum stream_id)i, DRAIN_ALLOWANCE);
	pass_on_backlog(c);
}

bool e2b_output_held(const struct e2b_command *c)
{
	return c->held[STREAM_STDOUT] || c->held[STREAM_STDERR];
}

void e2b_output_look_ahead(struct e2b_command *c)
{
	if (e2b_output_held(c) && backlog_takes(c, 0))
		e2b_stream_resume(&c->stream);
}

/* ---- Events ---- */

/* Returns 1 when all is taken, 0 when it must be offered again, or -errno. */
static int take(struct e2b_command *c, enum stream_id stream, struct payload *payload)
{
	int r = c->backlog.len ? pass_on_backlog(c) : 1;

	if (r == 1)
		r = pass_on(c, stream, payload);
	if (r == 0 && backlog_takes(c, payload->len))
		r = keep(c, stream, payload);
	return r;
}

bool e2b_output_event(struct e2b_command *c, enum stream_id stream, struct payload *payload)
{
	int r;

	if (c->phase != E2B_RUNNING)
		return true;
	note_output(c, size_of(payload));
	r = take(c, stream, payload);
	c->offered = r == 0;
	if (r < 0)
		e2b_command_lose(c, "stream_closed",
				 r == -ENOMEM ? "e2b: no memory for output"
					      : "e2b: a message of the output cannot be read");
	return r != 0;
}

static void resume_task(struct task *task)
{
	struct e2b_command *c = container_of(task, struct e2b_command, output_task);

	if (c->phase == E2B_RUNNING && pass_on_backlog(c) == 1)
		e2b_stream_resume(&c->stream);
}

void e2b_output_init(struct e2b_command *c)
{
	task_init(&c->output_task, resume_task);
}

void e2b_output_done(struct e2b_command *c)
{
	task_cancel(&c->output_task);
	text_done(&c->backlog);
}

void e2b_output_resume(struct command *command, enum stream_id stream)
{
	struct e2b_command *c = e2b_command_of(command);

	c->held[stream] = false;
	loop_defer(c->base.backend->loop, &c->output_task);
}

void e2b_output_close(struct command *command, enum stream_id stream)
{
	struct e2b_command *c = e2b_command_of(command);

	c->cut[stream] = true;
	if (c->held[stream])
		e2b_output_resume(command, stream);
	e2b_end_cut(c);
}

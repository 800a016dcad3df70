#include "docker_stream.h"

#include <errno.h>
#include <stdlib.h>

#include "bounds.h"

static void conn_event(struct docker_conn *conn);
static void pump_run(struct task *task);

int docker_stream_open(struct docker_stream *s, struct docker_api *api, const char *path,
		       const struct text *body, const struct docker_stream_events *events)
{
	int err;

	*s = (struct docker_stream){.events = events, .api = api};
	task_init(&s->pump_task, pump_run);
	err = docker_request(&s->request, api, "POST", path, body, true);
	if (err < 0) {
		text_wipe(&s->request);
		return err;
	}
	docker_conn_open(&s->conn, api->loop, &api->host, conn_event);
	return 0;
}

void docker_stream_close(struct docker_stream *s)
{
	if (!s->api)
		return;
	task_cancel(&s->pump_task);
	docker_conn_close(&s->conn);
	text_wipe(&s->request);
	text_wipe(&s->input);
	text_done(&s->body);
}

static void update_interest(struct docker_stream *s)
{
	docker_conn_want(&s->conn, !s->held && !s->closed, s->sent < s->request.len || s->full);
}

/* An error here shows when receiving too, behind the answer that an engine may have given early. */
static void send_request(struct docker_stream *s)
{
	while (s->sent < s->request.len) {
		ssize_t n = docker_conn_send(&s->conn, s->request.data + s->sent,
					     s->request.len - s->sent);

		if (n == -EAGAIN)
			return;
		if (n < 0)
			break;
		s->sent += (size_t)n;
	}
	text_wipe(&s->request);
	s->sent = 0;
}

/* The one end of a stream. Nothing may follow in the caller. */
static void end(struct docker_stream *s, int err)
{
	s->closed = true;
	docker_conn_close(&s->conn);
	if (!s->up)
		s->events->answered(s, err ? err : -ECONNRESET);
	else
		s->events->ended(s, err);
}

static size_t sink(void *owner, enum stream_id id, const char *data, size_t len)
{
	struct docker_stream *s = owner;
	size_t taken = s->events->output(s, id, data, len);

	s->held = taken < len;
	return taken;
}

/*
 * Passes on what was received. Returns the bytes used, or -errno. Before the stream is up
 * these are the head and, of a refusal, the body.
 */
static ssize_t take(struct docker_stream *s, const char *data, size_t len)
{
	if (s->up)
		return docker_frames_feed(&s->frames, data, len, sink, s);
	if (s->answer.status)
		return docker_answer_body(&s->answer, data, len, &s->body);
	return docker_answer_head(&s->answer, data, len);
}

static bool agreed(const struct docker_stream *s)
{
	return s->answer.status == 101 || s->answer.status == 200;
}

/* Takes from s->input until nothing more can be taken. Returns 1: the owner was told; 0, -errno. */
static int take_input(struct docker_stream *s)
{
	while (s->input.len && !s->held) {
		bool had_head = s->answer.status;
		ssize_t used = take(s, s->input.data, s->input.len);

		if (used < 0)
			return (int)used;
		docker_drop(&s->input, (size_t)used);
		if (!had_head && agreed(s)) {
			s->up = true;
			s->events->answered(s, 0);
		}
		if (!s->up && s->answer.complete) {
			docker_conn_close(&s->conn);
			s->events->answered(s, 0);
			return 1;
		}
		if (!used)
			break;
	}
	return 0;
}

/* Received bytes go straight on; only what finds no taker is kept. */
static int take_fresh(struct docker_stream *s, const char *data, size_t len)
{
	ssize_t used = 0;

	if (s->up && !s->input.len)
		used = take(s, data, len);
	if (used < 0)
		return (int)used;
	if ((size_t)used < len && text_append(&s->input, data + used, len - (size_t)used) < 0)
		return -ENOMEM;
	return take_input(s);
}

/* The connection has ended: of an answer without a length, this is the end. */
static int end_of_input(struct docker_stream *s)
{
	if (s->up)
		return docker_frames_whole(&s->frames) ? 0 : -ECONNRESET;
	return docker_answer_end(&s->answer);
}

static void pump(struct docker_stream *s)
{
	/* Bounded, so that one loud command leaves the loop to the others. */
	for (int i = 0; !s->held; i++) {
		ssize_t n;
		int err;

		if (i == DOCKER_READS_PER_TURN) {
			docker_conn_again(&s->conn);
			break;
		}
		n = docker_conn_receive(&s->conn, s->api->scratch, DOCKER_SCRATCH_BYTES);
		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			err = n < 0 ? (int)n : end_of_input(s);
			if (!err && !s->up && s->answer.complete) {
				docker_conn_close(&s->conn);
				s->events->answered(s, 0);
				return;
			}
			end(s, err);
			return;
		}
		err = take_fresh(s, s->api->scratch, (size_t)n);
		if (err == 1)
			return;
		if (err < 0) {
			end(s, err);
			return;
		}
	}
	update_interest(s);
}

static void conn_event(struct docker_conn *conn)
{
	struct docker_stream *s = container_of(conn, struct docker_stream, conn);

	send_request(s);
	if (s->full && s->up && docker_conn_has_room(&s->conn)) {
		s->full = false;
		s->events->room(s);
	}
	pump(s);
}

static void pump_run(struct task *task)
{
	struct docker_stream *s = container_of(task, struct docker_stream, pump_task);
	int err;

	if (s->closed)
		return;
	s->held = false;
	err = take_input(s);
	if (err == 1)
		return;
	if (err < 0)
		end(s, err);
	else
		pump(s);
}

ssize_t docker_stream_write(struct docker_stream *s, const void *data, size_t len)
{
	ssize_t n;

	if (s->closed)
		return -EPIPE;
	n = s->up ? docker_conn_send(&s->conn, data, len) : -EAGAIN;
	if (n < 0 && n != -EAGAIN)
		return n;
	s->full = n < (ssize_t)len;
	update_interest(s);
	return n < 0 ? 0 : n;
}

bool docker_stream_has_room(struct docker_stream *s)
{
	if (s->closed)
		return true;
	s->full = !s->up || !docker_conn_has_room(&s->conn);
	update_interest(s);
	return !s->full;
}

void docker_stream_end_input(struct docker_stream *s)
{
	if (!s->closed)
		docker_conn_end(&s->conn);
}

void docker_stream_resume(struct docker_stream *s)
{
	if (!s->closed)
		loop_defer(s->api->loop, &s->pump_task);
}

/*
 * A connection that the engine has turned from HTTP into the raw stream of one command:
 * frames of output come in, input goes out as it is (the Engine API's "hijacking", of
 * exec/ID/start and containers/ID/attach).
 *
 * Its callbacks come from the loop, never from within a call of this file. The last
 * statement after each is a return: the owner may be freed in them.
 */
#pragma once

#include "docker_call.h"
#include "docker_frame.h"

struct docker_stream;

struct docker_stream_events {
	/*
	 * The engine's answer: s->answer.status is 101 or 200 and the stream is up; or another,
	 * and s->body says why; or err is -errno: there is no answer.
	 */
	void (*answered)(struct docker_stream *s, int err);

	/* Output: returns what is taken; less than len: nothing more until docker_stream_resume().
	 */
	size_t (*output)(struct docker_stream *s, enum stream_id id, const char *data, size_t len);

	/* Input has room again, after docker_stream_write() found none. */
	void (*room)(struct docker_stream *s);

	/* The stream has ended: 0, or -errno when it broke. */
	void (*ended)(struct docker_stream *s, int err);
};

struct docker_stream {
	struct docker_answer answer;
	struct text body; /* of a refusal */

	/* The rest is docker_stream.c's own. */
	const struct docker_stream_events *events;
	struct docker_conn conn;
	struct docker_api *api;
	struct text request;
	size_t sent;
	struct text input; /* received, not yet taken */
	struct docker_frames frames;
	struct task pump_task;
	bool up;
	bool held;   /* output found no room */
	bool full;   /* input found none */
	bool closed; /* ended() has been called */
};

/* Sends a request and becomes the stream behind it. Returns 0 or -ENOMEM. */
int docker_stream_open(struct docker_stream *s, struct docker_api *api, const char *path,
		       const struct text *body, const struct docker_stream_events *events);

/* Harmless on a zeroed or closed one. */
void docker_stream_close(struct docker_stream *s);

/* Sends input. Returns the bytes taken, 0 (room() follows), or -EPIPE or another -errno. */
ssize_t docker_stream_write(struct docker_stream *s, const void *data, size_t len);

/* Whether a write would take a byte now, or fail; when not, room() follows. */
bool docker_stream_has_room(struct docker_stream *s);

/* Ends the input. */
void docker_stream_end_input(struct docker_stream *s);

/* Output that was refused is offered again, in a later turn. */
void docker_stream_resume(struct docker_stream *s);

/*
 * One call of the prefix: a process on this machine, in the keeper's care, that carries
 * three streams to a shell on the far side. It knows nothing of commands: it sends
 * the lines that the shell reads first, takes the marks out of both
 * streams, and hands on the rest.
 *
 * No event comes from within call_start(), and none after call_done().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend.h"
#include "keeper.h"
#include "loop.h"
#include "text.h"
#include "via_mark.h"

struct call;

struct call_events {
	/* The far side says something on a stream; words end with a NUL. */
	void (*mark)(struct call *call, enum stream_id stream, const char *words);
	/* Whether bytes() would take some now; when not, call_resume() will follow. NULL: always.
	 */
	bool (*has_room)(struct call *call, enum stream_id stream);
	/* Bytes that are no mark. Returns how many were taken; if not all, call_resume() follows.
	 */
	size_t (*bytes)(struct call *call, enum stream_id stream, const char *data, size_t len);
	/* The input takes bytes again, or never: err is -EPIPE. NULL where none are written. */
	void (*input)(struct call *call, int err);
	/*
	 * Something came to its end: a stream, the process, or all of it (see the fields). Also
	 * after each mark, when no byte of this turn is left to be handed on.
	 */
	void (*changed)(struct call *call);
};

struct call {
	/* To be read by the owner. */
	bool ended;		 /* the process; it may have left others behind */
	int status;		 /* as wait(2) has it; -1: not known */
	bool over[STREAM_COUNT]; /* the streams are at their end, all bytes handed on */
	bool gone;		 /* no process of it is left on this machine */
	pid_t pid;		 /* of the process; 0: not known yet */
	int start_error;	 /* positive errno: the prefix could not be run */

	/* The rest is via_call.c's own. */
	const struct call_events *events;
	struct loop *loop;
	struct kept kept;
	struct source input;
	struct source streams[STREAM_COUNT];
	struct source report; /* tells what became of the start (spawn.h) */
	struct mark_scanner scanners[STREAM_COUNT];
	struct text refused[STREAM_COUNT]; /* bytes that were not taken yet */
	struct text unread[STREAM_COUNT];  /* what was read after them */
	bool at_end[STREAM_COUNT];
	bool grown[STREAM_COUNT]; /* the pipe */
	bool input_grown;
	struct text lines; /* to be sent before any input */
	bool input_ends;   /* the end of input comes after the lines */
	bool input_waits;  /* the owner waits for input() */
	struct task change;
};

/* What every call of a mount has in common. */
struct call_setup {
	struct loop *loop;
	struct keeper *keeper;
	char *const *prefix; /* NULL-terminated */
};

/*
 * Starts PREFIX /bin/sh -c LOADER, whose shell reads one line of its input and runs it.
 * secret is the one of the marks (via_mark.h). Returns 0; then call_done() is due; or -errno with a
 * sentence.
 */
int call_start(struct call *call, const struct call_setup *setup, const struct call_events *events,
	       const char *secret, struct text *why);

/* Sends a line ahead of all input. Returns 0, -ENOMEM or -E2BIG. Its bytes are overwritten
 * afterwards. */
int call_send(struct call *call, const struct text *line);

/* As the calls of struct backend_ops. */
ssize_t call_write(struct call *call, const void *data, size_t len);
bool call_can_write(struct call *call);
void call_close_input(struct call *call);

/* There is room for the bytes of a stream again. */
void call_resume(struct call *call, enum stream_id stream);

/* Kills the processes of the call on this machine. changed() follows when none is left. */
void call_kill(struct call *call);

/* Everything of it is at its end. */
static inline bool call_over(const struct call *call)
{
	return call->gone && call->over[STREAM_STDOUT] && call->over[STREAM_STDERR];
}

/* Lets go of it; what still runs on this machine is killed. */
void call_done(struct call *call);

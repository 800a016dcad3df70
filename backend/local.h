/* A command of local:, shared by the files of that backend. */
#pragma once

#include "backend.h"
#include "keeper.h"

/* One output pipe, read on the loop. */
struct local_output {
	struct source source; /* fd -1: at its end, or closed */
	struct local_command *command;
	enum stream_id id;
	bool grown; /* the pipe has been made larger, or cannot be */
	bool held;  /* no room: waits for resume() */
};

struct local_input {
	struct source source; /* fd -1: ended */
	bool blocked;	      /* waits for room */
	bool grown;
};

struct local_command {
	struct command command;
	const struct spec *spec;
	struct kept kept;
	struct source status; /* spawn reports; fd -1: the start is decided */
	int64_t pid;	      /* 0: not reported yet */
	struct local_output outputs[STREAM_COUNT];
	struct local_input input;
	struct task finish; /* reports the end once its last output has been taken */
	bool exited;	    /* the leader has, with this status (waitpid(2)): to be reported */
	int wait_status;
	bool gone;
};

struct local_backend {
	struct backend backend;
	struct keeper *keeper;
	char *directory; /* where the daemon was started: the default cwd */
	int null;	 /* the stdin of commands that have none */
};

/* The ends of the pipes that the command gets; -1: none. */
struct local_ends {
	int input;
	int output;
	int error;
	int status;
};

/* Makes the pipes of a command. Returns 0 or -errno; local_close_pipes() cleans up in any case. */
int local_make_pipes(struct local_command *c, const struct spec *spec, struct local_ends *ret);
void local_close_pipes(struct local_command *c);

/* Starts reading the outputs and watching the input. Returns 0 or -errno. */
int local_watch_pipes(struct local_command *c, struct loop *loop);

/*
 * Takes what is in the output pipes now, whatever the room: the leader, or the last
 * process, has ended. Returns false when not even so all of it could be taken.
 */
bool local_take_rest(struct local_command *c);

/* The calls of struct backend_ops that are about streams. */
ssize_t local_write(struct command *command, const void *data, size_t len);
bool local_can_write(struct command *command);
void local_close_input(struct command *command);
void local_resume(struct command *command, enum stream_id stream);
void local_close_output(struct command *command, enum stream_id stream);

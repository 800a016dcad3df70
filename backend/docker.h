/*
 * The target "docker:": what its files share. docs/docker.md says how it works.
 *
 * One backend stands for one container, in which every command is an exec of the engine
 * (docker_exec.c), or for one image, of which every command gets a container of its own, in
 * which it is an exec, too (docker_room.c); of an image without a shell, it is the container's
 * first process (docker_run.c). What is common to them is in docker_command.c.
 */
#pragma once

#include "backend.h"
#include "docker_call.h"
#include "docker_helper.h"
#include "docker_output.h"
#include "docker_removal.h"
#include "docker_stream.h"

struct docker_command;

/* What the two kinds of command do differently. */
struct docker_kind {
	/* Begins: makes the first call. */
	int (*begin)(struct docker_command *c, struct text *why);

	/* The stream is up (err 0), or is not to be had (s->answer, s->body, err). */
	void (*answered)(struct docker_command *c, int err);

	/* The stream has ended, err as in docker_stream.h. */
	void (*ended)(struct docker_command *c, int err);

	/* An exec's leader has ended: finds out whether it has left anything, or ends that. */
	void (*finish)(struct docker_command *c);

	/* Its own container is removed, and nothing of it runs. */
	void (*removed)(struct docker_command *c);

	void (*kill)(struct docker_command *c);
	int (*signal)(struct docker_command *c, int signo, struct text *why);

	/* Lets go of what is not in memory. NULL: nothing. */
	void (*release)(struct docker_command *c);
};

struct docker {
	struct backend base;
	struct docker_api api;
	const struct docker_kind *kind;
	char *container;
	char *image;
	char *network;		       /* of the containers of an image; NULL: the engine's own */
	char *owner;		       /* the label by which the next mount finds what is left */
	bool image_shell;	       /* the image has a /bin/sh */
	char prefix[DOCKER_MARK_SIZE]; /* what the marks of this mount begin with */
	unsigned serial;	       /* of the last command */
	struct docker_helper helper;   /* of root, or of the container's own user */
	struct docker_removals removals;
	struct list user_helpers; /* struct docker_user_helper */
};

/* Where the engine gives no privileges: one for each user that a spec named. */
struct docker_user_helper {
	struct docker_helper helper;
	struct list link;
	char *user;
};

enum docker_phase {
	DOCKER_MAKING,	 /* the exec or container is being made */
	DOCKER_STARTING, /* it was told to start; whether it runs is not known */
	DOCKER_RUNNING,
	DOCKER_ENDED, /* its result, or its loss, has been reported */
};

struct docker_command {
	struct command base;
	struct docker *docker;
	const struct docker_kind *kind;
	const struct spec *spec;
	enum docker_phase phase;
	char mark[DOCKER_MARK_SIZE];
	char *id;	  /* of the exec */
	char *container;  /* id */
	struct text line; /* what the far shell is to become, as far as it is not sent */
	struct docker_call call;
	struct docker_stream stream;
	struct docker_output output;
	struct docker_helper *helper; /* who looks after it */
	struct docker_ensure ensure;
	struct docker_ask ask;
	struct text ask_why;	      /* why the last one could not be answered */
	struct docker_report refusal; /* why the far shell could not become the command */
	struct timer timer;	      /* the kind's own, also armed when output is held back */
	struct task task;	      /* the kind's own */
	struct task resume_task;      /* docker_command.c's */
	unsigned asks;		      /* what is left, without an answer */
	unsigned looks;		      /* without success: how long until the next */
	uint64_t asked_ns;	      /* when the last look began */
	uint64_t ran_ns;	      /* until then it ran, or nothing was held back, for certain */
	uint64_t started_ns;
	uint64_t eof_ns; /* when the stream ended */
	bool held;
	bool killing;
	struct docker_call container_call; /* beside c->call */
	/* docker_bare.c's own. */
	struct timer bare_timer;
	/* docker_container.c's own. */
	void (*ready)(struct docker_command *c);
	int refusal_err; /* what to report once the container is removed */
	struct text refusal_why;
	bool removed; /* there is no container any more */
	/* docker_room.c's own. */
	struct docker_stream lifeline; /* the input of the container's first process */
	/* docker_run.c's own. */
	uint64_t held_ns;  /* when output was held back last */
	int code;	   /* with result_known */
	bool eof;	   /* the stream has ended */
	bool output_lost;  /* the engine said so */
	bool broken;	   /* the stream ended in a reset, which may be the engine's way */
	bool result_known; /* the engine told the leader's end */
	bool gone;	   /* no process is left */
	uint64_t gone_ns;
};

extern const struct backend_ops docker_backend;
extern const struct docker_kind docker_exec_kind;
extern const struct docker_kind docker_room_kind;
extern const struct docker_kind docker_run_kind;

static inline struct docker *docker_of(struct backend *backend)
{
	return container_of(backend, struct docker, base);
}

static inline struct docker_command *docker_command_of(struct command *command)
{
	return container_of(command, struct docker_command, base);
}

/* ---- docker_command.c ---- */

struct docker_command *docker_command_new(struct docker *docker, struct exec *exec,
					  const struct spec *spec);
void docker_command_free(struct docker_command *c);

/* There is room for output again: goes on in a later turn. */
void docker_command_resume(struct docker_command *c);

/* Opens the raw stream at path, for input and output. Returns 0 or -ENOMEM. */
int docker_command_stream(struct docker_command *c, const char *path, const char *body);

/* The command runs: reports it, and lets its output through. */
void docker_command_started(struct docker_command *c, int64_t pid);

/* It has ended with this code, and all its output is taken: reports both. */
void docker_command_exited(struct docker_command *c, int code);

/*
 * Why a command that ended had never run. Returns the -errno for its start, with a sentence; or,
 * with *program, that of its program, which is no failure of the start.
 */
int docker_command_why_not(const struct docker_command *c, struct text *why, bool *program);

/* Reports what every target reports when a program cannot be run, for -errno. */
void docker_command_no_program(struct docker_command *c, int err);

/* Makes the line that tells the far shell what to become. Returns 0 or -ENOMEM. */
int docker_command_line(struct docker_command *c);

/*
 * Whether a stream that ended with err may have ended well: an engine that closes a Unix
 * socket with input unread resets it (unix(7)), behind all output. Only the engine's word on the
 * command then tells. Over a network, a reset may have destroyed output.
 */
bool docker_command_may_be_whole(const struct docker_command *c, int err);

/* It is to be killed: its output goes on being taken, and is thrown away where there is no room. */
void docker_command_abandon(struct docker_command *c);

/* It is known to have ended: what is left of its output must not wait for readers. */
void docker_command_drain(struct docker_command *c);

/* ---- docker_exec.c ---- */

/* Makes the exec in c->container, which has a shell if output.reports. Returns 0 or -errno. */
int docker_exec_make(struct docker_command *c, struct text *why);

/* For docker_room.c: the kind's calls, timer->fire, and the report that nothing is left. */
void docker_exec_answered(struct docker_command *c, int err);
void docker_exec_ended(struct docker_command *c, int err);
void docker_exec_timer_fired(struct timer *timer);
void docker_exec_found_gone(struct docker_command *c);

/* Reports what it means that a container, as an inspection has it, does not run. Returns whether.
 */
bool docker_exec_container_stopped(struct docker_command *c, const struct docker_call *call,
				   int err, bool *paused);

/* ---- docker_bare.c ---- */

/* Looks whether anything is left of it; if it is to be killed, kills that. */
void docker_bare_ask(struct docker_command *c);

/* The leader's pid on the engine's machine: seen while it runs, that is known for certain. */
void docker_bare_leader(struct docker_command *c, int64_t pid);

int docker_bare_signal(struct docker_command *c, int signo, struct text *why);

/* ---- docker_open.c ---- */

/*
 * Whether the texts of a spec can be passed on: what goes through the engine's JSON
 * must be UTF-8. Returns 0, or -EOPNOTSUPP with a sentence.
 */
int docker_check_text(const struct docker *docker, const struct spec *spec, struct text *why);

/* ---- docker.c ---- */

/* The helper that sees this command's processes. NULL: out of memory. */
struct docker_helper *docker_helper_of(struct docker *docker, const struct spec *spec);

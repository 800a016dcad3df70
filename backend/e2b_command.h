/*
 * One command in a sandbox, from the wait for the sandbox to the word that no process of it
 * is left. e2b_command.c runs it, e2b_input.c feeds it, e2b_end.c watches how it ends and
 * kills it.
 */
#pragma once

#include "e2b_fate.h"
#include "e2b_private.h"
#include "e2b_rpc.h"
#include "e2b_sandbox.h"
#include "e2b_sweep.h"

enum e2b_phase {
	E2B_WAITING,  /* for what must be known of the sandbox: nothing was sent */
	E2B_STARTING, /* Start was sent, its first event has not come */
	E2B_RUNNING,
	E2B_ENDED,    /* its end was told: exited, signaled or lost; processes may be left */
	E2B_FINISHED, /* refused or gone was told: nothing more may be */
};

struct e2b_input {
	struct e2b_unary call; /* SendInput or CloseStdin: one in flight */
	struct text sending;   /* what it carries */
	struct text next;      /* gathered meanwhile, at most E2B_INPUT_BYTES */
	struct task task;
	struct timer timer; /* the next try of a call that may be repeated */
	unsigned tries;	    /* of that call */
	bool starved;	    /* write() found no room */
	bool close_asked;   /* by close_input() */
	bool closed;	    /* nothing more can be sent */
};

struct e2b_command {
	struct command base;
	struct e2b_sandbox *sandbox;
	const struct spec *spec;
	struct list link; /* in e2b->released, once it is */
	enum e2b_phase phase;
	char mark[E2B_MARK_LEN + 1];
	char tag[sizeof("spawnfs-") + E2B_MARK_LEN];
	uint32_t pid; /* 0: not known */
	struct task task;

	/* The start. */
	struct e2b_waiter waiter;
	struct text script;
	const char **args;
	struct spec_variable *envs;
	struct e2b_start start;
	struct e2b_stream stream;
	struct e2b_unary lookup; /* List, after a lost answer to Start */
	struct e2b_fault start_fault;
	bool start_unsure;  /* whether it ever ran, or still may, is not known */
	uint64_t unsure_ms; /* for how long, from started_ns on, nothing found is no proof */

	struct e2b_input input;

	/* Output. */
	bool held[STREAM_COUNT];
	struct text backlog; /* e2b_output.c's own */
	size_t backlog_taken;
	struct task output_task;
	bool cut[STREAM_COUNT]; /* close_output(): thrown away from now on */
	bool offered;		/* what comes was offered before, and found no room */
	uint64_t output_ns;	/* when output was last taken */
	uint64_t full_ns;	/* when a piece last came that more must have waited behind */
	bool full;		/* it was the last piece */
	uint64_t pace_ns;     /* the pauses of late after such pieces: the network's, not its own */
	uint64_t drain_bytes; /* since the leader was seen to have ended */
	bool drain_gap;	      /* there was a pause since then */

	/* The end: e2b_end.c. */
	struct timer timer; /* the next look, or the next step */
	struct e2b_job job; /* WATCH while it runs, CHECK of a zombie and after the end */
	struct e2b_job kill_job;
	struct e2b_unary flush; /* SendSignal to a leader that has ended, or as a last resort */
	uint64_t started_ns;	/* while E2B_STARTING: when Start was sent */
	uint64_t zombie_ns;	/* when the leader was seen to have ended; 0: not */
	bool child_holds;   /* a child of it was seen, or must be there: the pipes are held open */
	int wait_status;    /* the zombie's; -1: it cannot be seen */
	bool leader_told;   /* exited or signaled was told */
	uint64_t number_ns; /* when pid was last known to be the leader's or its session's */
	uint64_t gone_ns;   /* when it was first seen to be no process at all; 0: not */
	uint64_t check_delay_ms;
	struct e2b_fate_waiter fate;
	unsigned clean_sweeps; /* kills that found nothing left, in a row */
	bool kill_asked;
	bool kill_waits;     /* for the word on the sandbox's fate */
	bool kill_confirmed; /* nothing is left, but the end event has not come */
};

static inline struct e2b_command *e2b_command_of(struct command *command)
{
	return container_of(command, struct e2b_command, base);
}

/* backend_ops: start, release. */
int e2b_command_start(struct backend *backend, struct exec *exec, const struct spec *spec,
		      struct command **ret, struct text *why);
void e2b_command_release(struct command *command);

/* Frees what release() left; for the end of the backend. */
void e2b_commands_free(struct e2b *e2b);

/* No answer to Start has come within its limit. */
void e2b_command_start_expired(struct e2b_command *c);

/* Tells that it never ran. */
void e2b_command_refuse(struct e2b_command *c, int err, const char *sentence);

/* Tells that no result will come. */
void e2b_command_lose(struct e2b_command *c, const char *reason, const char *sentence);

/* ---- e2b_output.c ---- */

void e2b_output_init(struct e2b_command *c);
void e2b_output_done(struct e2b_command *c);

/* Takes output. Returns false when the rest must be offered again after a resume. */
bool e2b_output_event(struct e2b_command *c, enum stream_id stream, struct payload *payload);

/* The leader has ended: a held stream is read on, to see whether its end is near. */
void e2b_output_look_ahead(struct e2b_command *c);

/* The end has come: what is left is passed on, without waiting for a reader. */
void e2b_output_finish(struct e2b_command *c);

/* How long a pause must be, in nanoseconds, to show that nothing is on its way. */
uint64_t e2b_output_gap(const struct e2b_command *c);

/* Whether a stream waits for a reader. */
bool e2b_output_held(const struct e2b_command *c);

/* backend_ops. */
void e2b_output_resume(struct command *command, enum stream_id stream);
void e2b_output_close(struct command *command, enum stream_id stream);

/* ---- e2b_input.c ---- */

void e2b_input_init(struct e2b_command *c);
void e2b_input_done(struct e2b_command *c);
ssize_t e2b_input_write(struct command *command, const void *data, size_t len);
bool e2b_input_can_write(struct command *command);
void e2b_input_close(struct command *command);

/* ---- e2b_end.c ---- */

void e2b_end_init(struct e2b_command *c);
void e2b_end_done(struct e2b_command *c);

/* The command runs: begins to look whether its leader is there. */
void e2b_end_watch(struct e2b_command *c);

/* The end event has come, and all output before it was taken. */
void e2b_end_event(struct e2b_command *c, const struct e2b_event *event);

/* Nobody will read its output any more: makes envd let go of the pipes of an ended leader. */
void e2b_end_cut(struct e2b_command *c);

/* Its end was told: finds out whether processes are left. */
void e2b_end_check(struct e2b_command *c);

int e2b_signal(struct command *command, int signo, struct text *why);
void e2b_signal_forget(struct e2b_command *c); /* what is on its way to it */
void e2b_kill(struct command *command);

/*
 * The target via:COMMAND PREFIX, as its own files share it. What a prefix leads to is known only by
 * what a shell there says: see via_script.h. A command is one call of the prefix (via_call.h)
 * with a supervisor at its far end; signals and kills are further calls (errands).
 */
#pragma once

#include "backend.h"
#include "far_script.h"
#include "keeper.h"
#include "via_call.h"
#include "via_lease.h"
#include "via_script.h"

struct via {
	struct backend base;
	char **prefix;
	char *directory; /* where the mount was made: the prefix starts there */
	struct keeper *keeper;
	struct lease lease;
};

enum via_phase {
	VIA_CALLING,  /* no word from the supervisor yet; nothing of the command has been sent */
	VIA_STARTING, /* the command has been sent */
	VIA_RUNNING,
	VIA_ENDED, /* the leader has ended, and its output is complete */
	VIA_LOST,  /* no word will come any more */
};

enum via_left { VIA_LEFT_UNTOLD, VIA_LEFT_UNKNOWN, VIA_LEFT_HELD, VIA_LEFT_SOME, VIA_LEFT_NONE };

struct via_command {
	struct command base;
	struct list link; /* in via->lease.commands */
	const struct spec *spec;
	struct call call;
	char secret[MARK_SECRET_BYTES + 1];
	char mark[FAR_MARK_HEX + 1];
	enum via_phase phase;
	struct script_place place;
	bool place_told;   /* if only that the far side cannot tell */
	struct text noise; /* what the prefix said before the command started */
	bool ready[STREAM_COUNT];
	bool mixed;  /* the stderr of the far side came out of stdout */
	int refusal; /* -errno of the supervisor's refusal; 0: none */
	char refused_variable[64];

	bool end_seen[STREAM_COUNT];
	bool signaled;
	int code; /* or the signal's number */
	enum via_left left;

	/* The far side has said in the stream that nobody of the command has it any more. */
	bool complete[STREAM_COUNT];
	bool stream_told[STREAM_COUNT];
	bool cut[STREAM_COUNT]; /* nobody will read it: what comes is thrown away */
	/* Its PID name space was made by its own call, and dies with it. */
	bool own_space;
	/* All its processes on this machine are the call's, and the keeper kills them with it. */
	bool dies_with_call;
	bool called_guard; /* because of it */

	bool killing;	  /* a kill was asked for once */
	bool kill_asked;  /* and has not been answered */
	bool call_killed; /* because a walk could not keep up */
	bool walked; /* a walk on the far side has found, after the start, that nothing is left */
	struct errand *killer; /* the walk in progress, or NULL */
	struct list errands;   /* struct errand: all of them, signals too */

	struct task judge_task;
	struct timer linger;
	struct timer look; /* whether what is waited for a short while has come */
	unsigned looks;
	bool lingered; /* whatever holds the call's streams was given its time */
};

/* Appends how a call ended and what it said, as half a sentence. */
void via_describe_end(struct text *ret, const struct call *call, const struct text *noise);

/* Keeps the beginning of what a prefix says on its own account. */
void via_keep_noise(struct text *noise, const char *data, size_t len);

/* Looks at all facts and takes the steps that follow. Reports, and may end the command. */
void via_judge(struct via_command *c);

/* The calls of struct backend_ops. */
int via_start(struct backend *backend, struct exec *exec, const struct spec *spec,
	      struct command **ret, struct text *why);
int via_signal(struct command *command, int signo, struct text *why);
void via_kill(struct command *command);
void via_close_output(struct command *command, enum stream_id stream);
void via_release(struct command *command);

/* Gives the call a last while to come to its end by itself. */
void via_linger(struct via_command *c);
void via_linger_fired(struct timer *timer);

/*
 * The killing part of via_judge(), for a command that may have started. May end it
 * (exec_gone()): the last thing to be done with it.
 */
void via_judge_kill(struct via_command *c);
void via_look_fired(struct timer *timer);

/* ---- Further calls of the prefix (via_errand.c) ---- */

enum errand_kind { ERRAND_KILL, ERRAND_SIGNAL };

struct errand {
	struct list link;
	struct via_command *owner;
	enum errand_kind kind;
	int signo;
	char secret[MARK_SECRET_BYTES + 1];
	struct call call;
	struct text noise;
	struct timer limit;
	char answer[16]; /* its last word: none, some, elsewhere, blind; yes, no. "": none came */
};

/* Starts one for a command. Returns 0 and *ret, released by errand_free(), or -errno with a
 * sentence. */
int errand_start(struct via_command *c, enum errand_kind kind, int signo, struct errand **ret,
		 struct text *why);
void errand_free(struct errand *e);

/* It is over: from via_kill.c, which frees it. */
void via_errand_done(struct errand *e);

/* ---- A far side that is on this machine (via_local.c) ---- */

/*
 * Whether the command's PID name space was made by its own call, so that it ends with the
 * call's processes: its init is a descendant of the process prefix.
 */
bool via_space_ends_with(const struct script_place *place, pid_t prefix);

/*
 * Whether all that the shell ever starts ends with the call: it is a process below the process
 * prefix, that may be killed from here; and its orphans fall to the keeper, or die with their name
 * space. shell is its pid there.
 */
bool via_dies_with(const struct script_place *place, pid_t shell, pid_t prefix);

/* Whether any process that can be seen from here is in the name space. */
bool via_space_is_inhabited(const struct script_place *place);

/* The leader's pid as it is here. 0: it cannot be seen. */
pid_t via_leader_here(const struct script_place *place);

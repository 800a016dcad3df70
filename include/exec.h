/*
 * An exec: one command and what is known of it. It is the state machine between
 * those who use the files and the backend that runs the command, and knows
 * nothing of either: FUSE sits above and is told of changes through struct
 * exec_observer; the backend sits below and reports through backend.h.
 *
 *   NEW -> STARTING -> RUNNING -> DRAINING -> DONE
 *            |            `---- kill, loss ----^
 *            `--- refused ------------------>--'
 *
 * Two facts are kept apart. `told`: the readers of exit have been given the one
 * result, which never changes again; this is state DONE. `remote`: whether
 * processes of the command still exist on the target. A command can be told
 * and not gone: then the kill goes on, within bounds, until it is.
 *
 * An exec is freed by itself when it was removed, has no holds, and the command
 * is over (never started, gone, or given up).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "backend.h"
#include "bounds.h"
#include "list.h"
#include "spool.h"
#include "text.h"

enum exec_state { EXEC_NEW, EXEC_STARTING, EXEC_RUNNING, EXEC_DRAINING, EXEC_DONE };

enum remote_state { REMOTE_NONE, REMOTE_RUNNING, REMOTE_GONE, REMOTE_UNKNOWN };

enum result_kind {
	RESULT_NONE,
	RESULT_EXITED,
	RESULT_SIGNALED,
	RESULT_KILLED,
	RESULT_TIMEOUT,
	RESULT_LOST,
	RESULT_FAILED,
};

struct result {
	enum result_kind kind;
	int code;	 /* EXITED: the status; SIGNALED: the signal's number */
	char reason[64]; /* LOST, FAILED: the words after it */
};

/* What the files are told. Called from reports and from calls alike, never for a freed exec. */
struct exec_observer {
	/* A stream has more bytes, has ended, or has given up bytes. */
	void (*output)(struct exec *exec, enum stream_id stream);
	/* Input has room, or takes no more. */
	void (*input)(struct exec *exec);
	/* The start was decided: err is 0 or -errno. */
	void (*started)(struct exec *exec, int err);
	/* exit can be read. */
	void (*told)(struct exec *exec);
	/* The command is over on the target, or given up. */
	void (*over)(struct exec *exec);
	/* The exec is about to be freed. */
	void (*freed)(struct exec *exec);
};

struct stream {
	struct spool spool;
	bool held;  /* the backend waits for resume() */
	bool news;  /* the observer has not been told of the newest bytes */
	bool ended; /* the source has ended, or was cut off */
};

struct input {
	struct text queue; /* written before the start */
	bool blocked;	   /* the backend waits: exec_input_ready() will come */
	bool closed;	   /* the last writer has closed it */
	bool ended;	   /* the end was declared for good */
	bool eof_sent;
	int error; /* 0, or the -errno that every write now gets */
	uint64_t bytes;
};

struct exec_table {
	struct backend *backend;
	struct loop *loop;
	const struct settings *settings;
	const struct exec_observer *observer;
	struct list execs; /* struct exec, all of them, oldest first */
	size_t count;	   /* of all */
	size_t live;	   /* whose command is not over */
};

struct exec {
	struct exec_table *table;
	struct list link; /* in table->execs */
	void *owner;	  /* the observer's own */
	const char *name; /* for log lines; the observer's own */

	enum exec_state state;
	enum remote_state remote;
	struct result result;
	bool removed;	/* its directory is gone */
	unsigned holds; /* open files and the directory itself */

	struct spec *spec; /* NULL until accepted */
	struct command *command;
	int64_t pid;
	struct timespec started; /* CLOCK_REALTIME; tv_sec 0: not yet */
	struct timespec ended;
	char *error; /* a sentence for a person, or NULL */

	struct stream streams[STREAM_COUNT];
	struct input input;

	/* exec.c's own. */
	bool leader_ended;
	bool kill_wanted;
	bool kill_pending; /* asked of the backend, not answered */
	unsigned kill_tries;
	uint64_t kill_since_ns;
	uint64_t early_signals; /* to be sent when the command runs: 1 << (signo - 1) */
	uint64_t drain_since_ns;
	struct timer drain_timer;
	struct timer kill_timer;
	struct timer deadline_timer;
	struct timer spool_timer;
	struct task news_task;
	struct task settle_task;
};

void exec_table_init(struct exec_table *t, struct backend *backend, struct loop *loop,
		     const struct settings *settings, const struct exec_observer *observer);

/* Lets go of every command and frees every exec, whatever holds it: at the very end. */
void exec_table_done(struct exec_table *t);

/* Makes an exec with one hold, the caller's. Returns 0 or -ENOMEM. */
int exec_new(struct exec_table *t, void *owner, const char *name, struct exec **ret);

/* Keeps it from being freed; lets go of it again. It may be freed at the end of this turn. */
void exec_hold(struct exec *exec);
void exec_unhold(struct exec *exec);

/*
 * Starts the command of a spec, which the exec takes over in any case. Returns 0:
 * observer->started() follows; -EBUSY: it has been started before; or another
 * -errno, with the sentence in exec->error. Then the exec is either NEW still,
 * and another spec may come (-EOPNOTSUPP, -EINVAL, ...), or its start has
 * failed for good.
 */
int exec_start(struct exec *exec, struct spec *spec);

/* Puts a sentence for a person into status; NULL takes it away. */
void exec_set_error(struct exec *exec, const char *sentence);

/*
 * Takes input. Returns the bytes taken, 1 to len; -EAGAIN: no room now,
 * observer->input() follows; or -EPIPE or another final -errno.
 */
ssize_t exec_write(struct exec *exec, const void *data, size_t len);

/* Whether exec_write() would take a byte or fail now. */
bool exec_can_write(struct exec *exec);

/* A writer has opened the input; the last one has closed it, and it was all the input. */
void exec_open_input(struct exec *exec);
void exec_close_input(struct exec *exec);

/* Declares the end of input for good. Later writes get -EPIPE. Harmless when repeated. */
void exec_end_input(struct exec *exec);

/* Whether an accepted spec says so. */
bool exec_input_is(const struct exec *exec, enum spec_stdin mode);

/*
 * Sends a signal to the process group; when the command is being started, as soon as it runs.
 * Returns 0 or -errno with a sentence: -ESRCH, there is no command, or it has ended.
 */
int exec_signal(struct exec *exec, int signo, struct text *why);

/* Keeps a signal for the command that is about to be given; gives up all that are kept. */
void exec_signal_at_start(struct exec *exec, int signo);
void exec_forget_signals(struct exec *exec);

/* Kills the whole tree; the result, if there is none yet, is `killed`. */
void exec_kill(struct exec *exec);

/* Marks the directory as gone and kills. The caller's hold on it is given up. */
void exec_remove(struct exec *exec);

/* Readers: to be called instead of the spool's own, so that a held-back command goes on. */
void exec_reader_open(struct exec *exec, enum stream_id stream, struct spool_reader *r);
void exec_reader_move(struct exec *exec, enum stream_id stream, struct spool_reader *r,
		      uint64_t pos);
void exec_reader_close(struct exec *exec, enum stream_id stream, struct spool_reader *r);

static inline bool exec_told(const struct exec *exec)
{
	return exec->state == EXEC_DONE;
}

/* Whether nothing of the command is known to run, or it was given up. */
bool exec_over(const struct exec *exec);

/* Appends the line of exit, with newline: "0", "signal KILL", "lost stream_closed". */
int exec_print_result(const struct exec *exec, struct text *ret);

/* Appends the JSON of status, with newline. Holds no secret. */
int exec_print_status(const struct exec *exec, struct text *ret);

/* "KILL" for SIGKILL, "RTMIN+3"; a number where there is no name. Writes to buf, returns it. */
const char *signal_name(int signo, char *buf, size_t size);

/* Parses "TERM", "SIGTERM", "15" or "RTMIN+3" in any case. Returns the number or -EINVAL. */
int signal_parse(const char *name);

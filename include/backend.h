/*
 * A backend runs commands on one kind of target. This is the whole interface
 * between it and the rest: the calls a backend offers (struct backend_ops) and
 * the reports it makes (the exec_*() calls at the end).
 *
 * Rules that both sides keep:
 *   - everything runs on the loop thread and nothing blocks (backend_ops.open
 *     alone may, since nothing is mounted yet);
 *   - no report from within a call: a backend that knows the answer at once
 *     defers the report with loop_defer();
 *   - a command that was asked to start ends in exactly one of exec_refused()
 *     (it never ran) or, after exec_started(), exec_gone();
 *   - the order of reports is exec_started, output, then exec_ended or
 *     exec_lost once, then exec_gone; output may still come between exec_ended
 *     and exec_gone (background children), never after exec_output_end().
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bounds.h"
#include "loop.h"
#include "spec.h"
#include "text.h"

struct exec;
struct backend_ops;

enum stream_id { STREAM_STDOUT, STREAM_STDERR, STREAM_COUNT };

/* A running target. Backends embed it first in a struct of their own. */
struct backend {
	const struct backend_ops *ops;
	struct loop *loop;
	const struct settings *settings;
	unsigned keys; /* enum spec_key: what this target can do; others are EOPNOTSUPP */
	char *target;  /* as given at the mount: "ssh:host"; holds no secret */
	/* Other processes on this machine carry its bytes: a loop that spins takes a core from
	 * them. */
	bool no_spin;
	/* What else it cannot do: a sentence without a full stop. NULL: nothing is known. */
	const char *caveat;
};

/* The backend's side of one exec. Backends embed it first in a struct of their own. */
struct command {
	struct exec *exec;
	struct backend *backend;
};

/* One -o KEY or -o KEY=VALUE that the mount itself does not know. */
struct backend_option {
	const char *key;
	const char *value; /* NULL: none was given */
};

struct backend_args {
	struct loop *loop;
	const struct settings *settings; /* outlives the backend */
	const char *target;		 /* the whole target, printable: "docker:image=deb" */
	const char *address;		 /* the part after the scheme and colon */
	const struct backend_option *options;
	size_t option_count;
};

struct backend_ops {
	const char *scheme;  /* "local", without the colon */
	const char *summary; /* one line for --help: "in a container: docker:CONTAINER" */
	const char *options; /* "KEY=VALUE   what it does\n" lines for --help, or NULL */

	/*
	 * Makes the target ready for commands; called once, before the mount. May block,
	 * and may ask at the terminal. Returns 0, or -errno with a sentence in *why:
	 * what was tried on what, and what to do. An unknown option is -EINVAL.
	 * *ret is released by close().
	 */
	int (*open)(const struct backend_args *args, struct backend **ret, struct text *why);

	/* Ends it. Every command has been released. */
	void (*close)(struct backend *backend);

	/*
	 * Whether this target can do what the values in the spec ask (the keys have been
	 * checked against backend->keys). Returns 0 or -errno with a sentence. NULL: yes.
	 */
	int (*check)(struct backend *backend, const struct spec *spec, struct text *why);

	/*
	 * Starts a command. *ret is the backend's until release(). The spec stays valid
	 * until release(). Returns 0: exec_started() or exec_refused() will follow;
	 * or -errno with a sentence: nothing was started and *ret was not set.
	 * A missing or unexecutable program is not an error here: on every target
	 * the command then ends with 127 or 126 and a line on its stderr
	 * (program_error_line() below).
	 */
	int (*start)(struct backend *backend, struct exec *exec, const struct spec *spec,
		     struct command **ret, struct text *why);

	/*
	 * Passes input on. Returns the bytes taken, in order: 1 to len; or 0: no room,
	 * exec_input_ready() will follow; or -EPIPE: the command takes no more, ever;
	 * or another -errno: likewise, and some of what was taken before may be lost
	 * (the error is shown to the writer).
	 */
	ssize_t (*write)(struct command *command, const void *data, size_t len);

	/* Whether write() would take a byte now. When not, exec_input_ready() will follow. */
	bool (*can_write)(struct command *command);

	/* End of input, after all that write() took. Called at most once. */
	void (*close_input)(struct command *command);

	/* There is room again for a stream whose output found none. */
	void (*resume)(struct command *command, enum stream_id stream);

	/*
	 * Nobody will read this stream any more: it was cut off at the drain limit. Take what
	 * is in its pipe, where it can be had at once, and nothing after it; where the target can,
	 * the next write to it fails as on a closed pipe. NULL: what comes is thrown away by
	 * exec_output().
	 */
	void (*close_output)(struct command *command, enum stream_id stream);

	/*
	 * Sends a signal to the command's process group (never SIGKILL for the tree: that
	 * is kill()). Returns 0 when it is on its way, or -errno: -ESRCH, it has
	 * ended; -EOPNOTSUPP, this target cannot send it; with a sentence.
	 */
	int (*signal)(struct command *command, int signo, struct text *why);

	/*
	 * Starts killing every process of the command, those that left its group or
	 * session included, with SIGKILL. Does not close its input before that: a kill is never an
	 * end of input. exec_gone() follows, or exec_kill_failed(); then it is called
	 * again later. May be called at any time between start() and exec_gone() or
	 * exec_refused(), also more than once, also before exec_started().
	 */
	void (*kill)(struct command *command);

	/*
	 * Forgets a command: after exec_gone() or exec_refused(), or when the kill has
	 * been given up. No report may follow. No upcall may come from it.
	 */
	void (*release)(struct command *command);
};

/* All backends, ended by NULL (backend/registry.c). */
extern const struct backend_ops *const backends[];

/* Finds the backend for "scheme:address"; *address is the part after the colon. NULL: none. */
const struct backend_ops *backend_find(const char *target, const char **address);

/*
 * The one line, without newline, that stands on stderr when the program cannot be
 * run: 127 for -ENOENT and -ENOTDIR, 126 for the rest. Async-signal-safe: fills
 * buf, returns its length.
 */
size_t program_error_line(char *buf, size_t size, const char *program, int err);
static inline int program_error_code(int err)
{
	return err == -ENOENT || err == -ENOTDIR ? 127 : 126;
}

/* ---- Reports: what a backend tells an exec (fs/exec/exec.c) ---- */

/* The command runs. pid on the target, 0 when the target has none to tell. */
void exec_started(struct exec *exec, int64_t pid);

/*
 * It could not be started, and certainly does not run. err is the -errno for the writer of
 * the spec; the sentence says what was tried on what and what to do. After a kill both are
 * replaced: it failed because of that.
 */
void exec_refused(struct exec *exec, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/*
 * Room for output: *ret points at the returned number of bytes, to be filled and
 * committed before anything else is done with this exec. 0: held back, do not read the source
 * until resume(). Never fails otherwise: no memory is held back, too.
 */
size_t exec_output_reserve(struct exec *exec, enum stream_id stream, void **ret);
void exec_output_commit(struct exec *exec, enum stream_id stream, size_t len);

/*
 * Takes all len bytes and returns true, or none and returns false: held back,
 * offer the same bytes again after resume().
 */
bool exec_output(struct exec *exec, enum stream_id stream, const void *data, size_t len);

/* Whether the stream has room; when not, resume() will follow. */
bool exec_output_has_room(struct exec *exec, enum stream_id stream);

/*
 * What the ended command left in a pipe: bytes that must be taken without waiting for a
 * reader. Raises the bound of that stream by len, at most DRAIN_ALLOWANCE in all.
 */
void exec_output_overdraw(struct exec *exec, enum stream_id stream, size_t len);

/* The stream is at its end. With merged stderr, STREAM_STDERR ends by itself. */
void exec_output_end(struct exec *exec, enum stream_id stream);

/* The input has room again. */
void exec_input_ready(struct exec *exec);

/* The command has closed its input, or ended: err is -EPIPE, or what became of the input. */
void exec_input_closed(struct exec *exec, int err);

/*
 * The command itself (the leader) has ended: by exiting with code 0 to 255, or
 * by a signal. Before this, take all the output it left (exec_output_overdraw()).
 * Children may go on, and may hold the streams open: the exec waits for the
 * ends of the streams, within its drain limits.
 */
void exec_exited(struct exec *exec, int code);
void exec_signaled(struct exec *exec, int signo);

/*
 * No result will come: reason is one word for the exit file (stream_closed), the sentence is for
 * status. The exec then kills the command until it is known to be gone.
 */
void exec_lost(struct exec *exec, const char *reason, const char *fmt, ...) PRINTF_LIKE(3, 4);

/*
 * No process of the command is left on the target (as far as the target can tell). Take
 * what they left in the streams before this, as before exec_exited(): it ends them.
 */
void exec_gone(struct exec *exec);

/* A kill did not work out: err is -errno. The exec calls kill() again after a while. */
void exec_kill_failed(struct exec *exec, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A sentence for status and the log that changes nothing else. */
void exec_note(struct exec *exec, const char *fmt, ...) PRINTF_LIKE(2, 3);

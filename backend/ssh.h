/*
 * The parts of the backend ssh: and what they know of each other.
 *
 *   ssh.c          the backend: opening and closing
 *   ssh_pool.c     the connections: which command goes over which, and when another is made
 *   ssh_helper.c   a shell on the host, one for each connection, that finds and kills
 *   ssh_command.c  a command: its start, what its channel reports, its calls
 *   ssh_end.c      its end: when its output is complete, when nothing of it is left
 *   ssh_stream.c   its streams: from the channel to the exec
 * Below them ssh_link and ssh_channel speak the protocol, ssh_client runs ssh(1), and ssh_wire and
 * ssh_options are pure. far_script has what runs on the host.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"
#include "far_script.h"
#include "list.h"
#include "loop.h"
#include "ssh_channel.h"
#include "ssh_link.h"
#include "ssh_options.h"

struct ssh_command;

struct ssh {
	struct backend backend;
	struct ssh_options options;
	struct list links; /* struct ssh_link, all of them, those being made too */
	size_t link_count;
	struct list queue;   /* struct ssh_command that wait for a channel */
	struct list errands; /* struct ssh_errand that wait for a helper */
	bool opening;	     /* before the mount: the first connection may ask */
	bool helpers_apart;  /* one session is all the server allows on a connection */
	uint64_t not_before_ns;
	uint64_t retry_ms;
	struct timer retry;
	struct text failure; /* why the last connection could not be made */
	int failure_err;
};

/* ---- ssh.c ---- */

/* The host has no /proc to look through: what was killed cannot be known to be gone. */
void ssh_note_blind(struct ssh *ssh);

/* ---- ssh_helper.c ---- */

/* The part of a mark that all commands of a connection share. */
#define SSH_PREFIX_HEX 16

enum ssh_errand_kind { SSH_CHECK, SSH_KILL };

enum ssh_answer {
	SSH_NONE_LEFT,
	SSH_SOME_LEFT,
	SSH_UNSURE,    /* something is left of which nobody knows whose it is */
	SSH_BLIND,     /* the host has no way to look */
	SSH_ELSEWHERE, /* nothing, but it was not looked where the command is */
	SSH_NO_ANSWER, /* no connection, or none that answers */
};

/* What is to be found out about a command; embedded in it. One at a time. */
struct ssh_errand {
	struct list link; /* in a helper, or in ssh->errands; unlinked: none */
	enum ssh_errand_kind kind;
	bool alone; /* not together with others: the answer must be about this one */
	void (*done)(struct ssh_errand *errand, enum ssh_answer answer);
};

/* Where processes have their numbers: all is "" when not known. As far_helper() says it. */
struct ssh_place {
	char boot[40];
	char space[32];
	char machine[40];
};

struct ssh_helper {
	struct ssh *ssh;
	struct ssh_link *link;
	struct ssh_channel *channel;
	char prefix[SSH_PREFIX_HEX + 1];
	char mark[FAR_MARK_HEX + 1];
	bool there;  /* a far shell, which is given the line that makes it one */
	bool ready;  /* it reads requests, and kills at the end of its input */
	bool failed; /* it will not */
	bool sees;   /* it can look; then these are its own: */
	int64_t pid;
	uint64_t ticks;
	struct ssh_place place;
	unsigned restarts;
	char end[64]; /* how it ended, or why its channel did */
	struct text said;
	struct text line; /* not yet sent */
	size_t line_at;
	struct list commands; /* struct ssh_command whose marks have its prefix */
	struct list queue;    /* errands not asked */
	struct list asked;    /* errands in the present request */
	unsigned number;      /* of it */
	struct timer patience;
	struct timer together;
};

/* Makes what a connection has besides itself. Returns 0, -ENOMEM or -EIO. */
int ssh_helper_new(struct ssh *ssh, struct ssh_helper **ret);

/*
 * Its link is dead, as why says, or the backend closes: its errands wait for another helper. What
 * it still had to look after on other connections is lost.
 */
void ssh_helper_free(struct ssh_helper *helper, const char *why);

/* Starts the shell. */
void ssh_helper_start(struct ssh_helper *helper);

/* A command is given to a helper, or has no part in it any more. */
void ssh_helper_join(struct ssh_helper *helper, struct ssh_command *command);
void ssh_helper_leave(struct ssh_command *command);

/* Whether it answers, or may yet. */
bool ssh_helper_usable(const struct ssh_helper *helper);

/* Whether it is known what it can do: until then no command is started on its connection. */
bool ssh_helper_settled(const struct ssh_helper *helper);

/* Has an errand done; soon, or together with others after a moment. */
void ssh_helper_ask(struct ssh_helper *helper, struct ssh_errand *errand);

/* Sends a signal to the group of a command. Returns 0, -EHOSTUNREACH or -ENOMEM. */
int ssh_helper_signal(struct ssh_helper *helper, const struct ssh_command *command, int signo);

/* ---- ssh_pool.c ---- */

void ssh_pool_init(struct ssh *ssh);

/* Finds or makes room for a channel: ssh_command_open() or ssh_command_no_link() follows. */
void ssh_pool_queue(struct ssh *ssh, struct ssh_command *command);

/* Has an errand done by the helper of its own connection, or else by any. */
void ssh_pool_ask(struct ssh *ssh, struct ssh_helper *own, struct ssh_errand *errand);

/* A helper has become ready, or will not. */
void ssh_pool_helper_changed(struct ssh *ssh);

/* Makes a connection. Returns 0, or -errno with a sentence. */
int ssh_pool_connect(struct ssh *ssh, struct text *why);

/* Ends all of them. */
void ssh_pool_close(struct ssh *ssh);

bool ssh_pool_up(const struct ssh *ssh);

/* ---- ssh_command.c, ssh_end.c, ssh_stream.c ---- */

enum ssh_stage {
	SSH_WAITING,  /* for a channel */
	SSH_OPENING,  /* for the far shell to say that it is there */
	SSH_STARTING, /* for it to say that it becomes the command */
	SSH_RUNNING,
};

struct ssh_stream {
	struct text kept; /* not passed on: before the start, or held back */
	size_t kept_at;
	bool real; /* what comes is the command's */
	bool cut;
};

struct ssh_command {
	struct command command;
	struct ssh *ssh;
	const struct spec *spec;
	struct list link; /* in ssh->queue while WAITING */
	enum ssh_stage stage;
	struct ssh_channel *channel;
	struct ssh_helper *helper; /* that it was started under; NULL when that is lost */
	struct list of_helper;	   /* in helper->commands */
	struct ssh_stream streams[STREAM_COUNT];

	char mark[FAR_MARK_HEX + 1];
	struct ssh_place place;
	int64_t pid;
	char ticks[24];
	uint64_t started_ns;
	uint64_t held_ns; /* until then its leader was there for certain; 0: it is */
	uint64_t until;	  /* until then its session was its own; in ticks of the host */
	bool lost;	  /* the connection was, once */
	unsigned tries;	  /* to start it that its connection did not outlive */
	struct text line; /* the one that starts it */
	size_t line_at;

	bool killed;
	struct text survivors; /* of the leader: "PID TICKS" of each */
	bool ended;	       /* the leader has; how: signo, else code */
	int code;
	int signo;	   /* 0: exited; -1: a signal that has no name */
	bool end_reported; /* exec_exited() and the like, or exec_lost() */
	bool eof;	   /* no more data will come */
	bool eof_reported;
	bool closed;	  /* by the host */
	bool pinged;	  /* a pong will come */
	bool data_since;  /* since the last pong */
	unsigned silence; /* pongs without data in between */
	bool asked;	  /* whether something is left, after its end */
	bool gone;	  /* nothing is left of it; the channel's end is waited for */

	struct ssh_errand errand;
	struct task step;
	struct timer patience;
	int refusal; /* -errno to be told in step, or 0 */
	struct text why;
};

/* A link has room for its channel. */
void ssh_command_open(struct ssh_command *c, struct ssh_link *link);

/* No connection can be made. */
void ssh_command_no_link(struct ssh_command *c, int err, const char *why);

/* The helper that was to look after it is lost, though its own connection is not. */
void ssh_command_lose(struct ssh_command *c, const char *why);

/* Looks at what is known and does what follows; soon. */
void ssh_command_step(struct ssh_command *c);

/* ssh_end.c: its task, its timer, and the answer to its errand. */
void ssh_end_step(struct task *task);
void ssh_end_patience(struct timer *timer);
void ssh_end_errand_done(struct ssh_errand *errand, enum ssh_answer answer);

/* Its leader was there at that time, of monotonic_ns(), and may not be any more. */
void ssh_command_note_held(struct ssh_command *c, uint64_t ns);

/* The far shell is there, or becomes the command, or says why not. */
void ssh_command_ready(struct ssh_command *c, const char *pid);
void ssh_command_started(struct ssh_command *c, const char *ticks);
void ssh_command_refused(struct ssh_command *c, const char *what, const char *detail);

/* Bytes of the channel. */
void ssh_stream_data(struct ssh_command *c, enum stream_id id, const char *data, size_t len);
/* Passes on what is kept; true when nothing is left. */
bool ssh_stream_push(struct ssh_command *c, enum stream_id id);
/* Throws away what is kept and what will come. */
void ssh_stream_cut(struct ssh_command *c, enum stream_id id);
/* The leader has ended: what it left must be taken without waiting for a reader. */
void ssh_stream_overdraw(struct ssh_command *c);
/* Appends what a login shell said instead of starting us, in brackets; or nothing. */
void ssh_stream_noise(const struct ssh_command *c, struct text *ret);

/* backend_ops of the same names. */
int ssh_command_start(struct backend *backend, struct exec *exec, const struct spec *spec,
		      struct command **ret, struct text *why);
ssize_t ssh_command_write(struct command *command, const void *data, size_t len);
bool ssh_command_can_write(struct command *command);
void ssh_command_close_input(struct command *command);
void ssh_command_resume(struct command *command, enum stream_id stream);
void ssh_command_close_output(struct command *command, enum stream_id stream);
int ssh_command_signal(struct command *command, int signo, struct text *why);
void ssh_command_kill(struct command *command);
void ssh_command_release(struct command *command);

extern const struct backend_ops ssh_backend;

/*
 * The helper: a shell in the container, made when the mount is, that looks for, signals
 * and kills the processes of commands when asked, since the engine has no call for that
 * (far_script.h, far_helper()). It runs as the container's root and with every privilege, because
 * it must see and kill the processes of all users.
 *
 * It is also what ends the commands of a mount whose daemon has died: the engine gives it
 * the end of its input then, and it kills them all.
 *
 * A helper belongs to one container, by id. When it is lost - the container was
 * restarted, or replaced under the same name - the next ask or ensure makes another.
 */
#pragma once

#include <stdint.h>

#include "docker_stream.h"
#include "far_script.h"
#include "list.h"

/* The value of SPAWNFS_EXEC: FAR_MARK_HEX digits and a NUL. */
#define DOCKER_MARK_SIZE (FAR_MARK_HEX + 1)

enum docker_ask_kind { DOCKER_ASK_CHECK, DOCKER_ASK_KILL, DOCKER_ASK_SIGNAL };

/* A question, embedded in its owner, zeroed at first. One at a time. */
struct docker_ask {
	const char *mark;
	int64_t pid;	/* of the leader, in the container; 0: not known */
	uint64_t ticks; /* when it began, as far_script.h has it */
	bool runs;	/* the leader is not known to have ended */
	uint64_t until; /* until then its session was the command's, as far_script.h has it */
	struct text survivors; /* what the last check has found; the owner's to free */
	int signo;
	/*
	 * 0: nothing of the command is left; or the signal was sent. 1: some is left; or there
	 * was nobody to signal. -errno with a sentence: it is not known.
	 */
	void (*done)(struct docker_ask *ask, int answer, const char *why);

	/* The rest is docker_helper.c's own. */
	struct list link;
	enum docker_ask_kind kind;
	unsigned number;
	bool sent;
	bool queued;
};

/* Somebody who needs the helper's container. Embedded, zeroed at first. */
struct docker_ensure {
	/* 0: helper->container is there and runs; helper->shell says whether it has a shell. */
	void (*done)(struct docker_ensure *ensure, int err, const char *why);

	struct list link; /* docker_helper.c's own */
	bool queued;
};

enum docker_helper_state { DOCKER_HELPER_OFF, DOCKER_HELPER_MAKING, DOCKER_HELPER_UP };

struct docker_helper {
	char *container;  /* id; NULL: never found */
	bool shell;	  /* the container has a /bin/sh, and the helper is in it */
	bool privileged;  /* it serves all users */
	const char *user; /* else this one; NULL: the container's own */

	/* The rest is docker_helper.c's own. */
	struct docker_api *api;
	const char *name;   /* of the container, as the user gave it */
	const char *prefix; /* of the marks of this mount */
	char mark[DOCKER_MARK_SIZE];
	enum docker_helper_state state;
	bool no_shell; /* known of this container: no helper is tried again */
	struct docker_call call;
	struct docker_stream stream;
	struct text unsent; /* input for the shell */
	struct text heard;  /* of its stdout, an unfinished line */
	struct text complaint;
	struct timer timer;
	struct task task;
	struct list ensures; /* struct docker_ensure */
	struct list asks;    /* struct docker_ask */
	unsigned number;
};

/* All of them must outlive it. */
void docker_helper_init(struct docker_helper *h, struct docker_api *api, const char *name,
			const char *user, const char *prefix);

/* Lets it go: what is left of the mount's commands in the container is killed by it. */
void docker_helper_done(struct docker_helper *h);

/* Finds the container, and starts the helper in it, unless that is so already. */
void docker_helper_ensure(struct docker_helper *h, struct docker_ensure *ensure);
void docker_ensure_cancel(struct docker_ensure *ensure);

/* The container is not what it was: look at it anew. */
void docker_helper_forget(struct docker_helper *h);

/* Asks; done() follows in a later turn. Asked again before that, the newer question counts. */
void docker_helper_ask(struct docker_helper *h, struct docker_ask *ask, enum docker_ask_kind kind);
void docker_ask_cancel(struct docker_ask *ask);

/*
 * Sends a signal to the process group of a command whose leader is pid and ticks there. Nobody is
 * told what becomes of it but the log. Returns 0 or -ENOMEM.
 */
int docker_helper_signal(struct docker_helper *h, const struct docker_ask *leader, const char *mark,
			 int signo);

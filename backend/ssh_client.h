/*
 * The process that makes the connection: the user's ssh(1) as a multiplexing master, which we
 * neither configure nor look into. It is a child that ends with us, however we end, and
 * its control socket exists only until we have connected to it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "loop.h"
#include "ssh_options.h"

struct ssh_client;

struct ssh_client_events {
	/* The master listens: it is connected to the host. fd is the receiver's. */
	void (*connected)(struct ssh_client *client, int fd);
	/* It has ended, before or after that; ssh_client_reason() says why. */
	void (*ended)(struct ssh_client *client);
};

struct ssh_client {
	const struct ssh_client_events *events;
	struct loop *loop;
	pid_t pid; /* 0: none */
	struct source process;
	struct source said;	/* its stderr */
	struct source appeared; /* inotify on directory, until connected */
	bool asking;		/* its messages are for the person at the terminal */
	char directory[64];	/* "": removed */
	char line[512];		/* the last whole line it said */
	char part[512];		/* what has come of the next */
	size_t part_len;
};

/* Starts it. Returns 0 or -errno with a sentence. Ended by ssh_client_stop(). */
int ssh_client_start(struct ssh_client *client, struct loop *loop,
		     const struct ssh_client_events *events, const struct ssh_options *options,
		     enum ssh_what what, struct text *why);

/* Ends it without a report; harmless when not started. */
void ssh_client_stop(struct ssh_client *client);

/* Why it ended, as it said itself: "" when it said nothing. Valid until started again. */
const char *ssh_client_reason(const struct ssh_client *client);

/*
 * Runs `ssh -G`, what being one of the kinds of it, and appends what it prints. Blocks. Returns 0,
 * or -errno with a sentence; what ssh has to say about a wrong configuration is then on stderr.
 */
int ssh_client_resolve(const struct ssh_options *options, enum ssh_what what, struct text *ret,
		       struct text *why);

/*
 * What the user said about the connection, and the command line of ssh(1) that follows from
 * it. The address is one argument of ssh, never a part of another; nothing here goes through a
 * shell.
 */
#pragma once

#include <stddef.h>

#include "backend.h"
#include "text.h"

/* A NULL-terminated argv in the making; the strings are its own. Zeroed is empty. */
struct ssh_argv {
	char **words;
	size_t count;
};

struct ssh_options {
	struct ssh_argv base; /* the program and its options */
	size_t program_words; /* how many of them are the program */
	char *host;	      /* "user@host": the last argument */
};

/*
 * Parses "[user@]host[:port]" ("[user@][::1]:22" for IPv6) and the options of the mount. Returns 0,
 * or -EINVAL or -ENOMEM with a sentence. To be released, also after an error, with
 * ssh_options_done().
 */
int ssh_options_parse(const struct backend_args *args, struct ssh_options *ret, struct text *why);
void ssh_options_done(struct ssh_options *options);

enum ssh_what {
	SSH_RESOLVE,	   /* print the configuration that applies: ssh -G */
	SSH_RESOLVE_PLAIN, /* ... as it were without any file or option */
	SSH_MASTER_ASKING, /* be a master; may ask at the terminal */
	SSH_MASTER_SILENT, /* be a master; never ask */
};

/* Makes an argv; control_path is where a master listens. Returns 0 or -ENOMEM. */
int ssh_options_argv(const struct ssh_options *options, enum ssh_what what,
		     const char *control_path, struct ssh_argv *ret);

/*
 * Sets what neither the options nor the configuration say, and where ssh's own default does not
 * suit a mount: a dead network must be noticed, a connection attempt must end. resolved and plain
 * are the outputs of ssh -G, plain "" when not known. Returns 0 or -ENOMEM.
 */
int ssh_options_defaults(struct ssh_options *options, const char *resolved, const char *plain);

void ssh_argv_done(struct ssh_argv *argv);

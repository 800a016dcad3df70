/* The command line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "backend.h"
#include "bounds.h"
#include "log.h"
#include "text.h"

enum command_line { COMMAND_MOUNT, COMMAND_HELP, COMMAND_VERSION };

struct options {
	enum command_line command;
	const char *target;
	const char *mountpoint;
	bool foreground;
	bool allow_other;
	enum log_level log_level;
	struct settings settings;
	struct backend_option *backend_options; /* what the mount itself does not know */
	size_t backend_option_count;
};

/*
 * Parses argv. Returns 0, or -errno with a sentence in *why. *ret points into argv;
 * released by options_done() in any case.
 */
int options_parse(int argc, char **argv, struct options *ret, struct text *why);
void options_done(struct options *o);

/* Prints what --help says. */
void options_print_help(void);

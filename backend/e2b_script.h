/*
 * A short shell script in a sandbox, for what envd has no call for: it runs by a Start of its
 * own, as /bin/sh -c TEXT, and its output is collected. envd kills it at its limit, so that no
 * script is left behind by a mount that died.
 */
#pragma once

#include "e2b_rpc.h"

#define E2B_SCRIPT_ARGS_MAX 256

/* Every script has two variables, of this name with _1 and _2. */
#define E2B_SCRIPT_MARK "SPAWNFS_SCRIPT"

struct e2b_script {
	/* The owner's part; what it points at must live until done(). */
	struct e2b_sandbox *sandbox;
	const char *user; /* NULL: the sandbox's default */
	const char *text;
	const char *args[E2B_SCRIPT_ARGS_MAX]; /* $1 and on */
	size_t arg_count;
	unsigned limit_s;
	/* fault is NULL: it ended with exit_code (-1: by a signal) and wrote `output`. */
	void (*done)(struct e2b_script *script, int exit_code, const struct e2b_fault *fault);

	struct text output;
	/* e2b_script.c's own. */
	struct e2b_stream stream;
	struct e2b_start start;
	const char *argv[E2B_SCRIPT_ARGS_MAX + 3];
	bool ended;
	int exit_code;
};

/* Runs it. Returns 0: done() follows; or -ENOMEM: nothing follows. */
int e2b_script_run(struct e2b_script *script);

/* Forgets it without done(). Harmless when it does not run. */
void e2b_script_cancel(struct e2b_script *script);

/* The parts of the target fake: the backend (fake.c) and the steps of its scripts. */
#pragma once

#include "backend.h"

struct fake {
	struct command command; /* first: what the exec knows */
	const struct spec *spec;
	size_t step; /* the argument that is being done */
	bool started;
	bool waited; /* the delay of this step has been armed */
	bool ended;  /* the leader has ended, or is lost */
	bool exited;
	uint64_t flooded; /* bytes of this step that are out */
	int signo;	  /* was sent; 0: none */

	struct text input;
	size_t input_max;
	size_t input_total;
	bool slow;
	bool eof;
	bool wants_room; /* a writer was turned away */

	int kill_failures; /* the next kills that fail; -1: all of them */
	int kill_ignored;  /* the next kills that are not answered; -1: all of them */
	uint64_t kill_delay_ms;

	struct task task;
	struct task kill_task;
	struct timer timer;
	struct timer kill_timer;
	struct timer input_timer;
};

/* What became of a step. OVER: the exec has let go of the command, which is freed. */
enum fake_progress { FAKE_DONE, FAKE_WAIT, FAKE_OVER };

struct fake_step {
	const char *name;
	enum fake_progress (*run)(struct fake *f, const char *arg);
	bool before_start; /* does not start the command */
};

/* Finds the step of "NAME ARGUMENT" and its argument. NULL: there is none of that name. */
const struct fake_step *fake_step_find(const char *text, const char **arg);

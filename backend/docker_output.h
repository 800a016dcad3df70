/*
 * The way of a command's output from the engine's stream into its exec, with the gate
 * that keeps out what is not the command's. Until it is known that the command runs,
 * everything is held, since an engine writes "no such program" into the same stream; and
 * the far shell's reports (far_script.h), lines on stdout that begin with the mark, are taken out.
 */
#pragma once

#include "backend.h"
#include "text.h"

struct docker_output {
	struct exec *exec;
	bool merged;
	bool reports;	  /* a far shell runs first, and reports */
	const char *mark; /* what its reports begin with */
	bool draining;	  /* the command has ended: take what it left without waiting for readers */
	bool killed;	  /* nobody is promised more: what finds no room is thrown away */

	/* docker_output.c's own. */
	bool open;			 /* the command runs */
	struct text early[STREAM_COUNT]; /* held at the gate */
	size_t overdrawn[STREAM_COUNT];
	bool cut[STREAM_COUNT]; /* something was thrown away: nothing may follow it */
};

/* Returns the bytes taken; less than len: held, offer the rest again after resume(). */
size_t docker_output_take(struct docker_output *o, enum stream_id id, const char *data, size_t len);

enum docker_report_kind {
	DOCKER_REPORT_NONE, /* no whole line has come */
	DOCKER_REPORT_PID,
	DOCKER_REPORT_START, /* the next byte is the command's */
	DOCKER_REPORT_CWD,
	DOCKER_REPORT_ENV,
};

struct docker_report {
	enum docker_report_kind kind;
	uint64_t number; /* PID: that; START: the ticks */
	int err;	 /* CWD: -errno */
	char name[256];	 /* ENV: of the variable, perhaps cut */
};

/* Takes the next report out, while the gate is closed. */
struct docker_report docker_output_report(struct docker_output *o);

/* The command runs: opens the gate. What was held goes on with the next take() or flush(). */
void docker_output_open(struct docker_output *o);

/* Passes on what was held. Returns false when a stream has no room. */
bool docker_output_flush(struct docker_output *o);

/* What came while the gate was closed and the command never ran: the engine's own words. */
const char *docker_output_refusal(const struct docker_output *o);

void docker_output_done(struct docker_output *o);

/*
 * Looking after the processes of commands inside a sandbox, since envd knows the leader of each
 * only, and not even whether that has ended while a child holds its output open. One
 * script serves many commands at once: jobs are collected while one runs.
 *
 * A process belongs to a command when it is the leader, carries the command's mark in its
 * environment, which children inherit, or is in the session that the leader made.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "e2b_script.h"
#include "list.h"
#include "loop.h"

/* The variable that marks the processes of a command; its value is 32 hexadecimal digits. */
#define E2B_MARK_NAME "SPAWNFS_EXEC"
#define E2B_MARK_LEN 32

enum e2b_job_kind {
	E2B_JOB_WATCH, /* is the leader there, or a zombie? */
	E2B_JOB_CHECK, /* how many processes are there? */
	E2B_JOB_KILL,  /* SIGKILL for all of them, until none is there */
};

/* One question about one command. Embedded in its owner, who zeroes it and fills the first part. */
struct e2b_job {
	uint32_t pid;	  /* of the leader; 0: not known */
	bool doubtful;	  /* not for WATCH: the number may be another's by now */
	const char *mark; /* must live until done() */
	/*
	 * fault is NULL: state is the leader's in /proc/PID/stat at the end ('Z': zombie, '-': no
	 * such process, or pid is 0, or doubtful); number is how many processes live, -1 when there
	 * are only such as cannot be told from another's, and for WATCH the
	 * zombie's wait status, -1 when that cannot be seen.
	 */
	void (*done)(struct e2b_job *job, char state, int number, const struct e2b_fault *fault);

	/* e2b_sweep.c's own. */
	struct list link;
	enum e2b_job_kind kind;
	bool answered;
	char state;
	int number;
};

struct e2b_sweeper {
	struct e2b_sandbox *sandbox;
	struct list waiting; /* struct e2b_job */
	struct list asked;   /* those that the running script was asked about */
	struct timer timer;
	uint64_t due_ns; /* when the timer fires */
	struct e2b_script script;
	struct text args; /* backing of script.args */
	bool busy;
	bool no_root; /* the sandbox has no user root: its default user looks, as far as it can */
};

void e2b_sweeper_init(struct e2b_sweeper *sweeper, struct e2b_sandbox *sandbox);
void e2b_sweeper_done(struct e2b_sweeper *sweeper);

/*
 * Asks, after delay_ms at the latest, so that others may join; done() follows, never from
 * within this call. A job may be asked once at a time.
 */
void e2b_sweep(struct e2b_sweeper *sweeper, struct e2b_job *job, enum e2b_job_kind kind,
	       uint64_t delay_ms);

void e2b_job_init(struct e2b_job *job);

/* Forgets a job without done(). What was asked may still be done. */
void e2b_job_cancel(struct e2b_job *job);
static inline bool e2b_job_active(const struct e2b_job *job)
{
	return !list_empty(&job->link);
}

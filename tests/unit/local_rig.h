/*
 * What stands in for the core in tests of the backend local: alone. The reports of
 * a command are kept in a struct exec, and every step is checked to be one that
 * is allowed there; commands run on a real loop under a real keeper.
 */
#pragma once

#include <stdio.h>

#include "backend.h"
#include "check.h"
#include "loop.h"
#include "spec.h"
#include "text.h"

#define DEADLINE_MS 20000

struct exec {
	struct command *command;
	struct text streams[STREAM_COUNT];
	bool ended_streams[STREAM_COUNT];
	size_t room;	  /* 0: unbounded */
	size_t allowance; /* what an ended command may leave beyond it; 0: unbounded */
	bool started, refused, exited, signaled, lost, gone, input_closed;
	int64_t pid;
	int value;
	char why[512];
};

extern struct loop *loop;
extern struct backend *backend;
extern const char *tree; /* the option of this run: cgroup or walk */

/* One command: its spec and what was reported of it. */
struct run {
	struct spec spec;
	struct exec exec;
	char *argv[16];
};

#define SH(script)                                                                                 \
	{                                                                                          \
		(char *)"/bin/sh", (char *)"-c", (char *)(script), NULL                            \
	}
/* What it wrote to stdout and stderr so far. */
#define OUT(r) text_str(&(r).exec.streams[STREAM_STDOUT])
#define ERR(r) text_str(&(r).exec.streams[STREAM_STDERR])

/* Opens the backend anew. */
void open_backend(void);

/* Starts the command of r->argv; runs it to its end; frees what it wrote. */
void start(struct run *r);
void finish(struct run *r);
void run_done(struct run *r);

/* Gives the command back to the backend. */
void release(struct exec *exec);

/* Runs the loop until a condition holds, which must be within the deadline; or for a while. */
#define await(condition) await_within(&(condition), #condition, DEADLINE_MS)
void await_within(const bool *condition, const char *what, uint64_t ms);
void run_for(uint64_t ms);

/* The entries of a directory. */
int count_entries(const char *path);

/* Whether a process is there and no zombie; its parent; its first child: 0 when there is none. */
bool alive(pid_t pid);
pid_t parent_of(pid_t pid);
pid_t child_of(pid_t pid);

/* Waits until a process has no child: orphans are reaped a little after the tree is gone. */
void await_no_child(pid_t pid);

/* Takes the pids that the command writes, one a line. */
void await_pids(struct run *r, pid_t *pids, size_t count);

/* Runs a test on a backend of its own and checks that it leaves no process. */
#define RUN_LOCAL(test)                                                                            \
	do {                                                                                       \
		open_backend();                                                                    \
		RUN(test);                                                                         \
		close_backend();                                                                   \
	} while (0)
void close_backend(void);

/* To be called first, with the arguments of main(). */
void local_rig_init(int argc, char **argv);

/*
 * A loop, the scripted target fake and one exec on it at a time, with an observer that records what
 * it was told.
 */
#pragma once

#include "exec.h"

/* What the observer of the present exec has seen. */
extern struct seen {
	struct exec *exec; /* NULL once it was freed */
	int started;	   /* times */
	int start_err;
	int told;
	int over;
	int freed;
	unsigned kill_tries; /* when it was over */
	bool output_after_told;
} seen;

extern struct settings settings;
extern struct exec_table table;

void rig_open(void);
void rig_close(void);

/* Runs the loop until the condition holds, which is looked at after each report. */
void run_until(bool (*wanted)(void));
void run_for(uint64_t ms);

bool is_started(void);
bool is_told(void);
bool is_over(void);
bool is_told_and_over(void);
bool is_freed(void);
bool may_write(void);

/* Makes the exec; starts it (returns what exec_start() does); both, and it has started. */
void begin(void);
int start(const char *spec);
void begin_started(const char *spec);

/* Removes it, waits until it has been freed, and checks that nothing is left. */
void finish(void);

/* It was told, and in this line of exit. */
void check_result(const char *wanted);
void check_ended_streams(void);

/* All that stands in a stream from off on, as a string that the next call overwrites. */
const char *output(enum stream_id id, uint64_t off);

/* What the parts of the exec object share among themselves. */
#pragma once

#include <stdarg.h>

#include "exec.h"

/*
 * Looks at the facts and takes the steps that follow: tells the result once it is
 * complete, and frees. Runs as a task, so that nothing is freed under a caller.
 */
void exec_settle_later(struct exec *exec);

/* Fixes the result, if it is not fixed yet. */
void exec_set_result(struct exec *exec, enum result_kind kind, int code, const char *reason);

/* Lets go of the backend's side: the command is over, and remote says in what way. */
void exec_release(struct exec *exec, enum remote_state remote);

/* Milliseconds since a monotonic_ns() of before. */
uint64_t exec_elapsed_ms(uint64_t since_ns);

/* Puts a formatted sentence into status, made fit for it. */
void exec_set_error_format(struct exec *exec, const char *fmt, va_list args) PRINTF_LIKE(2, 0);

/* The leader has ended, or is as good as: what is left is output. */
void exec_begin_drain(struct exec *exec);

/* Nothing more goes in or comes out: what there is of output is all that readers get. */
void exec_end_streams(struct exec *exec);

/* Output came while draining: the quiet time starts again. */
void exec_drain_active(struct exec *exec);

/* All output that will be readable is in the spools. */
bool exec_drained(const struct exec *exec);

/* Ends the streams that are still open: nothing more is taken from them. */
void exec_cut_streams(struct exec *exec);

/*
 * Tells the observer of new output. It is a task of its own, so that a backend that
 * reads a pipe in pieces makes one answer for the reader, not one a piece.
 */
void exec_tell_news(struct task *task);

/* A held stream is tried again: a full disk may have room. */
void exec_spool_timer_fired(struct timer *timer);

/* Passes on what was queued before the start. */
void exec_input_flush(struct exec *exec);

/* Further writes fail with err (-errno); writers are told. */
void exec_input_fail(struct exec *exec, int err);

/* The command runs: it gets the signals that came before. */
void exec_send_early_signals(struct exec *exec);

/* Asks the backend to kill, now and until it is done; the result is another's business. */
void exec_pursue(struct exec *exec);
void exec_kill_timer_fired(struct timer *timer);

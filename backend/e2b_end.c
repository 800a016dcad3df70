/*
 * How a command ends. The end event says it, and comes when the leader has ended and both pipes
 * are closed. What the event does not cover is looked after here: a leader that has ended while a
 * child holds the pipes, a stream that died in silence, and the processes that are
 * left after the end or must be killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "bounds.h"
#include "e2b_command.h"
#include "log.h"

static uint64_t ms_since(uint64_t since_ns)
{
	return (monotonic_ns() - since_ns) / 1000000;
}

static void arm(struct e2b_command *c, uint64_t delay_ms)
{
	timer_arm(c->base.backend->loop, &c->timer, delay_ms);
}

static void gone(struct e2b_command *c)
{
	c->phase = E2B_FINISHED;
	exec_gone(c->base.exec);
}

/*
 * What a look is told of the leader. After its end nobody else gets the number while a session has
 * it; so it is good until looks have failed for long.
 */
static void fill_job(struct e2b_job *job, const struct e2b_command *c)
{
	job->pid = c->pid;
	job->doubtful = c->phase == E2B_ENDED && ms_since(c->number_ns) >= E2B_NUMBER_MS;
}

/* What a look says is left. A leader that lives is, whatever it did to escape. */
static int left_over(struct e2b_command *c, char state, int number)
{
	int left = number ? number : state != '-' && state != 'Z';

	if (number > 0)
		c->number_ns = monotonic_ns();
	return left;
}

/* ---- While it runs: is the leader there? ---- */

/* The longer it has run, the less it matters how soon an end that was not told is seen. */
static void look_later(struct e2b_command *c)
{
	uint64_t delay = ms_since(c->started_ns) / E2B_WATCH_PART;

	delay = MAX(delay, (uint64_t)E2B_WATCH_FIRST_MS);
	arm(c, MIN(delay, (uint64_t)E2B_WATCH_LAST_MS));
}

void e2b_end_watch(struct e2b_command *c)
{
	arm(c, E2B_WATCH_FIRST_MS);
}

/*
 * Whether all that the leader wrote has come: it is in the pipe, in envd's queue and in sockets
 * when the leader ends. It came first, so it has passed when there was a pause since, longer than
 * those of a slow network, or when more came than can have been under way. A child that writes on
 * without a pause, a little at a time, must not make that last for ever.
 */
static bool settled(const struct e2b_command *c)
{
	uint64_t quiet_ns = monotonic_ns() - MAX(c->output_ns, c->zombie_ns);

	if (e2b_output_held(c) || e2b_stream_is_within(&c->stream))
		return false;
	return quiet_ns >= e2b_output_gap(c) || c->drain_gap ||
	       c->drain_bytes >= E2B_IN_FLIGHT_MAX ||
	       ms_since(MAX(c->full_ns, c->zombie_ns)) >=
		       5 * c->base.backend->settings->drain_limit_ms;
}

/* The core's own rule for children that hold output open, for a leader that cannot be told yet. */
static bool drained(const struct e2b_command *c)
{
	const struct settings *settings = c->base.backend->settings;
	uint64_t quiet = ms_since(MAX(c->output_ns, c->zombie_ns));

	return quiet >= settings->drain_quiet_ms ||
	       ms_since(c->zombie_ns) >= settings->drain_limit_ms;
}

static void flush_done(struct e2b_unary *u, const struct e2b_fault *fault)
{
	text_done(&u->answer);
}

/*
 * SIGKILL to a leader that is a zombie harms nobody, but makes envd let go of the pipes and
 * send the end event, with the true exit code (seen on envd 0.6.13).
 */
static void send_kill(struct e2b_command *c)
{
	if (http_active(&c->flush.call) || !c->pid)
		return;
	c->flush.sandbox = c->sandbox;
	c->flush.request =
		(struct e2b_request){.method = E2B_SEND_SIGNAL, .pid = c->pid, .signo = SIGKILL};
	c->flush.limit_ms = E2B_CALL_LIMIT_MS;
	c->flush.done = flush_done;
	e2b_unary_begin(&c->flush);
}

static void tell_leader(struct e2b_command *c)
{
	int status = c->wait_status;

	c->leader_told = true;
	if (WIFSIGNALED(status))
		exec_signaled(c->base.exec, WTERMSIG(status));
	else
		exec_exited(c->base.exec, WEXITSTATUS(status));
}

static bool cut(const struct e2b_command *c)
{
	return c->cut[STREAM_STDOUT] && c->cut[STREAM_STDERR];
}

/*
 * A zombie that envd does not reap: a child holds the pipes; or the stream is stuck, and with it
 * envd, which has output that has not come. A child that is seen tells the one from the other, and
 * so does, late, a stream of which something is still heard: what it carries is in order.
 */
static void look_for_child(struct e2b_command *c)
{
	uint64_t heard_ns = MAX(c->stream.heard_ns, c->output_ns);

	e2b_output_look_ahead(c);
	if (ms_since(c->zombie_ns) >= E2B_STUCK_MS && !e2b_output_held(c)) {
		if (ms_since(heard_ns) < E2B_STUCK_MS) {
			c->child_holds = true;
			arm(c, 0);
		} else {
			e2b_command_lose(c, "stream_closed",
					 "e2b: the process has ended, but its stream is stuck");
		}
		return;
	}
	if (!e2b_job_active(&c->job))
		e2b_sweep(&c->sandbox->sweeper, &c->job, E2B_JOB_CHECK, E2B_SWEEP_GATHER_MS);
}

/*
 * The leader has ended and a child holds its output open. When the leader's end can be seen, it is
 * told, and the exec cuts the output off by its rules; when not, envd is made to tell it, which
 * cuts the output off, so the same rules come before that.
 */
static void drain(struct e2b_command *c)
{
	bool can_tell = c->wait_status >= 0;

	e2b_output_look_ahead(c);
	if (!c->leader_told && can_tell && settled(c))
		tell_leader(c);
	if (c->leader_told ? cut(c) : !can_tell && settled(c) && drained(c)) {
		send_kill(c);
		arm(c, E2B_FLUSH_RETRY_MS);
	} else if (!c->leader_told) {
		arm(c, E2B_DRAIN_STEP_MS);
	}
}

void e2b_end_cut(struct e2b_command *c)
{
	if (c->phase == E2B_RUNNING && c->leader_told && cut(c))
		arm(c, 0);
}

/* The process is gone and envd must know it, but the stream says nothing. */
static void wait_for_end(struct e2b_command *c)
{
	uint64_t heard_ns = MAX(c->stream.heard_ns, c->output_ns);
	uint64_t silent = ms_since(MAX(heard_ns, c->gone_ns));

	e2b_output_look_ahead(c);
	if (!e2b_output_held(c) && silent >= E2B_SILENCE_MS)
		e2b_command_lose(c, "stream_closed",
				 "e2b: the process has ended, but envd did not tell how");
	else
		arm(c, E2B_WATCH_FIRST_MS);
}

static void watch_done(struct e2b_command *c, char state, int status, const struct e2b_fault *fault)
{
	/* It ended meanwhile, and the question for what is left had to wait. */
	if (c->phase == E2B_ENDED && c->leader_told && !timer_armed(&c->timer))
		e2b_end_check(c);
	if (c->phase != E2B_RUNNING)
		return;
	if (fault && fault->sandbox_gone && !e2b_fate_asked(&c->fate))
		e2b_fate_ask(c->sandbox, &c->fate);
	if (!fault && state == 'Z' && !c->zombie_ns) {
		c->zombie_ns = monotonic_ns();
		c->wait_status = status;
	}
	if (!fault && state == '-' && !c->gone_ns)
		c->gone_ns = monotonic_ns();
	if (c->kill_confirmed)
		return;
	if (c->zombie_ns)
		look_for_child(c);
	else if (c->gone_ns)
		arm(c, E2B_WATCH_FIRST_MS);
	else
		look_later(c);
}

static void child_looked_for(struct e2b_command *c, char state, int number,
			     const struct e2b_fault *fault)
{
	if (c->kill_confirmed)
		return;
	if (!fault && number > 0)
		c->child_holds = true;
	/* Reaped: envd has read the pipes to their end, and says so when the stream lets it. */
	if (!fault && state == '-' && !c->child_holds) {
		c->zombie_ns = 0;
		c->gone_ns = monotonic_ns();
	}
	arm(c, c->child_holds ? 0 : E2B_WATCH_FIRST_MS);
}

/* ---- After the end: is anything left? ---- */

void e2b_end_check(struct e2b_command *c)
{
	c->check_delay_ms = E2B_CHECK_FIRST_MS;
	arm(c, c->check_delay_ms);
}

static void check_done(struct e2b_command *c, char state, int number, const struct e2b_fault *fault)
{
	if (c->phase != E2B_ENDED)
		return;
	if (!fault && left_over(c, state, number) == 0 && !c->start_unsure) {
		gone(c);
		return;
	}
	if (fault && fault->sandbox_gone && !e2b_fate_asked(&c->fate))
		e2b_fate_ask(c->sandbox, &c->fate);
	c->check_delay_ms = MIN(2 * c->check_delay_ms, (uint64_t)E2B_CHECK_LAST_MS);
	arm(c, c->check_delay_ms);
}

static void job_done(struct e2b_job *job, char state, int number, const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(job, struct e2b_command, job);

	if (job->kind == E2B_JOB_WATCH)
		watch_done(c, state, number, fault);
	else if (c->phase == E2B_RUNNING)
		child_looked_for(c, state, number, fault);
	else
		check_done(c, state, number, fault);
}

/* ---- The end ---- */

static void end_streams(struct e2b_command *c)
{
	exec_output_end(c->base.exec, STREAM_STDOUT);
	exec_output_end(c->base.exec, STREAM_STDERR);
}

void e2b_end_event(struct e2b_command *c, const struct e2b_event *event)
{
	int signo = e2b_event_signal(event);
	bool known = event->exited ? event->exit_code >= 0 && event->exit_code <= 255 : signo > 0;
	char why[200];

	if (!known && !c->leader_told) {
		snprintf(why, sizeof(why),
			 "e2b: envd tells of an end that is neither an exit status nor a "
			 "known signal: code %d, \"%s\"",
			 event->exit_code, event->status);
		e2b_command_lose(c, "unknown_end", why);
		return;
	}
	e2b_output_finish(c);
	c->phase = E2B_ENDED;
	c->number_ns = monotonic_ns();
	end_streams(c);
	if (!c->leader_told && event->exited)
		exec_exited(c->base.exec, event->exit_code);
	else if (!c->leader_told)
		exec_signaled(c->base.exec, signo);
	c->leader_told = true;
	if (c->kill_confirmed)
		gone(c);
	else
		e2b_end_check(c);
}

/* All processes were seen to be gone; a stream that is held, or slow, is not waited for. */
static void end_without_event(struct e2b_command *c)
{
	e2b_stream_cancel(&c->stream);
	end_streams(c);
	if (!c->leader_told)
		exec_signaled(c->base.exec, SIGKILL);
	gone(c);
}

/* ---- Killing ---- */

/* A Start without an answer: its request may wait somewhere on its way. */
static bool may_still_begin(struct e2b_command *c)
{
	return ++c->clean_sweeps < E2B_UNSURE_SWEEPS || ms_since(c->started_ns) < c->unsure_ms;
}

static void kill_done(struct e2b_job *job, char state, int number, const struct e2b_fault *fault)
{
	struct e2b_command *c = container_of(job, struct e2b_command, kill_job);
	struct exec *exec = c->base.exec;
	int left = fault ? 0 : left_over(c, state, number);

	/* The leader, at least, whatever it did to escape: until its end envd knows the number. */
	if ((fault || left) && c->phase == E2B_RUNNING)
		send_kill(c);
	if (fault && fault->sandbox_gone) {
		c->kill_waits = true;
		if (!e2b_fate_asked(&c->fate))
			e2b_fate_ask(c->sandbox, &c->fate);
	} else if (fault) {
		exec_kill_failed(exec, fault->err, "%s", fault->text);
	} else if (left < 0) {
		c->clean_sweeps = 0;
		exec_kill_failed(exec, -EBUSY,
				 "e2b: processes are left in sandbox %s that cannot be told from "
				 "another's: they have cleared their environment, and the command "
				 "ended long ago",
				 c->sandbox->id);
	} else if (left) {
		c->clean_sweeps = 0;
		exec_kill_failed(exec, -EBUSY,
				 "e2b: %d processes are left in sandbox %s after SIGKILL", left,
				 c->sandbox->id);
	} else if (c->phase == E2B_STARTING) {
		exec_kill_failed(
			exec, -EAGAIN,
			"e2b: killed, but envd has not answered Start: it may still begin");
	} else if (c->start_unsure && may_still_begin(c)) {
		exec_kill_failed(exec, -EAGAIN,
				 "%s; nothing of it runs, but its Start may be under way",
				 c->start_fault.text);
	} else if (c->phase == E2B_RUNNING) {
		c->kill_confirmed = true;
		arm(c, E2B_END_WAIT_MS);
	} else {
		gone(c);
	}
}

/* The control plane's word, asked for after the proxy said that there is no such sandbox. */
static void fate_told(struct e2b_fate_waiter *w, bool sandbox_gone)
{
	struct e2b_command *c = container_of(w, struct e2b_command, fate);
	bool kill_waits = c->kill_waits;

	c->kill_waits = false;
	if (sandbox_gone) {
		if (c->phase == E2B_RUNNING || c->phase == E2B_STARTING)
			e2b_command_lose(c, "sandbox_gone",
					 "e2b: the sandbox does not exist any more");
		if (c->phase == E2B_ENDED)
			gone(c);
	} else if (kill_waits) {
		exec_kill_failed(c->base.exec, -EHOSTUNREACH,
				 "e2b: sandbox %s is not reachable: it may be paused",
				 c->sandbox->id);
	}
}

static void refuse_task(struct task *task)
{
	struct e2b_command *c = container_of(task, struct e2b_command, task);

	e2b_command_refuse(c, -ECANCELED, "e2b: killed before it was started");
}

void e2b_kill(struct command *command)
{
	struct e2b_command *c = e2b_command_of(command);

	c->kill_asked = true;
	if (c->phase == E2B_WAITING) {
		e2b_waiter_cancel(&c->waiter);
		loop_defer(c->base.backend->loop, &c->task);
	} else if (c->phase != E2B_FINISHED && !e2b_job_active(&c->kill_job)) {
		/*
		 * After the leader's own end there is seldom anything left, and many are removed
		 * one after the other: they share a look.
		 */
		bool ended = c->phase == E2B_ENDED && c->leader_told;

		fill_job(&c->kill_job, c);
		e2b_sweep(&c->sandbox->sweeper, &c->kill_job, E2B_JOB_KILL,
			  ended ? E2B_REMOVE_GATHER_MS : 0);
	}
}

/* ---- The timer ---- */

static void timer_fired(struct timer *timer)
{
	struct e2b_command *c = container_of(timer, struct e2b_command, timer);

	if (c->phase == E2B_STARTING) {
		e2b_command_start_expired(c);
	} else if (c->phase == E2B_RUNNING) {
		if (c->kill_confirmed)
			end_without_event(c);
		else if (c->zombie_ns && c->child_holds)
			drain(c);
		else if (c->zombie_ns)
			look_for_child(c);
		else if (c->gone_ns)
			wait_for_end(c);
		else if (!e2b_job_active(&c->job))
			e2b_sweep(&c->sandbox->sweeper, &c->job, E2B_JOB_WATCH,
				  E2B_SWEEP_GATHER_MS);
	} else if (c->phase == E2B_ENDED && !e2b_job_active(&c->job)) {
		fill_job(&c->job, c);
		e2b_sweep(&c->sandbox->sweeper, &c->job, E2B_JOB_CHECK, E2B_SWEEP_GATHER_MS);
	}
}

void e2b_end_init(struct e2b_command *c)
{
	c->timer.fire = timer_fired;
	task_init(&c->task, refuse_task);
	e2b_job_init(&c->job);
	e2b_job_init(&c->kill_job);
	c->job.mark = c->mark;
	c->job.done = job_done;
	c->kill_job.mark = c->mark;
	c->kill_job.done = kill_done;
	e2b_fate_waiter_init(&c->fate);
	c->fate.told = fate_told;
}

void e2b_end_done(struct e2b_command *c)
{
	timer_cancel(&c->timer);
	task_cancel(&c->task);
	e2b_job_cancel(&c->job);
	e2b_job_cancel(&c->kill_job);
	e2b_fate_cancel(&c->fate);
	e2b_unary_cancel(&c->flush);
}

/*
 * The exec object: its life from mkdir to the last close, and the step that
 * decides what follows from what is known (settle).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec_private.h"
#include "log.h"

static void settle(struct task *task);
static void drain_timer_fired(struct timer *timer);
static void deadline_fired(struct timer *timer);

void exec_table_init(struct exec_table *t, struct backend *backend, struct loop *loop,
		     const struct settings *settings, const struct exec_observer *observer)
{
	*t = (struct exec_table){
		.backend = backend,
		.loop = loop,
		.settings = settings,
		.observer = observer,
	};
	list_init(&t->execs);
}

int exec_new(struct exec_table *t, void *owner, const char *name, struct exec **ret)
{
	struct exec *exec = calloc(1, sizeof(*exec));

	if (!exec)
		return -ENOMEM;
	exec->table = t;
	exec->owner = owner;
	exec->name = name;
	exec->holds = 1;
	for (int i = 0; i < STREAM_COUNT; i++)
		spool_init(&exec->streams[i].spool, t->settings->spool_memory, t->settings->retain,
			   t->settings->spool_dir);
	exec->drain_timer.fire = drain_timer_fired;
	exec->kill_timer.fire = exec_kill_timer_fired;
	exec->deadline_timer.fire = deadline_fired;
	exec->spool_timer.fire = exec_spool_timer_fired;
	task_init(&exec->news_task, exec_tell_news);
	task_init(&exec->settle_task, settle);
	list_append(&t->execs, &exec->link);
	t->count++;
	*ret = exec;
	return 0;
}

static void exec_free(struct exec *exec)
{
	struct exec_table *t = exec->table;

	t->observer->freed(exec);
	timer_cancel(&exec->drain_timer);
	timer_cancel(&exec->kill_timer);
	timer_cancel(&exec->deadline_timer);
	timer_cancel(&exec->spool_timer);
	task_cancel(&exec->news_task);
	task_cancel(&exec->settle_task);
	for (int i = 0; i < STREAM_COUNT; i++)
		spool_done(&exec->streams[i].spool);
	text_wipe(&exec->input.queue);
	spec_free(exec->spec);
	free(exec->error);
	list_remove(&exec->link);
	t->count--;
	free(exec);
}

void exec_table_done(struct exec_table *t)
{
	list_for_each_safe (exec, &t->execs, struct exec, link) {
		if (exec->command)
			exec_release(exec, REMOTE_UNKNOWN);
		exec_free(exec);
	}
}

void exec_hold(struct exec *exec)
{
	exec->holds++;
}

void exec_unhold(struct exec *exec)
{
	exec->holds--;
	if (!exec->holds)
		exec_settle_later(exec);
}

bool exec_over(const struct exec *exec)
{
	return !exec->command;
}

uint64_t exec_elapsed_ms(uint64_t since_ns)
{
	return (monotonic_ns() - since_ns) / 1000000;
}

void exec_set_error(struct exec *exec, const char *sentence)
{
	free(exec->error);
	exec->error = sentence ? strdup(sentence) : NULL;
}

void exec_set_error_format(struct exec *exec, const char *fmt, va_list args)
{
	AUTO_TEXT struct text raw = {0};
	AUTO_TEXT struct text clean = {0};

	if (text_vprintf(&raw, fmt, args) == 0 &&
	    text_append_printable(&clean, text_str(&raw), raw.len) == 0)
		exec_set_error(exec, text_str(&clean));
}

void exec_settle_later(struct exec *exec)
{
	loop_defer(exec->table->loop, &exec->settle_task);
}

void exec_set_result(struct exec *exec, enum result_kind kind, int code, const char *reason)
{
	if (exec->result.kind != RESULT_NONE)
		return;
	exec->result.kind = kind;
	exec->result.code = code;
	snprintf(exec->result.reason, sizeof(exec->result.reason), "%s", reason ? reason : "");
	clock_gettime(CLOCK_REALTIME, &exec->ended);
}

void exec_release(struct exec *exec, enum remote_state remote)
{
	struct exec_table *t = exec->table;
	struct command *command = exec->command;

	exec->command = NULL;
	exec->remote = remote;
	exec->kill_pending = false;
	timer_cancel(&exec->kill_timer);
	t->live--;
	t->backend->ops->release(command);
	exec_settle_later(exec);
}

/* ---- Start ---- */

/* The refusals that every target shares. Returns 0 or -errno with a sentence. */
static int check_spec(struct exec *exec, const struct spec *spec, struct text *why)
{
	struct backend *backend = exec->table->backend;
	unsigned refused = spec->keys & ~backend->keys;

	if (refused)
		return text_fail(why, -EOPNOTSUPP,
				 "spec: key \"%s\" is not supported on the target \"%s\": see "
				 ".spawnfs/capabilities",
				 spec_key_name(refused), backend->target);
	if (spec->stdin_mode == SPEC_STDIN_NONE && exec->input.queue.len)
		return text_fail(why, -EINVAL,
				 "spec: key \"stdin\" is \"none\", but %zu bytes have been written "
				 "to stdin: leave the key out",
				 exec->input.queue.len);
	return backend->ops->check ? backend->ops->check(backend, spec, why) : 0;
}

void exec_end_streams(struct exec *exec)
{
	exec_input_fail(exec, -EPIPE);
	exec_begin_drain(exec);
	exec_cut_streams(exec);
}

/* The command never ran, and never will: a start is not tried twice. */
static void refuse(struct exec *exec, int err)
{
	const char *name = strerrorname_np(-err);

	exec_set_result(exec, RESULT_FAILED, 0, name ? name : "EIO");
	exec_end_streams(exec);
	log_info("exec \"%s\": start refused: %s", exec->name,
		 exec->error ? exec->error : exec->result.reason);
}

/* Takes what the spec says into account before the command can report anything. */
static void accept_spec(struct exec *exec, struct spec *spec)
{
	exec->spec = spec;
	exec_set_error(exec, NULL);
	exec->state = EXEC_STARTING;
	if (spec->keys & SPEC_KEY_RETAIN)
		for (int i = 0; i < STREAM_COUNT; i++)
			spool_set_retain(&exec->streams[i].spool, spec->retain);
	if (spec->stdin_mode == SPEC_STDIN_NONE)
		exec_input_fail(exec, -EPIPE);
}

int exec_start(struct exec *exec, struct spec *spec)
{
	struct exec_table *t = exec->table;
	AUTO_TEXT struct text why = {0};
	int err = exec->state == EXEC_NEW ? check_spec(exec, spec, &why) : -EBUSY;

	if (err < 0) {
		if (err != -EBUSY)
			exec_set_error(exec, text_str(&why));
		spec_free(spec);
		return err;
	}
	accept_spec(exec, spec);
	err = t->backend->ops->start(t->backend, exec, spec, &exec->command, &why);
	if (err < 0) {
		exec_set_error(exec, text_str(&why));
		refuse(exec, err);
		return err;
	}
	t->live++;
	exec->remote = REMOTE_RUNNING;
	return 0;
}

void exec_started(struct exec *exec, int64_t pid)
{
	exec->pid = pid;
	clock_gettime(CLOCK_REALTIME, &exec->started);
	if (exec->state == EXEC_STARTING)
		exec->state = EXEC_RUNNING;
	if (exec->spec->timeout_ms)
		timer_arm(exec->table->loop, &exec->deadline_timer, exec->spec->timeout_ms);
	exec_input_ready(exec);
	exec_send_early_signals(exec);
	exec->table->observer->started(exec, 0);
}

void exec_refused(struct exec *exec, int err, const char *fmt, ...)
{
	struct exec_table *t = exec->table;
	va_list args;

	if (exec->kill_wanted) {
		/* What our kill did to a start is no fault of the target's. */
		err = -ECANCELED;
		exec_set_error(exec, "killed before it had started");
	} else {
		va_start(args, fmt);
		exec_set_error_format(exec, fmt, args);
		va_end(args);
	}
	exec_release(exec, REMOTE_NONE);
	refuse(exec, err);
	t->observer->started(exec, err);
	t->observer->over(exec);
}

static void deadline_fired(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, deadline_timer);

	exec_set_result(exec, RESULT_TIMEOUT, 0, NULL);
	exec_kill(exec);
}

/* ---- End ---- */

/* The leader has ended; its children may go on. */
static void leader_ended(struct exec *exec, enum result_kind kind, int code)
{
	exec->leader_ended = true;
	timer_cancel(&exec->deadline_timer);
	exec_set_result(exec, kind, code, NULL);
	exec_input_fail(exec, -EPIPE);
	exec_begin_drain(exec);
	exec_settle_later(exec);
}

void exec_exited(struct exec *exec, int code)
{
	leader_ended(exec, RESULT_EXITED, code);
}

void exec_signaled(struct exec *exec, int signo)
{
	leader_ended(exec, RESULT_SIGNALED, signo);
}

void exec_lost(struct exec *exec, const char *reason, const char *fmt, ...)
{
	va_list args;

	if (exec->result.kind == RESULT_NONE) {
		va_start(args, fmt);
		exec_set_error_format(exec, fmt, args);
		va_end(args);
		log_warning("exec \"%s\": lost (%s): %s", exec->name, reason,
			    exec->error ? exec->error : "");
	}
	exec_set_result(exec, RESULT_LOST, 0, reason);
	exec_end_streams(exec);
	exec_pursue(exec);
}

void exec_gone(struct exec *exec)
{
	exec_release(exec, REMOTE_GONE);
	/* A backend says how the leader ended before this; if it did not, that is not known. */
	exec_set_result(exec, RESULT_LOST, 0, "no_result");
	exec_end_streams(exec);
	exec->table->observer->over(exec);
}

void exec_note(struct exec *exec, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	exec_set_error_format(exec, fmt, args);
	va_end(args);
	log_info("exec \"%s\": %s", exec->name, exec->error ? exec->error : "");
}

/* ---- Draining: from the leader's end to the last byte of output ---- */

void exec_begin_drain(struct exec *exec)
{
	if (exec->state >= EXEC_DRAINING)
		return;
	exec->state = EXEC_DRAINING;
	exec->drain_since_ns = monotonic_ns();
	exec_drain_active(exec);
	exec_settle_later(exec);
}

void exec_drain_active(struct exec *exec)
{
	const struct settings *settings = exec->table->settings;
	uint64_t since = exec_elapsed_ms(exec->drain_since_ns);
	uint64_t left = settings->drain_limit_ms > since ? settings->drain_limit_ms - since : 0;

	timer_arm(exec->table->loop, &exec->drain_timer, MIN(left, settings->drain_quiet_ms));
}

/* Quiet long enough, or the limit has come: background children are cut off. */
static void drain_timer_fired(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, drain_timer);

	if (!exec_drained(exec) && !exec->error && exec->leader_ended && !exec->kill_wanted)
		exec_note(exec,
			  "output was cut off %llu ms after the command ended: a background "
			  "process kept it open",
			  (unsigned long long)exec_elapsed_ms(exec->drain_since_ns));
	exec_cut_streams(exec);
	exec_settle_later(exec);
}

/*
 * A kill is told when it is seen to have worked, so that the last output is readable
 * before; but a target that does not answer keeps nobody waiting for ever.
 */
static bool kill_in_doubt(const struct exec *exec)
{
	return exec->kill_wanted && !exec->leader_ended && !exec_over(exec) &&
	       exec->result.kind != RESULT_LOST &&
	       exec_elapsed_ms(exec->kill_since_ns) < KILL_TELL_MS;
}

static void settle(struct task *task)
{
	struct exec *exec = container_of(task, struct exec, settle_task);

	if (exec->state == EXEC_DRAINING && exec_drained(exec) && !kill_in_doubt(exec)) {
		exec->state = EXEC_DONE;
		timer_cancel(&exec->drain_timer);
		timer_cancel(&exec->deadline_timer);
		timer_cancel(&exec->spool_timer);
		/* Output first: exit comes after the last byte. */
		exec_tell_news(&exec->news_task);
		exec->table->observer->told(exec);
	}
	if (exec->removed && !exec->holds && exec_over(exec))
		exec_free(exec);
}

void exec_remove(struct exec *exec)
{
	exec->removed = true;
	exec_kill(exec);
	exec_unhold(exec);
}

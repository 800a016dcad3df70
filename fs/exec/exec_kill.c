/*
 * Killing: an exec is told to end once, and the backend is asked again and again,
 * with a growing delay, until it says that the command is gone or the bound is
 * reached. What readers are told does not wait for that beyond KILL_TELL_MS.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "exec_private.h"
#include "log.h"

static uint64_t retry_delay_ms(const struct exec *exec)
{
	uint64_t delay = KILL_RETRY_FIRST_MS;
	uint64_t age = exec_elapsed_ms(exec->kill_since_ns);

	for (unsigned i = 1; i < exec->kill_tries && delay < KILL_RETRY_LAST_MS; i++)
		delay *= 2;
	/* Readers are told on time, however the tries fall. */
	if (age < KILL_TELL_MS)
		delay = MIN(delay, KILL_TELL_MS - age);
	return MIN(delay, (uint64_t)KILL_RETRY_LAST_MS);
}

static void ask(struct exec *exec)
{
	exec->kill_pending = true;
	exec->kill_tries++;
	exec->table->backend->ops->kill(exec->command);
}

/* Readers wait no longer. */
static void tell_readers(struct exec *exec)
{
	exec_set_result(exec, RESULT_KILLED, 0, NULL);
	exec_end_streams(exec);
	exec_settle_later(exec);
}

/* The bound is reached: whether the command runs is not known, and status says so. */
static void give_up(struct exec *exec)
{
	struct exec_table *t = exec->table;

	log_error("exec \"%s\": gave up killing pid %lld on %s after %llu s and %u tries: it may "
		  "still run",
		  exec->name, (long long)exec->pid, t->backend->target,
		  (unsigned long long)exec_elapsed_ms(exec->kill_since_ns) / 1000,
		  exec->kill_tries);
	exec_release(exec, REMOTE_UNKNOWN);
	tell_readers(exec);
	t->observer->over(exec);
}

void exec_kill_timer_fired(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, kill_timer);
	uint64_t age = exec_elapsed_ms(exec->kill_since_ns);

	if (exec_over(exec))
		return;
	if (age >= exec->table->settings->kill_give_up_ms) {
		give_up(exec);
		return;
	}
	if (age >= KILL_TELL_MS)
		tell_readers(exec);
	/* A backend that has not answered is not asked again; the timer watches the bound. */
	if (!exec->kill_pending)
		ask(exec);
	timer_arm(exec->table->loop, timer, KILL_TELL_MS);
}

void exec_pursue(struct exec *exec)
{
	if (exec_over(exec) || exec->kill_since_ns)
		return;
	exec->kill_since_ns = monotonic_ns();
	ask(exec);
	timer_arm(exec->table->loop, &exec->kill_timer, KILL_TELL_MS);
}

void exec_kill(struct exec *exec)
{
	if (exec_over(exec) && exec->state != EXEC_NEW)
		return;
	exec->kill_wanted = true;
	/* Fixed now; told when its end has been seen, so that all its output comes first. */
	exec_set_result(exec, RESULT_KILLED, 0, NULL);
	exec_input_fail(exec, -EPIPE);
	if (exec->state == EXEC_NEW)
		tell_readers(exec);
	else
		exec_pursue(exec);
}

void exec_kill_failed(struct exec *exec, int err, const char *fmt, ...)
{
	const char *name = strerrorname_np(-err);
	va_list args;

	va_start(args, fmt);
	exec_set_error_format(exec, fmt, args);
	va_end(args);
	exec->kill_pending = false;
	log_warning("exec \"%s\": kill failed (%s), try %u: %s", exec->name, name ? name : "?",
		    exec->kill_tries, exec->error ? exec->error : "");
	timer_arm(exec->table->loop, &exec->kill_timer, retry_delay_ms(exec));
}

/* ---- Signals that a command may answer ---- */

void exec_signal_at_start(struct exec *exec, int signo)
{
	exec->early_signals |= 1ULL << (signo - 1);
}

void exec_forget_signals(struct exec *exec)
{
	exec->early_signals = 0;
}

/* A signal that comes twice before it is taken is one, as the kernel has it (signal(7)). */
void exec_send_early_signals(struct exec *exec)
{
	AUTO_TEXT struct text why = {0};

	while (exec->early_signals) {
		int signo = __builtin_ctzll(exec->early_signals) + 1;

		exec->early_signals &= exec->early_signals - 1;
		if (exec_signal(exec, signo, &why) < 0)
			exec_set_error(exec, text_str(&why));
		text_done(&why);
	}
}

int exec_signal(struct exec *exec, int signo, struct text *why)
{
	if (exec->state == EXEC_STARTING) {
		exec_signal_at_start(exec, signo);
		return 0;
	}
	if (exec->state == EXEC_NEW)
		return text_fail(why, -ESRCH, "ctl: no command runs yet: write spec first");
	if (exec_over(exec) || exec->leader_ended)
		return text_fail(why, -ESRCH, "ctl: the command has ended");
	return exec->table->backend->ops->signal(exec->command, signo, why);
}

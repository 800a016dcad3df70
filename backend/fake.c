/*
 * fake: a target for tests, in builds of theirs only. No process runs: argv is a script of the
 * reports that a backend may make, so that each fault can be had when it is wanted.
 *
 *	{"cmd":["fake","delay 50","out hello","exit 3"]}
 *
 * Steps before the first that is neither `delay` nor `refuse` come before the start. A script that
 * has ended the command (exit, signal) is gone at its end; another waits to be killed.
 */
#include <signal.h>
#include <string.h>

#include "fake.h"

#define INPUT_BYTES ((size_t)64 * KIB)
#define SLOW_INPUT_MS 2

extern const struct backend_ops fake_backend;

static int64_t last_pid;

static struct fake *fake_of(struct command *command)
{
	return container_of(command, struct fake, command);
}

static struct exec *exec_of(const struct fake *f)
{
	return f->command.exec;
}

/* One less to go; returns whether there was one. */
static bool use_up(int *count)
{
	if (*count > 0)
		(*count)--;
	else if (*count == 0)
		return false;
	return true;
}

static void start_once(struct fake *f)
{
	if (f->started)
		return;
	f->started = true;
	exec_started(exec_of(f), ++last_pid);
}

static void end_streams(struct fake *f)
{
	exec_output_end(exec_of(f), STREAM_STDOUT);
	exec_output_end(exec_of(f), STREAM_STDERR);
}

static void run(struct task *task)
{
	struct fake *f = container_of(task, struct fake, task);

	if (f->signo && !f->ended) {
		f->ended = f->exited = true;
		f->step = f->spec->argc;
		exec_signaled(exec_of(f), f->signo);
	}
	while (f->step < f->spec->argc) {
		const char *arg;
		const struct fake_step *step = fake_step_find(f->spec->argv[f->step], &arg);
		enum fake_progress progress;

		if (!step->before_start)
			start_once(f);
		progress = step->run(f, arg);
		if (progress != FAKE_DONE)
			return;
		f->step++;
		f->waited = false;
		f->flooded = 0;
	}
	start_once(f);
	if (f->exited) {
		end_streams(f);
		exec_gone(exec_of(f));
	}
}

static void run_later(struct fake *f)
{
	loop_defer(f->command.backend->loop, &f->task);
}

static void timer_fired(struct timer *timer)
{
	run_later(container_of(timer, struct fake, timer));
}

static void input_timer_fired(struct timer *timer)
{
	run_later(container_of(timer, struct fake, input_timer));
}

static void run_kill(struct task *task)
{
	struct fake *f = container_of(task, struct fake, kill_task);

	if (use_up(&f->kill_ignored))
		return;
	if (use_up(&f->kill_failures)) {
		exec_kill_failed(exec_of(f), -EIO, "fake: kill: it failed, as the script says");
		return;
	}
	if (!f->started) {
		exec_refused(exec_of(f), -ECANCELED, "fake: killed before it started");
		return;
	}
	if (!f->ended)
		exec_signaled(exec_of(f), SIGKILL);
	exec_gone(exec_of(f));
}

static void kill_timer_fired(struct timer *timer)
{
	struct fake *f = container_of(timer, struct fake, kill_timer);

	loop_defer(f->command.backend->loop, &f->kill_task);
}

/* ---- The backend's calls ---- */

static int fake_open(const struct backend_args *args, struct backend **ret, struct text *why)
{
	struct backend *backend;

	if (args->option_count)
		return text_fail(why, -EINVAL, "fake: unknown option %s", args->options[0].key);
	backend = calloc(1, sizeof(*backend));
	if (!backend)
		return -ENOMEM;
	*backend = (struct backend){
		.ops = &fake_backend,
		.loop = args->loop,
		.settings = args->settings,
		.keys = SPEC_KEYS_BASIC | SPEC_KEY_TIMEOUT,
		.target = strdup(args->target),
	};
	*ret = backend;
	return 0;
}

static void fake_close(struct backend *backend)
{
	free(backend->target);
	free(backend);
}

static int fake_check(struct backend *backend, const struct spec *spec, struct text *why)
{
	const char *arg;

	if (strcmp(spec->argv[0], "fake") != 0)
		return text_fail(why, -EINVAL, "fake: cmd is not [\"fake\", STEP...]");
	for (size_t i = 1; i < spec->argc; i++)
		if (!fake_step_find(spec->argv[i], &arg))
			return text_fail(why, -EINVAL, "fake: no step \"%s\"", spec->argv[i]);
	return 0;
}

static int fake_start(struct backend *backend, struct exec *exec, const struct spec *spec,
		      struct command **ret, struct text *why)
{
	struct fake *f = calloc(1, sizeof(*f));

	if (!f)
		return text_fail(why, -ENOMEM, "fake: out of memory");
	f->command = (struct command){.exec = exec, .backend = backend};
	f->spec = spec;
	f->step = 1;
	f->input_max = INPUT_BYTES;
	f->timer.fire = timer_fired;
	f->kill_timer.fire = kill_timer_fired;
	f->input_timer.fire = input_timer_fired;
	task_init(&f->task, run);
	task_init(&f->kill_task, run_kill);
	run_later(f);
	*ret = &f->command;
	return 0;
}

static bool fake_can_write(struct command *command)
{
	struct fake *f = fake_of(command);

	f->wants_room = f->input.len >= f->input_max;
	return !f->wants_room;
}

static ssize_t fake_write(struct command *command, const void *data, size_t len)
{
	struct fake *f = fake_of(command);
	size_t taken;

	if (!fake_can_write(command))
		return 0;
	if (!f->input.len && f->slow)
		timer_arm(command->backend->loop, &f->input_timer, SLOW_INPUT_MS);
	taken = MIN(len, f->input_max - f->input.len);
	if (text_append(&f->input, data, taken) < 0)
		return -ENOMEM;
	f->wants_room = taken < len;
	run_later(f);
	return (ssize_t)taken;
}

static void fake_close_input(struct command *command)
{
	struct fake *f = fake_of(command);

	f->eof = true;
	run_later(f);
}

static void fake_resume(struct command *command, enum stream_id stream)
{
	run_later(fake_of(command));
}

static int fake_signal(struct command *command, int signo, struct text *why)
{
	struct fake *f = fake_of(command);

	f->signo = signo;
	run_later(f);
	return 0;
}

static void fake_kill(struct command *command)
{
	struct fake *f = fake_of(command);

	if (f->kill_delay_ms)
		timer_arm(command->backend->loop, &f->kill_timer, f->kill_delay_ms);
	else
		loop_defer(command->backend->loop, &f->kill_task);
}

static void fake_release(struct command *command)
{
	struct fake *f = fake_of(command);

	task_cancel(&f->task);
	task_cancel(&f->kill_task);
	timer_cancel(&f->timer);
	timer_cancel(&f->kill_timer);
	timer_cancel(&f->input_timer);
	text_done(&f->input);
	free(f);
}

const struct backend_ops fake_backend = {
	.scheme = "fake",
	.summary = "runs nothing: argv is a script of what happens (tests only)",
	.open = fake_open,
	.close = fake_close,
	.check = fake_check,
	.start = fake_start,
	.write = fake_write,
	.can_write = fake_can_write,
	.close_input = fake_close_input,
	.resume = fake_resume,
	.signal = fake_signal,
	.kill = fake_kill,
	.release = fake_release,
};

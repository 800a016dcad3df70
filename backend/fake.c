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
#include <stdio.h>
#include <string.h>

#include "backend.h"

#define INPUT_BYTES ((size_t)64 * KIB)
#define SLOW_INPUT_MS 2

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
enum progress { DONE, WAIT, OVER };

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

static int errno_of(const char *name)
{
	for (int e = 1; e < 200; e++) {
		const char *known = strerrorname_np(e);

		if (known && strcmp(known, name) == 0)
			return -e;
	}
	return -EIO;
}

/* Forever is -1. */
static int count_of(const char *arg)
{
	return strcmp(arg, "forever") == 0 ? -1 : atoi(arg);
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

/* ---- Steps ---- */

static enum progress do_delay(struct fake *f, const char *arg)
{
	if (f->waited)
		return timer_armed(&f->timer) ? WAIT : DONE;
	f->waited = true;
	timer_arm(f->command.backend->loop, &f->timer, strtoull(arg, NULL, 10));
	return WAIT;
}

static enum progress do_refuse(struct fake *f, const char *arg)
{
	char name[32] = "";

	sscanf(arg, "%31s", name);
	exec_refused(exec_of(f), errno_of(name), "fake: start: %s", arg);
	return OVER;
}

static enum progress do_start(struct fake *f, const char *arg)
{
	return DONE;
}

static enum progress put_line(struct fake *f, enum stream_id stream, const char *arg)
{
	AUTO_TEXT struct text line = {0};

	text_printf(&line, "%s\n", arg);
	return exec_output(exec_of(f), stream, line.data, line.len) ? DONE : WAIT;
}

static enum progress do_out(struct fake *f, const char *arg)
{
	return put_line(f, STREAM_STDOUT, arg);
}

static enum progress do_err(struct fake *f, const char *arg)
{
	return put_line(f, STREAM_STDERR, arg);
}

/* Numbered lines of 16 bytes, so that a byte that is missing or of a wrong place shows. */
static void fill_lines(char *p, uint64_t off, size_t len)
{
	char line[32];

	for (size_t i = 0; i < len; i++) {
		if (i == 0 || (off + i) % 16 == 0)
			snprintf(line, sizeof(line), "%015llu\n",
				 (unsigned long long)(off + i) / 16);
		p[i] = line[(off + i) % 16];
	}
}

static enum progress do_flood(struct fake *f, const char *arg)
{
	uint64_t total = 0;

	size_parse(arg, &total);
	while (f->flooded < total) {
		void *p;
		size_t room = exec_output_reserve(exec_of(f), STREAM_STDOUT, &p);

		if (!room)
			return WAIT;
		room = MIN((uint64_t)room, total - f->flooded);
		fill_lines(p, f->flooded, room);
		f->flooded += room;
		exec_output_commit(exec_of(f), STREAM_STDOUT, room);
	}
	return DONE;
}

static enum progress do_overdraw(struct fake *f, const char *arg)
{
	exec_output_overdraw(exec_of(f), STREAM_STDOUT, (size_t)atoi(arg));
	return DONE;
}

static enum progress do_end_out(struct fake *f, const char *arg)
{
	exec_output_end(exec_of(f), STREAM_STDOUT);
	return DONE;
}

static enum progress do_end_err(struct fake *f, const char *arg)
{
	exec_output_end(exec_of(f), STREAM_STDERR);
	return DONE;
}

static enum progress do_exit(struct fake *f, const char *arg)
{
	f->ended = f->exited = true;
	exec_exited(exec_of(f), atoi(arg));
	return DONE;
}

static enum progress do_signal(struct fake *f, const char *arg)
{
	f->ended = f->exited = true;
	exec_signaled(exec_of(f), atoi(arg));
	return DONE;
}

static enum progress do_lose(struct fake *f, const char *arg)
{
	f->ended = true;
	exec_lost(exec_of(f), arg, "fake: the stream was lost (%s)", arg);
	return DONE;
}

static enum progress do_gone(struct fake *f, const char *arg)
{
	exec_gone(exec_of(f));
	return OVER;
}

static enum progress do_stay(struct fake *f, const char *arg)
{
	return WAIT;
}

static enum progress do_note(struct fake *f, const char *arg)
{
	exec_note(exec_of(f), "fake: %s", arg);
	return DONE;
}

static enum progress do_kill_fails(struct fake *f, const char *arg)
{
	f->kill_failures = count_of(arg);
	return DONE;
}

static enum progress do_kill_ignored(struct fake *f, const char *arg)
{
	f->kill_ignored = count_of(arg);
	return DONE;
}

static enum progress do_kill_delay(struct fake *f, const char *arg)
{
	f->kill_delay_ms = strtoull(arg, NULL, 10);
	return DONE;
}

static enum progress do_slow_stdin(struct fake *f, const char *arg)
{
	f->slow = true;
	f->input_max = (size_t)atoi(arg);
	return DONE;
}

static enum progress do_close_stdin(struct fake *f, const char *arg)
{
	exec_input_closed(exec_of(f), *arg ? errno_of(arg) : -EPIPE);
	return DONE;
}

/* Input was used: whoever was turned away may come again. */
static void input_used(struct fake *f)
{
	f->input_total += f->input.len;
	text_done(&f->input);
	if (!f->wants_room)
		return;
	f->wants_room = false;
	exec_input_ready(exec_of(f));
}

static bool input_waits(struct fake *f)
{
	return f->slow && timer_armed(&f->input_timer);
}

static enum progress do_echo_stdin(struct fake *f, const char *arg)
{
	while (f->input.len && !input_waits(f)) {
		if (!exec_output(exec_of(f), STREAM_STDOUT, f->input.data, f->input.len))
			return WAIT;
		input_used(f);
	}
	return f->eof && !f->input.len ? DONE : WAIT;
}

static enum progress do_count_stdin(struct fake *f, const char *arg)
{
	char line[32];

	while (f->input.len && !input_waits(f))
		input_used(f);
	if (!f->eof || f->input.len)
		return WAIT;
	snprintf(line, sizeof(line), "%zu", f->input_total);
	return put_line(f, STREAM_STDOUT, line);
}

static const struct step {
	const char *name;
	enum progress (*run)(struct fake *f, const char *arg);
	bool before_start; /* does not start the command */
} steps[] = {
	{"delay", do_delay, true},
	{"refuse", do_refuse, true},
	{"kill-fails", do_kill_fails, true},
	{"kill-ignored", do_kill_ignored, true},
	{"kill-delay", do_kill_delay, true},
	{"slow-stdin", do_slow_stdin, true},
	{"start", do_start, false},
	{"out", do_out, false},
	{"err", do_err, false},
	{"flood", do_flood, false},
	{"overdraw", do_overdraw, false},
	{"end-out", do_end_out, false},
	{"end-err", do_end_err, false},
	{"exit", do_exit, false},
	{"signal", do_signal, false},
	{"lose", do_lose, false},
	{"gone", do_gone, false},
	{"stay", do_stay, false},
	{"note", do_note, false},
	{"close-stdin", do_close_stdin, false},
	{"echo-stdin", do_echo_stdin, false},
	{"count-stdin", do_count_stdin, false},
};

/* Finds the step and its argument. NULL: there is none of that name. */
static const struct step *step_find(const char *text, const char **arg)
{
	size_t len = strcspn(text, " ");

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		if (strlen(steps[i].name) != len || strncmp(steps[i].name, text, len) != 0)
			continue;
		*arg = text + len + (text[len] == ' ');
		return &steps[i];
	}
	return NULL;
}

/* ---- Running ---- */

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
		const struct step *step = step_find(f->spec->argv[f->step], &arg);
		enum progress progress;

		if (!step->before_start)
			start_once(f);
		progress = step->run(f, arg);
		if (progress != DONE)
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
		if (!step_find(spec->argv[i], &arg))
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

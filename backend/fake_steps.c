/* The steps of a script for the target fake. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

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

static enum fake_progress do_delay(struct fake *f, const char *arg)
{
	if (f->waited)
		return timer_armed(&f->timer) ? FAKE_WAIT : FAKE_DONE;
	f->waited = true;
	timer_arm(f->command.backend->loop, &f->timer, strtoull(arg, NULL, 10));
	return FAKE_WAIT;
}

static enum fake_progress do_refuse(struct fake *f, const char *arg)
{
	char name[32] = "";

	sscanf(arg, "%31s", name);
	exec_refused(f->command.exec, errno_of(name), "fake: start: %s", arg);
	return FAKE_OVER;
}

static enum fake_progress do_start(struct fake *f, const char *arg)
{
	return FAKE_DONE;
}

static enum fake_progress put_line(struct fake *f, enum stream_id stream, const char *arg)
{
	AUTO_TEXT struct text line = {0};

	text_printf(&line, "%s\n", arg);
	return exec_output(f->command.exec, stream, line.data, line.len) ? FAKE_DONE : FAKE_WAIT;
}

static enum fake_progress do_out(struct fake *f, const char *arg)
{
	return put_line(f, STREAM_STDOUT, arg);
}

static enum fake_progress do_err(struct fake *f, const char *arg)
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

static enum fake_progress do_flood(struct fake *f, const char *arg)
{
	uint64_t total = 0;

	size_parse(arg, &total);
	while (f->flooded < total) {
		void *p;
		size_t room = exec_output_reserve(f->command.exec, STREAM_STDOUT, &p);

		if (!room)
			return FAKE_WAIT;
		room = MIN((uint64_t)room, total - f->flooded);
		fill_lines(p, f->flooded, room);
		f->flooded += room;
		exec_output_commit(f->command.exec, STREAM_STDOUT, room);
	}
	return FAKE_DONE;
}

static enum fake_progress do_overdraw(struct fake *f, const char *arg)
{
	exec_output_overdraw(f->command.exec, STREAM_STDOUT, (size_t)atoi(arg));
	return FAKE_DONE;
}

static enum fake_progress do_end_out(struct fake *f, const char *arg)
{
	exec_output_end(f->command.exec, STREAM_STDOUT);
	return FAKE_DONE;
}

static enum fake_progress do_end_err(struct fake *f, const char *arg)
{
	exec_output_end(f->command.exec, STREAM_STDERR);
	return FAKE_DONE;
}

static enum fake_progress do_exit(struct fake *f, const char *arg)
{
	f->ended = f->exited = true;
	exec_exited(f->command.exec, atoi(arg));
	return FAKE_DONE;
}

static enum fake_progress do_signal(struct fake *f, const char *arg)
{
	f->ended = f->exited = true;
	exec_signaled(f->command.exec, atoi(arg));
	return FAKE_DONE;
}

static enum fake_progress do_lose(struct fake *f, const char *arg)
{
	f->ended = true;
	exec_lost(f->command.exec, arg, "fake: the stream was lost (%s)", arg);
	return FAKE_DONE;
}

static enum fake_progress do_gone(struct fake *f, const char *arg)
{
	exec_gone(f->command.exec);
	return FAKE_OVER;
}

static enum fake_progress do_stay(struct fake *f, const char *arg)
{
	return FAKE_WAIT;
}

static enum fake_progress do_note(struct fake *f, const char *arg)
{
	exec_note(f->command.exec, "fake: %s", arg);
	return FAKE_DONE;
}

static enum fake_progress do_kill_fails(struct fake *f, const char *arg)
{
	f->kill_failures = count_of(arg);
	return FAKE_DONE;
}

static enum fake_progress do_kill_ignored(struct fake *f, const char *arg)
{
	f->kill_ignored = count_of(arg);
	return FAKE_DONE;
}

static enum fake_progress do_kill_delay(struct fake *f, const char *arg)
{
	f->kill_delay_ms = strtoull(arg, NULL, 10);
	return FAKE_DONE;
}

static enum fake_progress do_slow_stdin(struct fake *f, const char *arg)
{
	f->slow = true;
	f->input_max = (size_t)atoi(arg);
	return FAKE_DONE;
}

static enum fake_progress do_close_stdin(struct fake *f, const char *arg)
{
	exec_input_closed(f->command.exec, *arg ? errno_of(arg) : -EPIPE);
	return FAKE_DONE;
}

/* Input was used: whoever was turned away may come again. */
static void input_used(struct fake *f)
{
	f->input_total += f->input.len;
	text_done(&f->input);
	if (!f->wants_room)
		return;
	f->wants_room = false;
	exec_input_ready(f->command.exec);
}

static bool input_waits(struct fake *f)
{
	return f->slow && timer_armed(&f->input_timer);
}

static enum fake_progress do_echo_stdin(struct fake *f, const char *arg)
{
	while (f->input.len && !input_waits(f)) {
		if (!exec_output(f->command.exec, STREAM_STDOUT, f->input.data, f->input.len))
			return FAKE_WAIT;
		input_used(f);
	}
	return f->eof && !f->input.len ? FAKE_DONE : FAKE_WAIT;
}

static enum fake_progress do_count_stdin(struct fake *f, const char *arg)
{
	char line[32];

	while (f->input.len && !input_waits(f))
		input_used(f);
	if (!f->eof || f->input.len)
		return FAKE_WAIT;
	snprintf(line, sizeof(line), "%zu", f->input_total);
	return put_line(f, STREAM_STDOUT, line);
}

static const struct fake_step steps[] = {
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

const struct fake_step *fake_step_find(const char *text, const char **arg)
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

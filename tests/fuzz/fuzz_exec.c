/*
 * An exec under any order of what a backend reports and what the files ask. The first byte says
 * how many steps the script has; each further pair is a step, then a call and its argument. Once
 * told, a result never changes; nothing is told twice; at the end all is freed.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "exec_rig.h"
#include "fuzz.h"
#include "log.h"

#define STEPS_MAX 12
#define CALLS_MAX 24

/* No delays, and no kill that fails: those take their time. */
static const char *const steps[] = {
	"start",      "out line",     "err line",     "flood 1K",     "flood 80K", "exit 0",
	"exit 3",     "signal 9",     "lose stream",  "end-out",      "end-err",   "note n",
	"stay",	      "gone",	      "close-stdin",  "echo-stdin",   "delay 0",   "count-stdin",
	"refuse EIO", "overdraw 100", "slow-stdin 7", "kill-delay 1",
};

/* A script that keeps the rules of backend.h, which the fake does not enforce. */
static bool allowed(const char *step, bool *ended, bool streams[2])
{
	bool output = strncmp(step, "out", 3) == 0 || strncmp(step, "flood", 5) == 0 ||
		      strstr(step, "-stdin");
	bool end = strncmp(step, "exit", 4) == 0 || strncmp(step, "signal", 6) == 0 ||
		   strncmp(step, "lose", 4) == 0;

	if (end && *ended)
		return false;
	*ended |= end;
	if (output && streams[0])
		return false;
	if (strncmp(step, "err", 3) == 0 && streams[1])
		return false;
	streams[0] |= strcmp(step, "end-out") == 0;
	streams[1] |= strcmp(step, "end-err") == 0;
	return true;
}

static void print_script(struct text *ret, const uint8_t *data, size_t count)
{
	bool ended = false;
	bool streams[2] = {false, false};

	text_printf(ret, "{\"retain\":65536,\"cmd\":[\"fake\"");
	for (size_t i = 0; i < count; i++) {
		const char *step = steps[data[i] % ARRAY_LEN(steps)];

		if (strncmp(step, "refuse", 6) == 0 && i > 0)
			continue;
		if (allowed(step, &ended, streams))
			text_printf(ret, ",\"%s\"", step);
	}
	text_printf(ret, "]}");
}

static struct spool_reader reader;

static void call(unsigned what, unsigned argument)
{
	struct spool *out = &seen.exec->streams[STREAM_STDOUT].spool;

	switch (what % 12) {
	case 0:
		exec_write(seen.exec, "input bytes", 1 + argument % 11);
		break;
	case 1:
		exec_close_input(seen.exec);
		break;
	case 2:
		exec_open_input(seen.exec);
		break;
	case 3:
		exec_end_input(seen.exec);
		break;
	case 4:
		exec_kill(seen.exec);
		break;
	case 5:
		exec_signal(seen.exec, SIGTERM, NULL);
		break;
	case 6:
		if (!reader.spool)
			exec_reader_open(seen.exec, STREAM_STDOUT, &reader);
		break;
	case 7:
		if (reader.spool)
			exec_reader_move(seen.exec, STREAM_STDOUT, &reader, out->next);
		break;
	case 8:
		if (reader.spool)
			exec_reader_close(seen.exec, STREAM_STDOUT, &reader);
		break;
	case 9:
		CHECK(exec_can_write(seen.exec) || !seen.told);
		break;
	default:
		run_for(argument % 2);
	}
}

/* What exit says now; empty when it says nothing yet. */
static void print_result(struct text *ret)
{
	text_done(ret);
	if (exec_told(seen.exec))
		CHECK_INT(exec_print_result(seen.exec, ret), 0);
}

static void check(struct text *result)
{
	AUTO_TEXT struct text now = {0};
	AUTO_TEXT struct text status = {0};

	CHECK(seen.told <= 1 && seen.over <= 1 && seen.started <= 1);
	CHECK_INT(exec_print_status(seen.exec, &status), 0);
	print_result(&now);
	if (result->len)
		CHECK_STR(text_str(&now), text_str(result));
	print_result(result);
	if (seen.told)
		for (int i = 0; i < STREAM_COUNT; i++)
			CHECK(seen.exec->streams[i].spool.ended);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_TEXT struct text script = {0};
	AUTO_TEXT struct text result = {0};
	size_t count = size ? MIN((size_t)data[0] % STEPS_MAX, size - 1) : 0;
	size_t at = count + 1;

	if (!size)
		return 0;
	if (!table.loop)
		rig_open();
	print_script(&script, data + 1, count);
	begin();
	reader = (struct spool_reader){0};
	for (size_t n = 0; at + 1 < size && n < CALLS_MAX; at += 2, n++) {
		if (n == data[0] % 3u)
			start(text_str(&script));
		call(data[at], data[at + 1]);
		check(&result);
	}
	if (reader.spool)
		exec_reader_close(seen.exec, STREAM_STDOUT, &reader);
	finish();
	return 0;
}

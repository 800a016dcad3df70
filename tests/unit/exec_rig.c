#include "exec_rig.h"

#include <string.h>

#include "check.h"
#include "log.h"

#define DEADLINE_MS 20000

extern const struct backend_ops fake_backend;

struct settings settings;
static struct loop *loop;
static struct backend *backend;
struct exec_table table;

struct seen seen;

static bool (*condition)(void);
static bool timed_out;

static void look(void)
{
	if (condition && condition())
		loop_stop(loop);
}

static void on_output(struct exec *exec, enum stream_id stream)
{
	seen.output_after_told |= seen.told > 0;
	look();
}

static void on_input(struct exec *exec)
{
	look();
}

static void on_started(struct exec *exec, int err)
{
	seen.started++;
	seen.start_err = err;
	look();
}

static void on_told(struct exec *exec)
{
	seen.told++;
	CHECK(exec_told(exec));
	look();
}

static void on_over(struct exec *exec)
{
	seen.over++;
	seen.kill_tries = exec->kill_tries;
	look();
}

static void on_freed(struct exec *exec)
{
	seen.freed++;
	seen.exec = NULL;
	look();
}

static const struct exec_observer observer = {
	.output = on_output,
	.input = on_input,
	.started = on_started,
	.told = on_told,
	.over = on_over,
	.freed = on_freed,
};

static void deadline_fired(struct timer *timer)
{
	timed_out = true;
	loop_stop(loop);
}

/* Runs the loop until the condition holds, which is looked at after each report. */
void run_until(bool (*wanted)(void))
{
	struct timer deadline = {.fire = deadline_fired};

	if (wanted())
		return;
	condition = wanted;
	CHECK_INT(timer_arm(loop, &deadline, DEADLINE_MS), 0);
	CHECK_INT(loop_run(loop), 0);
	timer_cancel(&deadline);
	condition = NULL;
	CHECK(!timed_out);
}

void run_for(uint64_t ms)
{
	struct timer end = {.fire = deadline_fired};

	CHECK_INT(timer_arm(loop, &end, ms), 0);
	CHECK_INT(loop_run(loop), 0);
	timed_out = false;
}

bool is_started(void)
{
	return seen.started;
}

bool is_told(void)
{
	return seen.told;
}

bool is_over(void)
{
	return seen.over;
}

bool is_told_and_over(void)
{
	return seen.told && seen.over;
}

bool is_freed(void)
{
	return seen.freed;
}

bool may_write(void)
{
	return exec_can_write(seen.exec);
}

/* ---- One exec ---- */

void begin(void)
{
	seen = (struct seen){0};
	CHECK_INT(exec_new(&table, NULL, "job", &seen.exec), 0);
}

int start(const char *text)
{
	struct spec *spec = NULL;

	CHECK_INT(spec_parse(text, strlen(text), &spec, NULL), 0);
	return exec_start(seen.exec, spec);
}

void begin_started(const char *text)
{
	begin();
	CHECK_INT(start(text), 0);
	run_until(is_started);
	CHECK_INT(seen.start_err, 0);
}

/* Lets go of it and waits until all is gone. */
void finish(void)
{
	exec_remove(seen.exec);
	run_until(is_freed);
	CHECK(list_empty(&table.execs));
	CHECK_INT(table.count, 0);
	CHECK_INT(table.live, 0);
	CHECK(seen.told <= 1 && seen.over <= 1 && seen.started <= 1);
	CHECK(!seen.output_after_told);
}

void check_result(const char *wanted)
{
	AUTO_TEXT struct text line = {0};

	CHECK(exec_told(seen.exec));
	CHECK_INT(exec_print_result(seen.exec, &line), 0);
	CHECK(line.len);
	line.data[line.len - 1] = '\0';
	CHECK_STR(line.data, wanted);
}

/* All that stands in a stream from off on, as a string in a buffer that the next call reuses. */
const char *output(enum stream_id id, uint64_t off)
{
	static char all[4096];
	static char bounce[4096];
	struct spool *s = &seen.exec->streams[id].spool;
	size_t len = 0;

	while (off + len < s->next) {
		struct spool_slice slice;

		CHECK(spool_peek(s, off + len, sizeof(bounce), bounce, &slice) > 0);
		for (int i = 0; i < slice.count; i++) {
			CHECK(len + slice.iov[i].iov_len < sizeof(all));
			memcpy(all + len, slice.iov[i].iov_base, slice.iov[i].iov_len);
			len += slice.iov[i].iov_len;
		}
	}
	all[len] = '\0';
	return all;
}

void check_ended_streams(void)
{
	for (int i = 0; i < STREAM_COUNT; i++)
		CHECK(seen.exec->streams[i].spool.ended);
}

void rig_open(void)
{
	struct backend_args args = {.settings = &settings, .target = "fake:", .address = ""};

	log_open(LOG_SINK_STDERR, LOG_LEVEL_ERROR);
	settings = (struct settings){
		.spec_bytes = SPEC_BYTES_DEFAULT,
		.retain = RETAIN_BYTES_DEFAULT,
		.spool_memory = SPOOL_MEMORY_DEFAULT,
		.spool_dir = "/tmp",
		.stdin_queue = STDIN_QUEUE_DEFAULT,
		.drain_quiet_ms = DRAIN_QUIET_MS_DEFAULT,
		.drain_limit_ms = DRAIN_LIMIT_MS_DEFAULT,
		.kill_give_up_ms = KILL_GIVE_UP_MS_DEFAULT,
		.execs = 4,
	};
	CHECK_INT(loop_new(&loop), 0);
	args.loop = loop;
	CHECK_INT(fake_backend.open(&args, &backend, NULL), 0);
	exec_table_init(&table, backend, loop, &settings, &observer);
}

void rig_close(void)
{
	fake_backend.close(backend);
	loop_free(loop);
}

/* What commands in a container and containers for a command have in common. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "docker.h"
#include "docker_failure.h"

static void resume_run(struct task *task)
{
	struct docker_command *c = container_of(task, struct docker_command, resume_task);

	if (docker_output_flush(&c->output))
		docker_stream_resume(&c->stream);
}

struct docker_command *docker_command_new(struct docker *docker, struct exec *exec,
					  const struct spec *spec)
{
	struct docker_command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->base = (struct command){.exec = exec, .backend = &docker->base};
	c->docker = docker;
	c->spec = spec;
	c->kind = docker->kind;
	snprintf(c->mark, sizeof(c->mark), "%.*s%08x", FAR_MARK_HEX - 8, docker->prefix,
		 ++docker->serial);
	c->output = (struct docker_output){
		.exec = exec,
		.merged = spec->stderr_mode == SPEC_STDERR_MERGED,
		.mark = c->mark,
	};
	task_init(&c->task, NULL);
	task_init(&c->resume_task, resume_run);
	return c;
}

void docker_command_free(struct docker_command *c)
{
	docker_call_cancel(&c->call);
	docker_call_cancel(&c->container_call);
	text_done(&c->refusal_why);
	docker_stream_close(&c->stream);
	docker_output_done(&c->output);
	docker_ensure_cancel(&c->ensure);
	docker_ask_cancel(&c->ask);
	timer_cancel(&c->timer);
	timer_cancel(&c->bare_timer);
	task_cancel(&c->task);
	task_cancel(&c->resume_task);
	text_wipe(&c->line);
	text_done(&c->ask.survivors);
	text_done(&c->ask_why);
	free(c->id);
	free(c->container);
	free(c);
}

void docker_command_resume(struct docker_command *c)
{
	loop_defer(c->docker->base.loop, &c->resume_task);
}

bool docker_command_may_be_whole(const struct docker_command *c, int err)
{
	return err == 0 || ((err == -ECONNRESET || err == -EPIPE) &&
			    c->docker->api.host.transport == DOCKER_UNIX &&
			    docker_frames_whole(&c->stream.frames));
}

void docker_command_abandon(struct docker_command *c)
{
	c->killing = true;
	c->output.killed = true;
	/* An engine whose stream nobody reads would wait with the end of the command. */
	if (c->phase == DOCKER_RUNNING)
		docker_command_resume(c);
}

/* ---- The far shell ---- */

int docker_command_line(struct docker_command *c)
{
	int err = far_tell(&c->line, c->mark);

	return err ? err : far_start(&c->line, c->spec);
}

/*
 * The spec goes ahead of the command's own input, which is let through once it has started. Not
 * before the far shell is there: kept by the engine it would start the command when this
 * daemon has died and the helper, which then kills what it finds, has ended.
 */
static void send_line(struct docker_command *c)
{
	size_t sent = 0;

	while (c->ask.pid && sent < c->line.len) {
		ssize_t n =
			docker_stream_write(&c->stream, c->line.data + sent, c->line.len - sent);

		/* The end of the stream tells of errors. */
		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	docker_drop(&c->line, sent);
	if (!c->line.len)
		text_wipe(&c->line);
}

static void take_reports(struct docker_command *c)
{
	while (c->phase == DOCKER_STARTING) {
		struct docker_report report = docker_output_report(&c->output);

		switch (report.kind) {
		case DOCKER_REPORT_NONE:
			return;
		case DOCKER_REPORT_PID:
			c->ask.pid = (int64_t)report.number;
			send_line(c);
			break;
		case DOCKER_REPORT_START:
			c->ask.ticks = report.number;
			docker_command_started(c, c->ask.pid);
			break;
		case DOCKER_REPORT_CWD:
		case DOCKER_REPORT_ENV:
			c->refusal = report;
			break;
		}
	}
}

/* ---- The stream ---- */

static void stream_answered(struct docker_stream *s, int err)
{
	struct docker_command *c = container_of(s, struct docker_command, stream);

	c->kind->answered(c, err);
}

/*
 * Podman 4.3 writes into stderr what its own attach ran into when a command ends with input
 * unread; when that was a read, output of the command was lost with it.
 */
static bool is_podmans_own(struct docker_command *c, enum stream_id id, const char *data,
			   size_t len)
{
	static const char read_failed[] = "Error: read unixpacket @->/proc/self/fd/";
	static const char write_failed[] = "Error: write unixpacket @->/proc/self/fd/";

	if (!c->docker->api.podman || id != STREAM_STDERR || len < sizeof(write_failed) ||
	    data[len - 1] != '\n' || c->phase != DOCKER_RUNNING)
		return false;
	if (strncmp(data, read_failed, sizeof(read_failed) - 1) == 0)
		c->output_lost = true;
	else if (strncmp(data, write_failed, sizeof(write_failed) - 1) != 0)
		return false;
	return true;
}

/* Output begins to wait in the engine: the end of the command is to be known soon. */
static void watch_end(struct docker_command *c)
{
	uint64_t now = monotonic_ns();
	uint64_t age_ms = (now - c->asked_ns) / 1000000;

	if (now - c->ran_ns > DOCKER_CUT_MS * 1000000ull)
		c->ran_ns = now;
	timer_arm(c->docker->base.loop, &c->timer,
		  age_ms < DOCKER_HELD_LOOK_MS ? DOCKER_HELD_LOOK_MS - age_ms : 0);
}

static size_t stream_output(struct docker_stream *s, enum stream_id id, const char *data,
			    size_t len)
{
	struct docker_command *c = container_of(s, struct docker_command, stream);
	size_t taken;

	if (is_podmans_own(c, id, data, len))
		return len;
	taken = docker_output_take(&c->output, id, data, len);
	if (c->held || taken < len)
		c->held_ns = monotonic_ns();
	c->held = taken < len;
	if (c->held && c->phase == DOCKER_RUNNING && !c->call.running && !timer_armed(&c->timer))
		watch_end(c);
	take_reports(c);
	return taken;
}

static void stream_room(struct docker_stream *s)
{
	struct docker_command *c = container_of(s, struct docker_command, stream);

	send_line(c);
	if (!c->line.len && c->phase == DOCKER_RUNNING)
		exec_input_ready(c->base.exec);
}

static void stream_ended(struct docker_stream *s, int err)
{
	struct docker_command *c = container_of(s, struct docker_command, stream);

	c->eof = true;
	c->eof_ns = monotonic_ns();
	/* Over a network, the end may be noticed long after the fact. */
	if (!err || c->docker->api.host.transport == DOCKER_UNIX)
		c->ask.until = far_until(c->ask.ticks, c->started_ns, c->eof_ns);
	c->kind->ended(c, err);
}

static const struct docker_stream_events stream_events = {
	.answered = stream_answered,
	.output = stream_output,
	.room = stream_room,
	.ended = stream_ended,
};

int docker_command_stream(struct docker_command *c, const char *path, const char *body)
{
	AUTO_TEXT struct text text = {0};

	if (text_append(&text, body, strlen(body)) < 0)
		return -ENOMEM;
	return docker_stream_open(&c->stream, &c->docker->api, path, &text, &stream_events);
}

/* ---- Reports ---- */

void docker_command_started(struct docker_command *c, int64_t pid)
{
	c->phase = DOCKER_RUNNING;
	c->started_ns = monotonic_ns();
	docker_output_open(&c->output);
	exec_started(c->base.exec, pid);
	docker_command_resume(c);
	if (c->killing)
		c->kind->kill(c);
}

void docker_command_exited(struct docker_command *c, int code)
{
	c->phase = DOCKER_ENDED;
	if (c->output_lost) {
		exec_lost(
			c->base.exec, "output_cut",
			"%s: the command ended with %d, but the engine lost the end of its output",
			c->base.backend->target, code);
		return;
	}
	c->output.draining = true;
	docker_output_flush(&c->output);
	exec_output_end(c->base.exec, STREAM_STDOUT);
	exec_output_end(c->base.exec, STREAM_STDERR);
	exec_exited(c->base.exec, code);
}

void docker_command_no_program(struct docker_command *c, int err)
{
	struct exec *exec = c->base.exec;
	char line[KIB];
	size_t len = program_error_line(line, sizeof(line) - 1, c->spec->argv[0], err);

	c->phase = DOCKER_ENDED;
	exec_started(exec, 0);
	line[len++] = '\n';
	exec_output(exec, c->output.merged ? STREAM_STDOUT : STREAM_STDERR, line, len);
	exec_output_end(exec, STREAM_STDOUT);
	exec_output_end(exec, STREAM_STDERR);
	exec_exited(exec, program_error_code(err));
}

int docker_command_why_not(const struct docker_command *c, struct text *why, bool *program)
{
	const char *target = c->base.backend->target;
	const char *said = docker_output_refusal(&c->output);
	struct docker_failure failure = docker_failure_parse(said);

	*program = failure.program && !c->output.reports;
	if (c->refusal.kind == DOCKER_REPORT_CWD)
		return text_fail(why, c->refusal.err, "%s: cannot enter cwd \"%s\": %s", target,
				 c->spec->cwd, strerror(-c->refusal.err));
	if (c->refusal.kind == DOCKER_REPORT_ENV)
		return text_fail(why, -EINVAL,
				 "%s: the shell there cannot set the variable %s: it is its own",
				 target, c->refusal.name);
	if (failure.program && c->output.reports)
		failure.err = -EIO;
	return text_fail(why, failure.err, "%s: cannot start a command: %.*s", target,
			 (int)strcspn(said, "\r\n"), said);
}

void docker_command_drain(struct docker_command *c)
{
	c->output.draining = true;
	docker_command_resume(c);
}

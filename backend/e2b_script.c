#include "e2b_script.h"

#include "bounds.h"

static void take_output(struct e2b_script *script, struct payload *payload)
{
	char buf[4096];
	ssize_t n;

	while ((n = payload_read(payload, buf, sizeof(buf))) > 0)
		if (script->output.len + (size_t)n <= E2B_ANSWER_BYTES_MAX)
			text_append(&script->output, buf, (size_t)n);
}

static bool stream_event(struct e2b_stream *stream, struct e2b_event *event)
{
	struct e2b_script *script = container_of(stream, struct e2b_script, stream);

	if (event->kind == E2B_EVENT_STDOUT) {
		take_output(script, &event->payload);
	} else if (event->kind == E2B_EVENT_END) {
		script->ended = true;
		script->exit_code = event->exited ? event->exit_code : -1;
	}
	return true;
}

static void stream_done(struct e2b_stream *stream, const struct e2b_fault *fault)
{
	struct e2b_script *script = container_of(stream, struct e2b_script, stream);
	struct e2b_fault no_end = {
		.err = -EIO, .unsure = true, .text = "e2b: a script did not end"};

	if (script->ended)
		fault = NULL;
	else if (!fault)
		fault = &no_end;
	script->done(script, script->exit_code, fault);
}

void e2b_script_cancel(struct e2b_script *script)
{
	e2b_stream_cancel(&script->stream);
	text_done(&script->output);
}

int e2b_script_run(struct e2b_script *script)
{
	/* For a script that tries on itself whether it can see environments: two, since a way of
	 * looking that stops at a NUL sees the first. */
	static const struct spec_variable envs[] = {
		{.name = (char *)E2B_SCRIPT_MARK "_1", .value = (char *)"1"},
		{.name = (char *)E2B_SCRIPT_MARK "_2", .value = (char *)"2"},
	};
	size_t count = 0;

	/* What the run before it left. */
	e2b_script_cancel(script);
	script->ended = false;
	script->exit_code = -1;
	script->argv[count++] = "-c";
	script->argv[count++] = script->text;
	script->argv[count++] = "spawnfs";
	for (size_t i = 0; i < script->arg_count; i++)
		script->argv[count++] = script->args[i];
	script->start = (struct e2b_start){
		.cmd = "/bin/sh",
		.args = script->argv,
		.arg_count = count,
		.envs = envs,
		.env_count = ARRAY_LEN(envs),
		.cwd = "/",
		.tag = "spawnfs-helper",
	};
	script->stream = (struct e2b_stream){
		.sandbox = script->sandbox,
		.start = &script->start,
		.user = script->user,
		.kill_s = script->limit_s,
		/* envd's own answer at the limit should come first. */
		.limit_ms = script->limit_s * 1000 + E2B_LIMIT_GRACE_MS,
		.event = stream_event,
		.done = stream_done,
	};
	return e2b_stream_begin(&script->stream);
}

/* What exit and status say. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec_private.h"

static const char *const state_names[] = {
	[EXEC_NEW] = "new",	      [EXEC_STARTING] = "starting", [EXEC_RUNNING] = "running",
	[EXEC_DRAINING] = "draining", [EXEC_DONE] = "done",
};

static const char *const remote_names[] = {
	[REMOTE_NONE] = NULL,
	[REMOTE_RUNNING] = "running",
	[REMOTE_GONE] = "gone",
	[REMOTE_UNKNOWN] = "unknown",
};

static void format_result(const struct result *result, char *buf, size_t size)
{
	char name[16];

	switch (result->kind) {
	case RESULT_NONE:
		snprintf(buf, size, "%s", "");
		break;
	case RESULT_EXITED:
		snprintf(buf, size, "%d", result->code);
		break;
	case RESULT_SIGNALED:
		snprintf(buf, size, "signal %s", signal_name(result->code, name, sizeof(name)));
		break;
	case RESULT_KILLED:
		snprintf(buf, size, "killed");
		break;
	case RESULT_TIMEOUT:
		snprintf(buf, size, "timeout");
		break;
	case RESULT_LOST:
		snprintf(buf, size, "lost %s", result->reason);
		break;
	case RESULT_FAILED:
		snprintf(buf, size, "failed %s", result->reason);
		break;
	}
}

int exec_print_result(const struct exec *exec, struct text *ret)
{
	char line[96];

	format_result(&exec->result, line, sizeof(line));
	return text_printf(ret, "%s\n", line);
}

/* RFC 3339 in UTC with microseconds; null while it has not happened. */
static void add_time(cJSON *json, const char *key, const struct timespec *at)
{
	char second[32];
	char text[64];
	struct tm tm;

	if (!at->tv_sec) {
		cJSON_AddNullToObject(json, key);
		return;
	}
	gmtime_r(&at->tv_sec, &tm);
	strftime(second, sizeof(second), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%06ldZ", second, at->tv_nsec / 1000);
	cJSON_AddStringToObject(json, key, text);
}

static void add_stream(cJSON *json, const char *key, const struct stream *s)
{
	cJSON *o = cJSON_AddObjectToObject(json, key);

	cJSON_AddNumberToObject(o, "first", (double)s->spool.first);
	cJSON_AddNumberToObject(o, "next", (double)s->spool.next);
	cJSON_AddBoolToObject(o, "ended", s->ended);
	cJSON_AddBoolToObject(o, "held", s->held);
	if (s->spool.file_error)
		cJSON_AddStringToObject(o, "spool_error", strerror(-s->spool.file_error));
}

static void add_input(cJSON *json, const struct exec *exec)
{
	const struct input *in = &exec->input;
	cJSON *o = cJSON_AddObjectToObject(json, "stdin");

	cJSON_AddNumberToObject(o, "next", (double)in->bytes);
	cJSON_AddNumberToObject(o, "queued", (double)in->queue.len);
	cJSON_AddBoolToObject(o, "ended", in->ended || in->eof_sent || in->error);
}

static void add_string_or_null(cJSON *json, const char *key, const char *value)
{
	if (value)
		cJSON_AddStringToObject(json, key, value);
	else
		cJSON_AddNullToObject(json, key);
}

/* The result as the exit file shows it: only once it can be read there. */
static void add_result(cJSON *json, const struct exec *exec)
{
	const struct result *result = &exec->result;
	bool told = exec_told(exec);
	char line[96];
	char name[16];

	format_result(result, line, sizeof(line));
	add_string_or_null(json, "result", told ? line : NULL);
	if (told && result->kind == RESULT_EXITED)
		cJSON_AddNumberToObject(json, "code", result->code);
	else
		cJSON_AddNullToObject(json, "code");
	add_string_or_null(json, "signal",
			   told && result->kind == RESULT_SIGNALED
				   ? signal_name(result->code, name, sizeof(name))
				   : NULL);
}

int exec_print_status(const struct exec *exec, struct text *ret)
{
	cJSON *json = cJSON_CreateObject();
	char *printed;
	int err = -ENOMEM;

	cJSON_AddStringToObject(json, "state", state_names[exec->state]);
	add_result(json, exec);
	add_string_or_null(json, "error", exec->error);
	if (exec->pid)
		cJSON_AddNumberToObject(json, "pid", (double)exec->pid);
	else
		cJSON_AddNullToObject(json, "pid");
	cJSON_AddStringToObject(json, "target", exec->table->backend->target);
	add_time(json, "started", &exec->started);
	add_time(json, "ended", &exec->ended);
	add_string_or_null(json, "remote", remote_names[exec->remote]);
	add_input(json, exec);
	add_stream(json, "stdout", &exec->streams[STREAM_STDOUT]);
	add_stream(json, "stderr", &exec->streams[STREAM_STDERR]);
	printed = cJSON_Print(json);
	if (printed)
		err = text_printf(ret, "%s\n", printed);
	cJSON_free(printed);
	cJSON_Delete(json);
	return err;
}

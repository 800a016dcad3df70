/* What is the same in both codecs: errors are always JSON, and an end means the same. */
#include "e2b_codec.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const char *e2b_method_name(enum e2b_method method)
{
	static const char *const names[] = {
		[E2B_START] = "Start",
		[E2B_LIST] = "List",
		[E2B_SEND_INPUT] = "SendInput",
		[E2B_CLOSE_STDIN] = "CloseStdin",
		[E2B_SEND_SIGNAL] = "SendSignal",
	};

	return names[method];
}

static const char *string_of(const cJSON *object, const char *key)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	return s ? s : "";
}

int e2b_error_parse(const char *data, size_t len, struct e2b_error *ret)
{
	cJSON *json = cJSON_ParseWithLength(data, len);
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
	const cJSON *holder = cJSON_IsObject(error) ? error : json;
	bool found;

	if (!cJSON_IsObject(json)) {
		cJSON_Delete(json);
		return -EPROTO;
	}
	*ret = (struct e2b_error){0};
	snprintf(ret->code, sizeof(ret->code), "%s", string_of(holder, "code"));
	snprintf(ret->message, sizeof(ret->message), "%s", string_of(holder, "message"));
	found = cJSON_IsObject(error) || ret->code[0] || ret->message[0];
	cJSON_Delete(json);
	return found;
}

int64_t e2b_list_find(const char *data, size_t len, const char *tag)
{
	cJSON *json = cJSON_ParseWithLength(data, len);
	const cJSON *process;
	int64_t pid = cJSON_IsObject(json) ? 0 : -EPROTO;

	cJSON_ArrayForEach (process, cJSON_GetObjectItemCaseSensitive(json, "processes")) {
		const cJSON *number = cJSON_GetObjectItemCaseSensitive(process, "pid");

		if (strcmp(string_of(process, "tag"), tag) == 0 && cJSON_IsNumber(number) &&
		    number->valuedouble > 1 && number->valuedouble <= UINT32_MAX)
			pid = (int64_t)number->valuedouble;
	}
	cJSON_Delete(json);
	return pid;
}

/* Go's texts for signals on Linux (zerrors_linux_amd64.go of package syscall). */
static const char *const go_signals[] = {
	[SIGHUP] = "hangup",
	[SIGINT] = "interrupt",
	[SIGQUIT] = "quit",
	[SIGILL] = "illegal instruction",
	[SIGTRAP] = "trace/breakpoint trap",
	[SIGABRT] = "aborted",
	[SIGBUS] = "bus error",
	[SIGFPE] = "floating point exception",
	[SIGKILL] = "killed",
	[SIGUSR1] = "user defined signal 1",
	[SIGSEGV] = "segmentation fault",
	[SIGUSR2] = "user defined signal 2",
	[SIGPIPE] = "broken pipe",
	[SIGALRM] = "alarm clock",
	[SIGTERM] = "terminated",
	[SIGSTKFLT] = "stack fault",
	[SIGCHLD] = "child exited",
	[SIGCONT] = "continued",
	[SIGSTOP] = "stopped (signal)",
	[SIGTSTP] = "stopped",
	[SIGTTIN] = "stopped (tty input)",
	[SIGTTOU] = "stopped (tty output)",
	[SIGURG] = "urgent I/O condition",
	[SIGXCPU] = "CPU time limit exceeded",
	[SIGXFSZ] = "file size limit exceeded",
	[SIGVTALRM] = "virtual timer expired",
	[SIGPROF] = "profiling timer expired",
	[SIGWINCH] = "window changed",
	[SIGIO] = "I/O possible",
	[SIGPWR] = "power failure",
	[SIGSYS] = "bad system call",
};

static int signal_of_text(const char *text, size_t len)
{
	char *end;
	long number;

	for (size_t i = 1; i < ARRAY_LEN(go_signals); i++)
		if (go_signals[i] && strlen(go_signals[i]) == len &&
		    memcmp(go_signals[i], text, len) == 0)
			return (int)i;
	if (strncmp(text, "signal ", 7) != 0)
		return -EPROTO;
	number = strtol(text + 7, &end, 10);
	return end == text + len && number > 0 && number <= SIGRTMAX ? (int)number : -EPROTO;
}

int e2b_event_signal(const struct e2b_event *event)
{
	static const char prefix[] = "signal: ";
	static const char dumped[] = " (core dumped)";
	const char *text = event->status;
	size_t len = strlen(text);

	if (event->exited)
		return 0;
	if (strncmp(text, prefix, strlen(prefix)) == 0) {
		text += strlen(prefix);
		len -= strlen(prefix);
		if (len > strlen(dumped) && strcmp(text + len - strlen(dumped), dumped) == 0)
			len -= strlen(dumped);
		return signal_of_text(text, len);
	}
	/* A process that envd took over in a live upgrade: 128 + N and another text. */
	if (event->exit_code > 128 && event->exit_code - 128 <= SIGRTMAX)
		return event->exit_code - 128;
	return event->exit_code == -1 ? signal_of_text(text, len) : 0;
}

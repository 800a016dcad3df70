/* Log lines to stderr or syslog. */
#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

static const struct {
	const char *name;
	int priority; /* syslog(3) */
} levels[] = {
	[LOG_LEVEL_ERROR] = {"error", LOG_ERR},
	[LOG_LEVEL_WARNING] = {"warning", LOG_WARNING},
	[LOG_LEVEL_INFO] = {"info", LOG_INFO},
	[LOG_LEVEL_DEBUG] = {"debug", LOG_DEBUG},
};

static enum log_sink log_sink = LOG_SINK_STDERR;
static enum log_level log_level = LOG_LEVEL_WARNING;

void log_open(enum log_sink sink, enum log_level level)
{
	log_sink = sink;
	log_level = level;
	if (sink == LOG_SINK_SYSLOG)
		openlog("spawnfs", LOG_PID, LOG_DAEMON);
}

int log_level_parse(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(levels); i++)
		if (strcmp(name, levels[i].name) == 0)
			return (int)i;
	return -EINVAL;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list args;

	if (level > log_level)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	/* Names are anybody's choice: one line stays one, and no terminal obeys it. */
	for (char *p = line; *p; p++)
		if (iscntrl((unsigned char)*p))
			*p = '?';
	if (log_sink == LOG_SINK_SYSLOG)
		syslog(levels[level].priority, "%s", line);
	else
		fprintf(stderr, "spawnfs: %s: %s\n", levels[level].name, line);
}

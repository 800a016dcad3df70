/*
 * Log lines: one call, four levels, to stderr in the foreground and to syslog
 * otherwise. The layer that drops an error logs it; layers that return one do
 * not. Never pass an env value, a token or a spec's text.
 */
#pragma once

#include "util.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Where lines go. */
enum log_sink { LOG_SINK_STDERR, LOG_SINK_SYSLOG };

/* Sets the sink and the least severe level that is still written. */
void log_open(enum log_sink sink, enum log_level level);

/* Finds a level by its name (error, warning, info, debug). Returns it or -EINVAL. */
int log_level_parse(const char *name);

void log_at(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

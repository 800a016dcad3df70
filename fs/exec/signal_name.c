/* Signals by name, as kill(1) lists them, and the real-time ones as RTMIN+N. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "exec.h"

/* Older names for the same numbers (signal(7)). */
static const struct alias {
	const char *name;
	int signo;
} aliases[] = {
	{"CLD", SIGCHLD},
	{"IO", SIGIO},
	{"IOT", SIGABRT},
};

const char *signal_name(int signo, char *buf, size_t size)
{
	const char *name = sigabbrev_np(signo);

	if (name)
		snprintf(buf, size, "%s", name);
	else if (signo == SIGRTMIN)
		snprintf(buf, size, "RTMIN");
	else if (signo > SIGRTMIN && signo <= SIGRTMAX)
		snprintf(buf, size, "RTMIN+%d", signo - SIGRTMIN);
	else
		snprintf(buf, size, "%d", signo);
	return buf;
}

/* Parses digits alone, at most max. Returns the number or -EINVAL. */
static int number_parse(const char *s, int max)
{
	int number = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		if (!isdigit((unsigned char)*s))
			return -EINVAL;
		number = number * 10 + (*s - '0');
		if (number > max)
			return -EINVAL;
	}
	return number;
}

/* Parses what follows RTMIN (+N) or RTMAX (-N). */
static int realtime_parse(const char *s, int base, char sign)
{
	int offset;

	if (!*s)
		return base;
	if (*s != sign)
		return -EINVAL;
	offset = number_parse(s + 1, SIGRTMAX - SIGRTMIN);
	if (offset < 0)
		return offset;
	return sign == '+' ? base + offset : base - offset;
}

int signal_parse(const char *name)
{
	int signo = number_parse(name, SIGRTMAX);

	if (signo >= 0)
		return signo ? signo : -EINVAL;
	if (strncasecmp(name, "SIG", 3) == 0)
		name += 3;
	for (signo = 1; signo < SIGRTMIN; signo++) {
		const char *known = sigabbrev_np(signo);

		if (known && strcasecmp(name, known) == 0)
			return signo;
	}
	for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
		if (strcasecmp(name, aliases[i].name) == 0)
			return aliases[i].signo;
	if (strncasecmp(name, "RTMIN", 5) == 0)
		return realtime_parse(name + 5, SIGRTMIN, '+');
	if (strncasecmp(name, "RTMAX", 5) == 0)
		return realtime_parse(name + 5, SIGRTMAX, '-');
	return -EINVAL;
}

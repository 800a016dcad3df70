/* Growing byte strings, signal names and sizes. */
#include "text.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>

#include "bounds.h"
#include "check.h"
#include "exec.h"
#include "spec.h"

static void test_append_and_printf(void)
{
	AUTO_TEXT struct text t = {0};

	CHECK_STR(text_str(&t), "");
	CHECK_INT(text_append(&t, "", 0), 0);
	CHECK_INT(text_append(&t, "a\0b", 3), 0);
	CHECK_INT(text_printf(&t, "%s%d", "c", 7), 0);
	CHECK_INT(t.len, 5);
	CHECK(memcmp(t.data, "a\0bc7", 6) == 0);
	text_wipe(&t);
	CHECK_INT(t.len, 0);
	CHECK_INT(text_printf(&t, "%0200d", 1), 0);
	CHECK_INT(t.len, 200);
	CHECK_INT(strlen(t.data), 200);
}

static void test_limit_leaves_the_text_alone(void)
{
	AUTO_TEXT struct text t = {0};
	size_t piece = MIB;
	AUTO_FREE char *p = calloc(1, piece);

	CHECK(p);
	for (size_t i = 0; i < TEXT_BYTES_MAX / piece; i++)
		CHECK_INT(text_append(&t, p, piece), 0);
	CHECK_INT(text_append(&t, "x", 1), -E2BIG);
	CHECK_INT(text_append(&t, p, SIZE_MAX), -E2BIG);
	CHECK_INT(text_printf(&t, "%s", "x"), -E2BIG);
	CHECK_INT(text_append_printable(&t, "x", 1), -E2BIG);
	CHECK_INT(text_append(&t, "", 0), 0);
	CHECK_INT(t.len, TEXT_BYTES_MAX);
}

static void test_fail_replaces(void)
{
	AUTO_TEXT struct text t = {0};

	CHECK_INT(text_fail(&t, -EINVAL, "a %s", "b"), -EINVAL);
	CHECK_STR(text_str(&t), "a b");
	CHECK_INT(text_fail(&t, -EIO, "<%s>", text_str(&t)), -EIO);
	CHECK_STR(text_str(&t), "<a b>");
	CHECK_INT(text_fail(NULL, -EIO, "nobody asks"), -EIO);
}

static void check_printable(const char *data, const char *wanted)
{
	AUTO_TEXT struct text t = {0};

	CHECK_INT(text_append_printable(&t, data, strlen(data)), 0);
	CHECK_STR(text_str(&t), wanted);
}

static void test_printable(void)
{
	AUTO_TEXT struct text t = {0};

	check_printable("plain \"text\" \\", "plain \"text\" \\");
	check_printable("a\nb\033[31m\177", "a\\x0ab\\x1b[31m\\x7f");
	check_printable("\u00a0\u00e9 \u20ac \U0001f600", "\u00a0\u00e9 \u20ac \U0001f600");
	check_printable("\xc2\x9b", "\\xc2\\x9b"); /* CSI */
	check_printable("\xc0\x80 \xc1\xbf", "\\xc0\\x80 \\xc1\\xbf");
	check_printable("\xe0\x9f\xbf", "\\xe0\\x9f\\xbf");
	check_printable("\xed\xa0\x80", "\\xed\\xa0\\x80");
	check_printable("\xed\x9f\xbf", "\xed\x9f\xbf");
	check_printable("\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf");
	check_printable("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf");
	check_printable("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
	check_printable("\xf5\x80\x80\x80 \x80 \xff", "\\xf5\\x80\\x80\\x80 \\x80 \\xff");
	check_printable("\xe2\x82", "\\xe2\\x82");
	check_printable("\xe2\x82z", "\\xe2\\x82z");
	CHECK_INT(text_append_printable(&t, "a\0b", 3), 0);
	CHECK_STR(text_str(&t), "a\\x00b");
}

static void check_signal(const char *name, int signo)
{
	CHECK_INT(signal_parse(name), signo);
}

static void test_signals(void)
{
	char buf[32];
	static const char *const wrong[] = {
		"",	  "0",	      "-1",	 "65",	      "+9",	 "9 ",
		"TERMX",  "SIG",      "SIG9",	 "SIGSIGINT", "RTMIN-",	 "RTMIN-1",
		"RTMIN+", "RTMIN+31", "RTMAX+1", "RTMIN3",    "RTMAX-x", "99999999999999999999"};

	check_signal("TERM", SIGTERM);
	check_signal("SIGTERM", SIGTERM);
	check_signal("sigKill", SIGKILL);
	check_signal("15", 15);
	check_signal("009", 9);
	check_signal("64", 64);
	check_signal("CLD", SIGCHLD);
	check_signal("IOT", SIGABRT);
	check_signal("rtmin", SIGRTMIN);
	check_signal("RTMIN+3", SIGRTMIN + 3);
	check_signal("SIGRTMAX-1", SIGRTMAX - 1);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		CHECK_INT(signal_parse(wrong[i]), -EINVAL);
	CHECK_STR(signal_name(SIGKILL, buf, sizeof(buf)), "KILL");
	CHECK_STR(signal_name(SIGRTMIN + 3, buf, sizeof(buf)), "RTMIN+3");
	CHECK_STR(signal_name(33, buf, sizeof(buf)), "33");
	for (int signo = 1; signo <= SIGRTMAX; signo++)
		CHECK_INT(signal_parse(signal_name(signo, buf, sizeof(buf))), signo);
}

static void check_size(const char *s, uint64_t wanted)
{
	uint64_t size = 0;

	CHECK_INT(size_parse(s, &size), 0);
	CHECK_INT(size, wanted);
}

static void test_sizes(void)
{
	static const char *const wrong[] = {"",		"K",   "-1",   "+1",
					    " 1",	"1 ",  "1X",   "1KB",
					    "1KK",	"0x1", "1.5M", "18446744073709551616",
					    "16777216T"};
	uint64_t size = 42;

	check_size("0", 0);
	check_size("65536", 65536);
	check_size("64K", 65536);
	check_size("3m", 3 << 20);
	check_size("2G", (uint64_t)2 << 30);
	check_size("1T", (uint64_t)1 << 40);
	check_size("18446744073709551615", UINT64_MAX);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		CHECK_INT(size_parse(wrong[i], &size), -EINVAL);
	CHECK_INT(size, 42);
}

int main(void)
{
	RUN(test_append_and_printf);
	RUN(test_limit_leaves_the_text_alone);
	RUN(test_fail_replaces);
	RUN(test_printable);
	RUN(test_signals);
	RUN(test_sizes);
}

/* Specs: what is accepted and how it is shown, what is refused and in which words. */
#include "spec.h"

#include <errno.h>
#include <time.h>

#include "bounds.h"
#include "check.h"

#define SECRET "hunter2"

static struct spec *parse(const char *text)
{
	AUTO_TEXT struct text why = {0};
	struct spec *spec = NULL;
	int err = spec_parse(text, strlen(text), &spec, &why);

	if (err < 0)
		fprintf(stderr, "%s: %s\n", text, text_str(&why));
	CHECK_INT(err, 0);
	CHECK(spec->argc > 0 && !spec->argv[spec->argc]);
	CHECK_INT(why.len, 0);
	return spec;
}

/* The text is accepted and shown as wanted, and what is shown is accepted and shown the same. */
static void check_shown(const char *text, const char *wanted)
{
	AUTO_TEXT struct text shown = {0};
	AUTO_TEXT struct text again = {0};
	struct spec *spec = parse(text);

	CHECK_INT(spec_print(spec, &shown), 0);
	CHECK(shown.len && shown.data[shown.len - 1] == '\n');
	spec_free(spec);
	spec = parse(shown.data);
	CHECK_INT(spec_print(spec, &again), 0);
	CHECK_STR(again.data, shown.data);
	spec_free(spec);
	shown.data[shown.len - 1] = '\0';
	CHECK_STR(shown.data, wanted);
}

static void check_refused_bytes(const char *text, size_t len, const char *words)
{
	AUTO_TEXT struct text why = {0};
	struct spec *spec = NULL;

	if (spec_parse(text, len, &spec, &why) != -EINVAL || !strstr(text_str(&why), words) ||
	    strncmp(text_str(&why), "spec: ", 6) != 0) {
		fprintf(stderr, "%s: should be refused with \"%s\", but: \"%s\"\n", text, words,
			text_str(&why));
		abort();
	}
	CHECK(!spec);
	CHECK(!strstr(text_str(&why), SECRET));
	/* Nobody need ask why. */
	CHECK_INT(spec_parse(text, len, &spec, NULL), -EINVAL);
}

static void check_refused(const char *text, const char *words)
{
	check_refused_bytes(text, strlen(text), words);
}

static void test_forms(void)
{
	check_shown("[\"a\",\"\",\"c d\"]", "{\"cmd\":[\"a\",\"\",\"c d\"]}");
	check_shown(" \t\r\n{\"cmd\":[\"a\"]}\n ", "{\"cmd\":[\"a\"]}");
	check_shown("{\"cmd\":\"a b\\n\"}", "{\"cmd\":\"a b\\n\"}");
	check_shown("ls -l\n", "{\"cmd\":\"ls -l\"}");
	check_shown("  a\n b\n\n", "{\"cmd\":\"  a\\n b\\n\"}");
	check_shown("\"quoted\"", "{\"cmd\":\"\\\"quoted\\\"\"}");
}

static void test_shell(void)
{
	struct spec *spec = parse("echo hi\n");

	CHECK(spec->shell);
	CHECK_INT(spec->argc, 3);
	CHECK_STR(spec->argv[0], "/bin/sh");
	CHECK_STR(spec->argv[1], "-c");
	CHECK_STR(spec->argv[2], "echo hi");
	CHECK_INT(spec->keys, SPEC_KEY_CMD);
	spec_free(spec);
	/* sh would take it for an option. */
	spec = parse("{\"cmd\":\"-x\"}");
	CHECK_INT(spec->argc, 4);
	CHECK_STR(spec->argv[2], "--");
	CHECK_STR(spec->argv[3], "-x");
	spec_free(spec);
	check_shown("+x", "{\"cmd\":\"+x\"}");
	check_refused("", "empty");
	check_refused(" \n\t", "empty");
	check_refused("{\"cmd\":\" \\n\"}", "\"cmd\"");
}

static void test_every_key(void)
{
	struct spec *spec =
		parse("{\"cmd\":[\"a\"],\"env\":{\"B\":\"1=2\",\"A\":-7,\"N\":null,\"F\":false,"
		      "\"E\":\"\",\"I\":9007199254740991},\"cwd\":\"/tmp\",\"stderr\":\"merged\","
		      "\"stdin\":\"open\",\"user\":\"u\",\"pty\":{\"cols\":1,\"rows\":65535},"
		      "\"timeout\":0.0001,\"limits\":{},\"sandbox\":\"s\",\"retain\":\"64K\"}");

	CHECK_INT(spec->keys, (1 << 11) - 1);
	CHECK(!spec->shell);
	CHECK_INT(spec->env_count, 6);
	CHECK_STR(spec->env[0].name, "B");
	CHECK_STR(spec->env[0].value, "1=2");
	CHECK_STR(spec->env[1].value, "-7");
	CHECK(!spec->env[2].value);
	CHECK(!spec->env[3].value);
	CHECK_STR(spec->env[4].value, "");
	CHECK_STR(spec->env[5].value, "9007199254740991");
	CHECK_STR(spec->cwd, "/tmp");
	CHECK_STR(spec->user, "u");
	CHECK_STR(spec->sandbox, "s");
	CHECK_INT(spec->stderr_mode, SPEC_STDERR_MERGED);
	CHECK_INT(spec->stdin_mode, SPEC_STDIN_OPEN);
	CHECK(spec->pty);
	CHECK_INT(spec->pty_rows, 65535);
	CHECK_INT(spec->pty_cols, 1);
	CHECK_INT(spec->timeout_ms, 1);
	CHECK_INT(spec->retain, 65536);
	spec_free(spec);
	spec_free(NULL);
	check_shown(
		"{\"cmd\":[\"a\"],\"env\":{\"T\":\"" SECRET "\",\"N\":5,\"U\":false},\"cwd\":"
		"\"/\",\"stderr\":\"passthrough\",\"stdin\":\"none\",\"user\":\"u\",\"pty\":"
		"true,\"timeout\":1.5,\"sandbox\":\"s\",\"retain\":1048576}",
		"{\"cmd\":[\"a\"],\"env\":{\"T\":\"[REDACTED]\",\"N\":\"[REDACTED]\",\"U\":null},"
		"\"cwd\":\"/\",\"stderr\":\"passthrough\",\"stdin\":\"none\",\"user\":\"u\","
		"\"pty\":{\"rows\":24,\"cols\":80},\"timeout\":1.5,\"sandbox\":\"s\","
		"\"retain\":1048576}");
}

static void test_key_names(void)
{
	CHECK_STR(spec_key_name(SPEC_KEY_PTY), "pty");
	CHECK_STR(spec_key_name(SPEC_KEY_RETAIN | SPEC_KEY_CWD), "cwd");
	CHECK_STR(spec_key_name(0), "");
}

static void test_strings_are_bytes(void)
{
	static const char text[] =
		"[\"\\u0061\\u00e9\\ud83d\\ude00\\/\\b\",\"\xff\xc0\",\"\n\x01\"]";
	struct spec *spec = parse(text);

	CHECK_STR(spec->argv[0], "a\u00e9\U0001f600/\b");
	CHECK_STR(spec->argv[1], "\xff\xc0");
	CHECK_STR(spec->argv[2], "\n\x01");
	spec_free(spec);
	check_shown(text, "{\"cmd\":[\"a\u00e9\U0001f600/\\b\",\"\xff\xc0\",\"\\n\\u0001\"]}");
}

static void test_json_is_strict(void)
{
	check_refused("[\"a\"", "ends before");
	check_refused("{\"cmd\":[\"a\"]", "ends before");
	check_refused("[\"a\"]x", "more after the end");
	check_refused("[\"a\"][\"b\"]", "more after the end");
	check_refused("[\"a\",]", "not valid JSON");
	check_refused("{\"cmd\":tru}", "not valid JSON");
	check_refused("{'cmd':[\"a\"]}", "not valid JSON");
	check_refused("{\"cmd\":[\"a\"]/**/}", "not valid JSON");
	check_refused("[\"a\"}", "not valid JSON");
	check_refused("[\"a\" \"b\"]", "not valid JSON");
	check_refused("[\"\\x\"]", "not valid JSON");
	check_refused("[\"\\ud800\"]", "not valid JSON");
	check_refused("[\"\\udc00\\ud800\"]", "not valid JSON");
	check_refused("[\"\\ud800\\u0041\"]", "not valid JSON");
	check_refused("[\"\\u12g4\"]", "hex");
	check_refused("[\"\\u12\"]", "hex");
	check_refused("[\"a\\u0000\"]", "NUL");
	check_refused("[\"a\"\f]", "control byte");
	check_refused("[01]", "begins with a digit");
	check_refused("[-]", "begins with a digit");
	check_refused("[1.]", "number");
	check_refused("[.1]", "not valid JSON");
	check_refused("[+1]", "not valid JSON");
	check_refused("[1e]", "number");
	check_refused("[1e+]", "number");
	check_refused("[1.2.3]", "number");
	check_refused("[1-1]", "number");
	check_refused("[0x10]", "not valid JSON");
	check_refused("[Infinity]", "not valid JSON");
	check_refused("[1111111111111111111111111111111111111111111111111111111111111111111111]",
		      "too long");
	check_refused_bytes("[\"a\0b\"]", 7, "NUL");
	check_refused_bytes("a\0b", 3, "NUL");
	check_refused_bytes("[\"a\"]\0", 6, "NUL");
}

static void test_keys_are_strict(void)
{
	check_refused("{}", "\"cmd\"");
	check_refused("{\"cwd\":\"/\"}", "\"cmd\"");
	check_refused("{\"cmd\":[\"a\"],\"comand\":1}", "unknown key \"comand\"");
	check_refused("{\"Cmd\":[\"a\"]}", "unknown key \"Cmd\"");
	check_refused("{\"cmd\":[\"a\"],\"x\\n\":1}", "\"x\\x0a\"");
	check_refused("{\"cmd\":[\"a\"],\"\":1}", "unknown key \"\"");
	check_refused("{\"cmd\":[\"a\"],\"c\\u006dd\":[\"b\"]}", "\"cmd\" is given twice");
	check_refused("{\"cmd\":[]}", "\"cmd\"");
	check_refused("{\"cmd\":[\"\"]}", "\"cmd\"");
	check_refused("{\"cmd\":\"\"}", "\"cmd\"");
	check_refused("{\"cmd\":null}",
		      "\"cmd\" must be an array of strings or a string, not null");
	check_refused("{\"cmd\":[\"a\",1]}", "item 1 is a number");
	check_refused("{\"cmd\":[\"a\",[\"b\"]]}", "item 1 is an array");
	check_refused("[{}]", "item 0 is an object");
	check_refused("{\"cmd\":[\"a\"],\"cwd\":1}", "\"cwd\" must be a string, not a number");
	check_refused("{\"cmd\":[\"a\"],\"cwd\":\"\"}", "\"cwd\" must not be empty");
	check_refused("{\"cmd\":[\"a\"],\"user\":true}", "\"user\" must be a string, not true");
	check_refused("{\"cmd\":[\"a\"],\"sandbox\":{}}", "\"sandbox\"");
	check_refused("{\"cmd\":[\"a\"],\"stderr\":\"both\"}", "\"stderr\" must be");
	check_refused("{\"cmd\":[\"a\"],\"stderr\":null}", "\"stderr\" must be");
	check_refused("{\"cmd\":[\"a\"],\"stdin\":false}", "\"stdin\" must be");
	check_refused("{\"cmd\":[\"a\"],\"limits\":[]}", "\"limits\"");
	check_refused("{\"cmd\":[\"a\"],\"limits\":{\"a\":[{\"b\":1,\"b\":1}]}}", "twice");
	check_refused("{\"cmd\":[\"a\"],\"limits\":{\"disk\":1}}", "\"disk\"");
	check_refused("{\"cmd\":[\"a\"],\"limits\":{\"pids\":0}}", "\"pids\"");
	check_refused("{\"cmd\":[\"a\"],\"limits\":{\"pids\":1.5}}", "\"pids\"");
	check_refused("{\"cmd\":[\"a\"],\"limits\":{\"memory\":\"big\"}}", "\"memory\"");
	check_refused("{\"cmd\":[\"a\"],\"limits\":{\"cpu\":\"1\"}}", "\"cpu\"");
}

static void test_env_is_strict(void)
{
	check_refused("{\"cmd\":[\"a\"],\"env\":[\"A=" SECRET "\"]}", "\"env\" must be an object");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":true}}", "\"A\"");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":[\"" SECRET "\"]}}", "\"A\"");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":1.5}}", "write it as a string");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":9007199254740992}}", "write it as a string");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":-9007199254740993}}",
		      "write it as a string");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":1e999}}", "write it as a string");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"\":\"" SECRET "\"}}", "without a name");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A=B\":\"" SECRET "\"}}", "\"A=B\"");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":\"" SECRET "\",\"A\":\"x\"}}", "\"A\"");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":1,\"C\":2,\"B\":3,\"A\":4}}", "\"A\"");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":\"" SECRET "\\u0000\"}}", "NUL");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":\"" SECRET "\"},\"x\":1}", "unknown");
	check_refused("{\"cmd\":[\"a\"],\"env\":{\"A\":\"" SECRET "\" x}}", "not valid JSON");
}

static void test_numbers_are_strict(void)
{
	check_refused("{\"cmd\":[\"a\"],\"timeout\":0}", "\"timeout\"");
	check_refused("{\"cmd\":[\"a\"],\"timeout\":-1}", "\"timeout\"");
	check_refused("{\"cmd\":[\"a\"],\"timeout\":1e300}", "\"timeout\"");
	check_refused("{\"cmd\":[\"a\"],\"timeout\":1e999}", "\"timeout\"");
	check_refused("{\"cmd\":[\"a\"],\"timeout\":\"5\"}", "\"timeout\"");
	check_refused("{\"cmd\":[\"a\"],\"retain\":65535}", "from 65536");
	check_refused("{\"cmd\":[\"a\"],\"retain\":-1}", "\"retain\"");
	check_refused("{\"cmd\":[\"a\"],\"retain\":65536.5}", "\"retain\"");
	check_refused("{\"cmd\":[\"a\"],\"retain\":1e999}", "\"retain\"");
	check_refused("{\"cmd\":[\"a\"],\"retain\":\"2T\"}", "\"retain\"");
	check_refused("{\"cmd\":[\"a\"],\"retain\":\"lots\"}", "\"retain\"");
	check_refused("{\"cmd\":[\"a\"],\"pty\":false}", "\"pty\" must be");
	check_refused("{\"cmd\":[\"a\"],\"pty\":{}}", "\"pty\" needs");
	check_refused("{\"cmd\":[\"a\"],\"pty\":{\"rows\":1}}", "\"pty\" needs");
	check_refused("{\"cmd\":[\"a\"],\"pty\":{\"rows\":0,\"cols\":1}}", "\"rows\"");
	check_refused("{\"cmd\":[\"a\"],\"pty\":{\"rows\":1,\"cols\":65536}}", "\"cols\"");
	check_refused("{\"cmd\":[\"a\"],\"pty\":{\"rows\":1,\"cols\":1.5}}", "\"cols\"");
	check_refused("{\"cmd\":[\"a\"],\"pty\":{\"rows\":1,\"cols\":1,\"x\":1}}", "only");
}

static void test_depth(void)
{
	char text[3 * SPEC_DEPTH_MAX];
	size_t len = 0;

	for (int i = 0; i < SPEC_DEPTH_MAX; i++)
		text[len++] = '[';
	for (int i = 0; i < SPEC_DEPTH_MAX; i++)
		text[len++] = ']';
	check_refused_bytes(text, len, "item 0 is an array");
	memmove(text + 1, text, len);
	check_refused_bytes(text, len, "deeper than");
}

/* ---- Frames ---- */

/* The number of bytes after which the value is complete; -1: it never is; -2: an error. */
static int framed(const char *text)
{
	struct frame f = {0};
	AUTO_TEXT struct text why = {0};
	int at = -1;

	for (int i = 0; text[i]; i++) {
		if (frame_feed(&f, &text[i], 1, &why) < 0)
			return -2;
		if (f.complete && at < 0)
			at = i + 1;
	}
	return at;
}

static void test_frame(void)
{
	struct frame f = {0};

	CHECK_INT(framed("[\"a\"]"), 5);
	CHECK_INT(framed(" {\"a\":[{}]} \n"), 11);
	CHECK_INT(framed("[\"]\\\"]\\\\\"]"), 10);
	CHECK_INT(framed("[\"\\\\\\\"]\""), -1);
	CHECK_INT(framed("echo ] }"), -1);
	CHECK_INT(framed("[] x"), -2);
	CHECK_INT(framed("[]]"), -2);
	CHECK_INT(frame_feed(&f, "", 0, NULL), 0);
	CHECK_INT(f.kind, FRAME_EMPTY);
	CHECK_INT(frame_feed(&f, " \n", 2, NULL), 0);
	CHECK_INT(f.kind, FRAME_EMPTY);
	CHECK_INT(frame_feed(&f, "e", 1, NULL), 0);
	CHECK_INT(f.kind, FRAME_SHELL);
	CHECK_INT(frame_feed(&f, "\0", 1, NULL), -EINVAL);
}

/* ---- Size ---- */

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Quadratic work on these would take minutes; the bound leaves room for sanitizers. */
static void test_large_specs_are_linear(void)
{
	AUTO_TEXT struct text text = {0};
	AUTO_TEXT struct text shown = {0};
	double began = seconds();
	struct frame f = {0};
	struct spec *spec;

	CHECK_INT(text_printf(&text, "{\"cmd\":[\"a\""), 0);
	for (int i = 0; i < 80000; i++)
		CHECK_INT(text_printf(&text, ",\"%d\"", i), 0);
	CHECK_INT(text_printf(&text, "],\"env\":{\"A\":\"{[\""), 0);
	while (text.len < 2 * MIB - 100)
		CHECK_INT(text_printf(&text, ",\"N%zu\":\"\\u00e9\"", text.len), 0);
	CHECK_INT(text_printf(&text, "}}"), 0);
	for (size_t i = 0; i < text.len; i++) {
		CHECK(!f.complete);
		CHECK_INT(frame_feed(&f, text.data + i, 1, NULL), 0);
	}
	CHECK(f.complete);
	spec = parse(text.data);
	CHECK_INT(spec->argc, 80001);
	CHECK_INT(spec_print(spec, &shown), 0);
	spec_free(spec);
	CHECK(seconds() - began < 10);
}

int main(void)
{
	RUN(test_forms);
	RUN(test_shell);
	RUN(test_every_key);
	RUN(test_key_names);
	RUN(test_strings_are_bytes);
	RUN(test_json_is_strict);
	RUN(test_keys_are_strict);
	RUN(test_env_is_strict);
	RUN(test_numbers_are_strict);
	RUN(test_depth);
	RUN(test_frame);
	RUN(test_large_specs_are_linear);
}

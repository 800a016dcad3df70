/* What flows through an exec: output to its last byte, and input with its end. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "exec_rig.h"

/* ---- Drain ---- */

static void test_output_after_exit_is_read(void)
{
	begin_started(
		"[\"fake\",\"exit 0\",\"delay 300\",\"out late\",\"delay 300\",\"out later\"]");
	run_until(is_told);
	check_result("0");
	CHECK_STR(output(STREAM_STDOUT, 0), "late\nlater\n");
	finish();
}

static void test_a_child_that_holds_the_output_is_cut_off(void)
{
	begin_started("[\"fake\",\"out x\",\"exit 0\",\"delay 600\",\"out lost\",\"delay 100\"]");
	run_until(is_told);
	check_result("0");
	CHECK(!seen.over);
	CHECK(strstr(seen.exec->error, "cut off"));
	check_ended_streams();
	run_until(is_over);
	CHECK_STR(output(STREAM_STDOUT, 0), "x\n");
	finish();
}

static void test_exit_is_not_told_before_the_output_is_readable(void)
{
	struct spool_reader reader = {0};
	struct spool *s;

	/* 1 MiB cannot all be kept: the command is held back, and has not even ended. */
	begin_started("{\"cmd\":[\"fake\",\"flood 1M\",\"exit 0\"],\"retain\":65536}");
	run_for(50);
	s = &seen.exec->streams[STREAM_STDOUT].spool;
	CHECK_INT(s->next, 65536);
	CHECK(!seen.told);
	exec_reader_open(seen.exec, STREAM_STDOUT, &reader);
	while (!seen.told) {
		exec_reader_move(seen.exec, STREAM_STDOUT, &reader, s->next);
		run_for(1);
	}
	check_result("0");
	CHECK_INT(s->next, MIB);
	CHECK_STR(output(STREAM_STDOUT, MIB - 32), "000000000065534\n000000000065535\n");
	exec_reader_close(seen.exec, STREAM_STDOUT, &reader);
	finish();
}

static void test_full_stdout_does_not_hold_stderr(void)
{
	begin_started("{\"cmd\":[\"fake\",\"flood 64K\",\"err still here\",\"exit "
		      "0\"],\"retain\":65536}");
	run_until(is_told);
	CHECK_STR(output(STREAM_STDERR, 0), "still here\n");
	finish();
}

static void test_kill_of_a_held_command_leaves_what_is_there(void)
{
	begin_started("{\"cmd\":[\"fake\",\"flood 1M\",\"exit 0\"],\"retain\":65536}");
	exec_kill(seen.exec);
	run_until(is_told);
	check_result("killed");
	CHECK_INT(seen.exec->streams[STREAM_STDOUT].spool.next, 65536);
	CHECK_INT(seen.exec->streams[STREAM_STDOUT].spool.first, 0);
	finish();
}

static void test_merged_stderr_ends_with_stdout(void)
{
	begin_started("{\"cmd\":[\"fake\",\"out x\",\"end-out\",\"stay\"],\"stderr\":\"merged\"}");
	check_ended_streams();
	finish();
}

/* ---- Input ---- */

static void write_all(const char *data)
{
	size_t len = strlen(data);

	while (len) {
		ssize_t n = exec_write(seen.exec, data, len);

		if (n == -EAGAIN) {
			run_until(may_write);
			continue;
		}
		CHECK(n > 0);
		data += n;
		len -= (size_t)n;
	}
}

static void test_input_before_the_start_comes_first(void)
{
	begin();
	write_all("one ");
	exec_close_input(seen.exec);
	exec_open_input(seen.exec);
	CHECK_INT(start("[\"fake\",\"delay 20\",\"echo-stdin\",\"exit 0\"]"), 0);
	write_all("two ");
	run_until(is_started);
	write_all("three");
	run_for(5);
	CHECK(!seen.told);
	exec_close_input(seen.exec);
	run_until(is_told);
	CHECK_STR(output(STREAM_STDOUT, 0), "one two three");
	CHECK_INT(seen.exec->input.bytes, 13);
	CHECK_INT(exec_write(seen.exec, "x", 1), -EPIPE);
	finish();
}

static void test_close_before_the_start_is_the_end(void)
{
	begin();
	write_all("all");
	exec_close_input(seen.exec);
	CHECK_INT(start("[\"fake\",\"delay 5\",\"echo-stdin\",\"exit 0\"]"), 0);
	run_until(is_told);
	CHECK_STR(output(STREAM_STDOUT, 0), "all");
	finish();
}

static void test_slow_input_loses_nothing(void)
{
	char data[1001];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)('a' + i % 26);
	data[1000] = '\0';
	begin_started("[\"fake\",\"slow-stdin 64\",\"echo-stdin\",\"exit 0\"]");
	write_all(data);
	exec_close_input(seen.exec);
	run_until(is_told);
	CHECK_STR(output(STREAM_STDOUT, 0), data);
	finish();
}

static void test_input_kept_open_ends_by_eof_only(void)
{
	begin_started("{\"cmd\":[\"fake\",\"count-stdin\",\"exit 0\"],\"stdin\":\"open\"}");
	write_all("12345");
	exec_close_input(seen.exec);
	run_for(20);
	CHECK(!seen.told);
	exec_end_input(seen.exec);
	exec_end_input(seen.exec);
	CHECK_INT(exec_write(seen.exec, "x", 1), -EPIPE);
	run_until(is_told);
	CHECK_STR(output(STREAM_STDOUT, 0), "5\n");
	finish();
}

static void test_a_kill_is_no_end_of_input(void)
{
	begin_started("[\"fake\",\"kill-delay 300\",\"count-stdin\",\"exit 0\"]");
	write_all("x");
	exec_kill(seen.exec);
	exec_close_input(seen.exec);
	exec_end_input(seen.exec);
	CHECK_INT(exec_write(seen.exec, "x", 1), -EPIPE);
	run_until(is_told_and_over);
	check_result("killed");
	CHECK_STR(output(STREAM_STDOUT, 0), "");
	finish();
}

static void test_input_that_the_command_closed(void)
{
	begin_started("[\"fake\",\"close-stdin\",\"stay\"]");
	CHECK_INT(exec_write(seen.exec, "x", 1), -EPIPE);
	finish();
}

int main(void)
{
	rig_open();
	RUN(test_output_after_exit_is_read);
	RUN(test_a_child_that_holds_the_output_is_cut_off);
	RUN(test_exit_is_not_told_before_the_output_is_readable);
	RUN(test_full_stdout_does_not_hold_stderr);
	RUN(test_kill_of_a_held_command_leaves_what_is_there);
	RUN(test_merged_stderr_ends_with_stdout);
	RUN(test_input_before_the_start_comes_first);
	RUN(test_close_before_the_start_is_the_end);
	RUN(test_slow_input_loses_nothing);
	RUN(test_input_kept_open_ends_by_eof_only);
	RUN(test_a_kill_is_no_end_of_input);
	RUN(test_input_that_the_command_closed);
	rig_close();
}

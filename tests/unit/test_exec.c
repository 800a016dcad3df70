/*
 * The life of an exec: the order of what is told, what a result is and when, and the kill that goes
 * on until it has worked.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "exec_rig.h"

static void test_exit(void)
{
	begin_started("[\"fake\",\"delay 5\",\"out hello\",\"err oops\",\"exit 3\"]");
	CHECK(seen.exec->pid > 0);
	run_until(is_told_and_over);
	check_result("3");
	check_ended_streams();
	CHECK_STR(output(STREAM_STDOUT, 0), "hello\n");
	CHECK_STR(output(STREAM_STDERR, 0), "oops\n");
	CHECK_INT(seen.exec->remote, REMOTE_GONE);
	CHECK_INT(start("[\"fake\"]"), -EBUSY);
	exec_kill(seen.exec);
	check_result("3");
	finish();
}

static void test_signal_of_its_own(void)
{
	begin_started("[\"fake\",\"signal 11\"]");
	run_until(is_told);
	check_result("signal SEGV");
	finish();
}

static void test_refused(void)
{
	begin();
	CHECK_INT(start("[\"fake\",\"delay 5\",\"refuse EACCES no credentials\"]"), 0);
	run_until(is_told_and_over);
	CHECK_INT(seen.start_err, -EACCES);
	CHECK(strstr(seen.exec->error, "no credentials"));
	check_result("failed EACCES");
	check_ended_streams();
	CHECK_INT(exec_write(seen.exec, "x", 1), -EPIPE);
	CHECK_INT(start("[\"fake\"]"), -EBUSY);
	finish();
}

static void test_refused_spec_may_be_mended(void)
{
	begin();
	CHECK_INT(start("{\"cmd\":[\"fake\"],\"user\":\"u\"}"), -EOPNOTSUPP);
	CHECK(strstr(seen.exec->error, "\"user\""));
	CHECK_INT(start("[\"fake\",\"dance\"]"), -EINVAL);
	CHECK_INT(seen.exec->state, EXEC_NEW);
	CHECK_INT(start("[\"fake\",\"exit 0\"]"), 0);
	CHECK(!seen.exec->error);
	run_until(is_told);
	check_result("0");
	finish();
}

static void test_lost_is_told_and_still_killed(void)
{
	begin_started("[\"fake\",\"kill-fails 2\",\"out x\",\"lose stream_closed\"]");
	run_until(is_told);
	check_result("lost stream_closed");
	CHECK(!seen.over);
	CHECK_INT(seen.exec->remote, REMOTE_RUNNING);
	run_until(is_over);
	CHECK_INT(seen.kill_tries, 3);
	CHECK_INT(seen.exec->remote, REMOTE_GONE);
	check_result("lost stream_closed");
	CHECK_STR(output(STREAM_STDOUT, 0), "x\n");
	finish();
}

static void test_gone_without_result_is_lost(void)
{
	begin_started("[\"fake\",\"start\",\"gone\"]");
	run_until(is_told);
	check_result("lost no_result");
	finish();
}

static void test_kill(void)
{
	begin_started("[\"fake\",\"out x\",\"stay\"]");
	exec_kill(seen.exec);
	exec_kill(seen.exec);
	CHECK(!seen.told);
	run_until(is_told_and_over);
	check_result("killed");
	CHECK_INT(seen.kill_tries, 1);
	check_ended_streams();
	finish();
}

static void test_kill_before_any_spec(void)
{
	begin();
	exec_kill(seen.exec);
	run_until(is_told);
	check_result("killed");
	CHECK_INT(start("[\"fake\"]"), -EBUSY);
	finish();
}

static void test_kill_before_the_start(void)
{
	begin();
	CHECK_INT(start("[\"fake\",\"delay 100000\"]"), 0);
	exec_kill(seen.exec);
	run_until(is_told_and_over);
	check_result("killed");
	CHECK(seen.start_err < 0);
	finish();
}

/* A kill that is not answered keeps readers waiting for KILL_TELL_MS, not for ever. */
static void test_kill_without_answer_is_told_then_given_up(void)
{
	uint64_t began = monotonic_ns();

	settings.kill_give_up_ms = 2 * KILL_TELL_MS;
	begin_started("[\"fake\",\"kill-ignored forever\",\"stay\"]");
	exec_kill(seen.exec);
	run_until(is_told);
	CHECK((monotonic_ns() - began) / 1000000 >= KILL_TELL_MS - 1);
	check_result("killed");
	CHECK(!seen.over);
	run_until(is_over);
	CHECK_INT(seen.exec->remote, REMOTE_UNKNOWN);
	check_result("killed");
	finish();
	settings.kill_give_up_ms = KILL_GIVE_UP_MS_DEFAULT;
}

static void test_kill_that_fails_is_told_on_time(void)
{
	uint64_t began = monotonic_ns();

	begin_started("[\"fake\",\"kill-fails 6\",\"stay\"]");
	exec_kill(seen.exec);
	run_until(is_told);
	CHECK((monotonic_ns() - began) / 1000000 < KILL_TELL_MS + 1000);
	CHECK(!seen.over);
	run_until(is_over);
	check_result("killed");
	finish();
}

static void test_removed_exec_lives_until_the_kill_has_worked(void)
{
	begin_started("[\"fake\",\"kill-fails 3\",\"stay\"]");
	exec_remove(seen.exec);
	run_until(is_over);
	CHECK_INT(seen.kill_tries, 4);
	run_until(is_freed);
	CHECK(list_empty(&table.execs));
}

static void test_held_exec_outlives_its_removal(void)
{
	begin_started("[\"fake\",\"out x\",\"stay\"]");
	exec_hold(seen.exec);
	exec_remove(seen.exec);
	run_until(is_told_and_over);
	run_for(10);
	CHECK(seen.exec);
	check_result("killed");
	CHECK_STR(output(STREAM_STDOUT, 0), "x\n");
	exec_unhold(seen.exec);
	run_until(is_freed);
}

static void test_timeout(void)
{
	begin_started("{\"cmd\":[\"fake\",\"start\",\"stay\"],\"timeout\":0.05}");
	run_until(is_told_and_over);
	check_result("timeout");
	finish();
}

static void test_exit_in_time_is_no_timeout(void)
{
	begin_started("{\"cmd\":[\"fake\",\"exit 0\",\"delay 80\",\"out late\"],\"timeout\":0.05}");
	run_until(is_told_and_over);
	check_result("0");
	CHECK_STR(output(STREAM_STDOUT, 0), "late\n");
	finish();
}

static void test_signal(void)
{
	AUTO_TEXT struct text why = {0};

	begin();
	CHECK_INT(exec_signal(seen.exec, SIGTERM, &why), -ESRCH);
	CHECK_INT(start("[\"fake\",\"start\",\"stay\"]"), 0);
	run_until(is_started);
	CHECK_INT(exec_signal(seen.exec, SIGTERM, &why), 0);
	run_until(is_told_and_over);
	check_result("signal TERM");
	CHECK_INT(exec_signal(seen.exec, SIGTERM, &why), -ESRCH);
	finish();
}

int main(void)
{
	rig_open();
	RUN(test_exit);
	RUN(test_signal_of_its_own);
	RUN(test_refused);
	RUN(test_refused_spec_may_be_mended);
	RUN(test_lost_is_told_and_still_killed);
	RUN(test_gone_without_result_is_lost);
	RUN(test_kill);
	RUN(test_kill_before_any_spec);
	RUN(test_kill_before_the_start);
	RUN(test_kill_without_answer_is_told_then_given_up);
	RUN(test_kill_that_fails_is_told_on_time);
	RUN(test_removed_exec_lives_until_the_kill_has_worked);
	RUN(test_held_exec_outlives_its_removal);
	RUN(test_timeout);
	RUN(test_exit_in_time_is_no_timeout);
	RUN(test_signal);
	rig_close();
}

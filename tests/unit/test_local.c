/* The backend local: alone: starting commands, their streams and their ends. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "local_rig.h"

static void test_output_and_code(void)
{
	struct run r = {.argv = SH("echo out; echo err >&2; exit 7")};

	finish(&r);
	CHECK(r.exec.exited && r.exec.value == 7);
	CHECK(strcmp(OUT(r), "out\n") == 0 && strcmp(ERR(r), "err\n") == 0);
	CHECK(r.exec.ended_streams[0] && r.exec.ended_streams[1]);
	run_done(&r);
}

static void test_signaled(void)
{
	struct run r = {.argv = SH("kill -SEGV $$")};

	finish(&r);
	CHECK(r.exec.signaled && r.exec.value == SIGSEGV);
	run_done(&r);
}

static void test_merged(void)
{
	struct run r = {.argv = SH("echo 1; echo 2 >&2; echo 3"),
			.spec.stderr_mode = SPEC_STDERR_MERGED};

	finish(&r);
	CHECK(strcmp(OUT(r), "1\n2\n3\n") == 0 && !r.exec.streams[1].len);
	run_done(&r);
}

static void test_input(void)
{
	struct run r = {.argv = {(char *)"cat", NULL}};

	start(&r);
	await(r.exec.started);
	CHECK(backend->ops->can_write(r.exec.command));
	CHECK(backend->ops->write(r.exec.command, "hello", 5) == 5);
	backend->ops->close_input(r.exec.command);
	await(r.exec.gone);
	CHECK(r.exec.value == 0 && strcmp(OUT(r), "hello") == 0);
	run_done(&r);
}

static void test_no_input(void)
{
	struct run r = {.argv = {(char *)"cat", NULL}, .spec.stdin_mode = SPEC_STDIN_NONE};

	finish(&r);
	CHECK(r.exec.exited && r.exec.value == 0);
	run_done(&r);
}

static void test_input_closed_by_command(void)
{
	struct run r = {.argv = SH("exec <&-; sleep 1000")};

	start(&r);
	await(r.exec.input_closed);
	CHECK(backend->ops->write(r.exec.command, "x", 1) == -EPIPE);
	backend->ops->kill(r.exec.command);
	await(r.exec.gone);
	run_done(&r);
}

static void check_program(const char *program, int code, const char *line)
{
	struct run r = {.argv = {(char *)program, NULL}};

	finish(&r);
	CHECK(r.exec.exited && r.exec.value == code);
	CHECK_STR(ERR(r), line);
	CHECK(!r.exec.streams[0].len);
	run_done(&r);
}

static void test_program_errors(void)
{
	check_program("no-such-program", 127, "spawnfs: no-such-program: command not found\n");
	check_program("", 127, "spawnfs: : command not found\n");
	check_program("/no/such", 127, "spawnfs: /no/such: No such file or directory\n");
	check_program("/etc/passwd/x", 127, "spawnfs: /etc/passwd/x: Not a directory\n");
	check_program("/etc", 126, "spawnfs: /etc: Permission denied\n");
	check_program("/etc/passwd", 126, "spawnfs: /etc/passwd: Permission denied\n");
}

static void test_refusals(void)
{
	struct run cwd = {.argv = {(char *)"true", NULL}, .spec.cwd = (char *)"/no/such"};
	struct run file = {.argv = {(char *)"true", NULL}, .spec.cwd = (char *)"/etc/passwd"};
	size_t size = 3 * MIB;
	char *huge = malloc(size + 1);
	struct run big = {.argv = {(char *)"true", huge, NULL}};

	memset(huge, 'x', size);
	huge[size] = '\0';
	start(&cwd);
	await(cwd.exec.refused);
	CHECK(cwd.exec.value == -ENOENT && strstr(cwd.exec.why, "/no/such"));
	start(&file);
	await(file.exec.refused);
	CHECK(file.exec.value == -ENOTDIR);
	start(&big);
	await(big.exec.refused);
	CHECK(big.exec.value == -E2BIG && strstr(big.exec.why, "ARG_MAX"));
	free(huge);
}

static void test_bytes(void)
{
	char all[256];
	struct spec_variable env[] = {
		{(char *)"BYTES", all}, {(char *)"HOME", NULL}, {(char *)"EMPTY", (char *)""}};
	struct run r = {.argv = {(char *)"/bin/sh", (char *)"-c",
				 (char *)"printf '%s|%s|%s|%s' \"$1\" \"$BYTES\" \"${HOME-unset}\" "
					 "\"${EMPTY-unset}\"",
				 (char *)"sh", all, NULL},
			.spec.env = env,
			.spec.env_count = 3};
	char want[600];
	int len;

	for (int i = 0; i < 255; i++)
		all[i] = (char)(i + 1);
	all[255] = '\0';
	setenv("HOME", "/root", 1);
	finish(&r);
	len = snprintf(want, sizeof(want), "%s|%s|unset|", all, all);
	CHECK(r.exec.streams[0].len == (size_t)len && memcmp(OUT(r), want, (size_t)len) == 0);
	run_done(&r);
}

static void test_large_spec(void)
{
	size_t size = 120000;
	char *big = malloc(size + 1);
	struct run r = {.argv = {(char *)"/bin/sh", (char *)"-c", (char *)"echo ${#1}",
				 (char *)"sh", big, NULL}};

	memset(big, 'x', size);
	big[size] = '\0';
	finish(&r);
	CHECK_STR(OUT(r), "120000\n");
	free(big);
	run_done(&r);
}

static void test_path_and_cwd(void)
{
	char dir[] = "/tmp/test_local.XXXXXX";
	char path[128];
	struct spec_variable env[] = {{(char *)"PATH", path}};
	struct run r = {.argv = {(char *)"tool", (char *)"arg", NULL},
			.spec.env = env,
			.spec.env_count = 1,
			.spec.cwd = dir};
	char file[128];
	FILE *f;

	CHECK(mkdtemp(dir));
	/* First a directory where it may not be executed, then one where it has no #!. */
	snprintf(path, sizeof(path), "/no/such:%s/denied:%s/script", dir, dir);
	snprintf(file, sizeof(file), "%s/denied", dir);
	mkdir(file, 0755);
	snprintf(file, sizeof(file), "%s/denied/tool", dir);
	close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	snprintf(file, sizeof(file), "%s/script", dir);
	mkdir(file, 0755);
	snprintf(file, sizeof(file), "%s/script/tool", dir);
	f = fopen(file, "we");
	fprintf(f, "echo $1; pwd");
	fchmod(fileno(f), 0755);
	fclose(f);
	finish(&r);
	snprintf(file, sizeof(file), "arg\n%s\n", dir);
	CHECK_STR(OUT(r), file);
	run_done(&r);
	snprintf(file, sizeof(file), "rm -r %s", dir);
	CHECK(system(file) == 0);
}

static void test_clean_process(void)
{
	struct run fds = {.argv = SH("ls -l /proc/self/fd | grep -c '[012] -> pipe'; "
				     "ls /proc/self/fd | wc -l")};
	struct run signals = {.argv = SH("grep -E 'Sig(Blk|Ign)' /proc/self/status | "
					 "tr -d '\\n\\t'")};
	struct run group = {.argv = SH("read -r a b c d pgrp sid rest < /proc/$$/stat; "
				       "[ $sid = $$ ] && [ $pgrp = $$ ] && ulimit -Sn")};
	char soft[32];
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	finish(&fds);
	/* 0, 1 and 2 are pipes; with them ls has the directory open, and in $(...) no more. */
	CHECK(strcmp(OUT(fds), "3\n4\n") == 0 || strcmp(OUT(fds), "2\n4\n") == 0);
	finish(&signals);
	CHECK_STR(OUT(signals), "SigBlk:0000000000000000SigIgn:0000000000000000");
	finish(&group);
	snprintf(soft, sizeof(soft), "%lu\n", (unsigned long)limit.rlim_cur);
	CHECK_STR(OUT(group), soft);
	run_done(&fds);
	run_done(&signals);
	run_done(&group);
}

static void test_signal(void)
{
	struct run r = {.argv = SH("trap 'echo got; exit 3' USR1; echo ready; "
				   "while :; do sleep 0.01; done")};
	struct text why = {0};

	start(&r);
	for (int i = 0; i < 1000 && !r.exec.streams[0].len; i++)
		run_for(10);
	CHECK(backend->ops->signal(r.exec.command, SIGUSR1, &why) == 0);
	await(r.exec.gone);
	CHECK(r.exec.exited && r.exec.value == 3 && strcmp(OUT(r), "ready\ngot\n") == 0);
	run_done(&r);
}

static void test_last_byte(void)
{
	/* Held back by a reader that does not read; the end must bring all of it. */
	struct run r = {.argv = SH("head -c 60000 /dev/zero; echo end")};

	r.exec.room = 1000;
	finish(&r);
	CHECK(r.exec.streams[0].len == 60004);
	run_done(&r);
}

static void test_more_is_left_than_may_be_taken(void)
{
	/* As a pipe can hold that the command has enlarged: the end waits for a reader. */
	struct run r = {.argv = SH("head -c 60000 /dev/zero; echo end; exit 3")};

	r.exec.room = 1000;
	r.exec.allowance = 1000;
	start(&r);
	run_for(300);
	CHECK(r.exec.started && !r.exec.exited && !r.exec.gone);
	/* These come too late, and are harmless. */
	backend->ops->close_input(r.exec.command);
	backend->ops->kill(r.exec.command);
	run_for(100);
	CHECK(!r.exec.exited && !r.exec.gone);
	r.exec.room = 0;
	backend->ops->resume(r.exec.command, STREAM_STDOUT);
	await(r.exec.gone);
	CHECK(r.exec.exited && r.exec.value == 3 && r.exec.streams[0].len == 60004);
	run_done(&r);
}

static void test_backpressure(void)
{
	struct run r = {.argv = SH("head -c 3000000 /dev/zero; echo end")};

	r.exec.room = 1000;
	start(&r);
	run_for(200);
	CHECK(!r.exec.exited && r.exec.streams[0].len < 200000);
	r.exec.room = 0;
	backend->ops->resume(r.exec.command, STREAM_STDOUT);
	await(r.exec.gone);
	CHECK(r.exec.streams[0].len == 3000004);
	run_done(&r);
}

static void test_nothing_is_left(void)
{
	pid_t keeper = child_of(getpid());
	struct run *runs = calloc(50, sizeof(*runs));
	struct run first = {.argv = {(char *)"true", NULL}};
	char path[64];
	int keeper_fds;
	int fds;

	CHECK(keeper > 1 && runs);
	/* Then the keeper is up. */
	finish(&first);
	fds = count_entries("/proc/self/fd");
	snprintf(path, sizeof(path), "/proc/%d/fd", keeper);
	keeper_fds = count_entries(path);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++) {
			runs[i] = (struct run){.argv = SH("echo $$; true & (true &)")};
			start(&runs[i]);
		}
		for (int i = 0; i < 50; i++) {
			await(runs[i].exec.gone);
			run_done(&runs[i]);
		}
	}
	free(runs);
	await_no_child(keeper);
	CHECK(count_entries("/proc/self/fd") == fds);
	CHECK(count_entries(path) == keeper_fds);
}

static void test_many_starts_at_once(void)
{
	/* More than the socket takes: the orders queue, and each is of another size. */
	struct run *runs = calloc(300, sizeof(*runs));
	char *big = malloc(40001);

	memset(big, 'y', 40000);
	big[40000] = '\0';
	for (int i = 0; i < 300; i++) {
		runs[i] =
			(struct run){.argv = {(char *)"/bin/sh", (char *)"-c", (char *)"echo ${#1}",
					      (char *)"sh", big + (i % 3 ? 39990 : i * 60), NULL}};
		start(&runs[i]);
	}
	for (int i = 0; i < 300; i++) {
		char want[16];

		await(runs[i].exec.gone);
		snprintf(want, sizeof(want), "%d\n", i % 3 ? 10 : 40000 - i * 60);
		CHECK_STR(OUT(runs[i]), want);
		run_done(&runs[i]);
	}
	free(runs);
	free(big);
}

static void test_no_descriptors(void)
{
	struct run r = {.argv = {(char *)"true", NULL}};
	pid_t keeper = child_of(getpid());
	struct rlimit files = {16, 20000};
	struct rlimit before;

	/* Then the keeper is up. */
	finish(&r);
	r = (struct run){.argv = {(char *)"true", NULL}};
	/* The keeper's epoll, socket, ... are there; a start's descriptors find no room. */
	CHECK(prlimit(keeper, RLIMIT_NOFILE, NULL, &before) == 0);
	files.rlim_cur = 9;
	files.rlim_max = before.rlim_max;
	CHECK(prlimit(keeper, RLIMIT_NOFILE, &files, NULL) == 0);
	start(&r);
	await(r.exec.refused);
	CHECK(r.exec.value == -EMFILE || r.exec.value == -EIO);
	CHECK(prlimit(keeper, RLIMIT_NOFILE, &before, NULL) == 0);
	r = (struct run){.argv = {(char *)"true", NULL}};
	finish(&r);
	CHECK(r.exec.exited && r.exec.value == 0);
}

int main(int argc, char **argv)
{
	local_rig_init(argc, argv);
	RUN_LOCAL(test_output_and_code);
	RUN_LOCAL(test_signaled);
	RUN_LOCAL(test_merged);
	RUN_LOCAL(test_input);
	RUN_LOCAL(test_no_input);
	RUN_LOCAL(test_input_closed_by_command);
	RUN_LOCAL(test_program_errors);
	RUN_LOCAL(test_refusals);
	RUN_LOCAL(test_bytes);
	RUN_LOCAL(test_large_spec);
	RUN_LOCAL(test_path_and_cwd);
	RUN_LOCAL(test_clean_process);
	RUN_LOCAL(test_signal);
	RUN_LOCAL(test_last_byte);
	RUN_LOCAL(test_more_is_left_than_may_be_taken);
	RUN_LOCAL(test_backpressure);
	RUN_LOCAL(test_nothing_is_left);
	RUN_LOCAL(test_many_starts_at_once);
	RUN_LOCAL(test_no_descriptors);
	loop_free(loop);
	return 0;
}

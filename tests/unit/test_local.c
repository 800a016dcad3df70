/*
 * The backend local: without the core: exec reports are recorded here, and
 * commands run on a real loop under a real keeper, once for each way of holding
 * a tree together.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "log.h"
#include "loop.h"

extern const struct backend_ops local_backend;

#define DEADLINE_MS 20000

static const char *test_name = "?";

static void fail(int line, const char *condition, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void fail(int line, const char *condition, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "line %d: %s: %s: ", line, test_name, condition);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* The arguments after the condition say more, as in printf(3). */
#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail(__LINE__, #condition, " " __VA_ARGS__);                               \
	} while (0)

/* ---- The other side of the reports ---- */

struct exec {
	struct command *command;
	struct text streams[STREAM_COUNT];
	bool ended_streams[STREAM_COUNT];
	size_t room; /* 0: unbounded */
	bool started, refused, exited, signaled, lost, gone, input_closed;
	int64_t pid;
	int value;
	char why[512];
};

static struct loop *loop;
static struct backend *backend;

static void release(struct exec *exec)
{
	struct command *command = exec->command;

	exec->command = NULL;
	backend->ops->release(command);
}

void exec_started(struct exec *exec, int64_t pid)
{
	CHECK(!exec->started && !exec->refused && pid > 1);
	exec->started = true;
	exec->pid = pid;
}

void exec_refused(struct exec *exec, int err, const char *fmt, ...)
{
	va_list args;

	CHECK(!exec->started && !exec->refused && err < 0);
	va_start(args, fmt);
	vsnprintf(exec->why, sizeof(exec->why), fmt, args);
	va_end(args);
	exec->refused = true;
	exec->value = err;
	release(exec);
}

static char scratch[65536];

size_t exec_output_reserve(struct exec *exec, enum stream_id stream, void **ret)
{
	CHECK(exec->started && !exec->gone && !exec->ended_streams[stream]);
	if (exec->room && exec->streams[stream].len >= exec->room)
		return 0;
	*ret = scratch;
	return sizeof(scratch);
}

void exec_output_commit(struct exec *exec, enum stream_id stream, size_t len)
{
	CHECK(text_append(&exec->streams[stream], scratch, len) == 0);
}

void exec_output_overdraw(struct exec *exec, enum stream_id stream, size_t len)
{
	if (exec->room)
		exec->room = exec->streams[stream].len + len;
}

void exec_output_end(struct exec *exec, enum stream_id stream)
{
	CHECK(!exec->ended_streams[stream]);
	exec->ended_streams[stream] = true;
}

void exec_input_ready(struct exec *exec)
{
}

void exec_input_closed(struct exec *exec, int err)
{
	CHECK(err == -EPIPE);
	exec->input_closed = true;
}

static void ended(struct exec *exec)
{
	CHECK(exec->started && !exec->exited && !exec->signaled && !exec->lost && !exec->gone);
}

void exec_exited(struct exec *exec, int code)
{
	ended(exec);
	exec->exited = true;
	exec->value = code;
}

void exec_signaled(struct exec *exec, int signo)
{
	ended(exec);
	exec->signaled = true;
	exec->value = signo;
}

void exec_lost(struct exec *exec, const char *reason, const char *fmt, ...)
{
	ended(exec);
	exec->lost = true;
	backend->ops->kill(exec->command);
}

void exec_gone(struct exec *exec)
{
	CHECK(exec->exited || exec->signaled || exec->lost);
	exec->gone = true;
	release(exec);
}

/* ---- Driving ---- */

static bool timed_out;

static void deadline_fired(struct timer *timer)
{
	timed_out = true;
	loop_stop(loop);
}

/* The loop has no hook: a timer looks at the condition often. */
static const bool *awaited;

static void look(struct timer *timer)
{
	if (*awaited)
		loop_stop(loop);
	else
		timer_arm(loop, timer, 1);
}

static void await_within(const bool *condition, const char *what, uint64_t ms)
{
	struct timer deadline = {.fire = deadline_fired};
	struct timer looker = {.fire = look};

	timed_out = false;
	awaited = condition;
	timer_arm(loop, &deadline, ms);
	timer_arm(loop, &looker, 0);
	loop_run(loop);
	timer_cancel(&deadline);
	timer_cancel(&looker);
	CHECK(!timed_out, "waiting for %s", what);
}

#define await(condition) await_within(&(condition), #condition, DEADLINE_MS)

static void run_for(uint64_t ms)
{
	static const bool never = false;
	struct timer deadline = {.fire = deadline_fired};
	struct timer looker = {.fire = look};

	awaited = &never;
	timer_arm(loop, &deadline, ms);
	timer_arm(loop, &looker, 0);
	loop_run(loop);
	timer_cancel(&deadline);
	timer_cancel(&looker);
}

static void open_backend(const char *tree)
{
	struct backend_option option = {"tree", tree};
	struct settings settings = {0};
	struct backend_args args = {
		.loop = loop,
		.settings = &settings,
		.target = "local:",
		.address = "",
		.options = &option,
		.option_count = 1,
	};
	struct text why = {0};

	CHECK(local_backend.open(&args, &backend, &why) == 0, "%s", text_str(&why));
	text_done(&why);
}

struct run {
	struct spec spec;
	struct exec exec;
	char *argv[16];
};

static void start(struct run *r)
{
	struct text why = {0};

	r->spec.argv = r->argv;
	for (r->spec.argc = 0; r->argv[r->spec.argc];)
		r->spec.argc++;
	CHECK(backend->ops->start(backend, &r->exec, &r->spec, &r->exec.command, &why) == 0, "%s",
	      text_str(&why));
	text_done(&why);
}

static void run_done(struct run *r)
{
	for (int i = 0; i < STREAM_COUNT; i++)
		text_done(&r->exec.streams[i]);
}

#define SH(script)                                                                                 \
	{                                                                                          \
		(char *)"/bin/sh", (char *)"-c", (char *)(script), NULL                            \
	}
#define OUT(r) text_str(&(r).exec.streams[STREAM_STDOUT])
#define ERR(r) text_str(&(r).exec.streams[STREAM_STDERR])

static void finish(struct run *r)
{
	start(r);
	await(r->exec.gone);
}

/* ---- What is left ---- */

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	CHECK(dir, "%s", path);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static bool alive(pid_t pid)
{
	char path[64];
	char line[512];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	return n > 0 && !strstr(line, ") Z ");
}

/* The keeper: the only child while nothing runs. */
static pid_t child_of(pid_t pid)
{
	char path[64];
	char line[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, line, sizeof(line) - 1) < 0)
		line[0] = '\0';
	close(fd);
	return atoi(line);
}

/* Takes the pids that a command has written, one a line. */
static size_t read_pids(const char *text, pid_t *pids, size_t max)
{
	size_t count = 0;

	for (const char *line = text; *line && count < max; line = strchrnul(line, '\n') + 1) {
		if (!strchr(line, '\n'))
			break;
		pids[count++] = atoi(line);
	}
	return count;
}

static void await_pids(struct run *r, pid_t *pids, size_t count)
{
	for (int i = 0; i < 2000; i++) {
		if (read_pids(OUT(*r), pids, count) == count)
			return;
		run_for(10);
	}
	CHECK(false, "only these pids: %s", OUT(*r));
}

static void check_all_dead(const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		CHECK(!alive(pids[i]), "pid %d", pids[i]);
}

/* Orphans are reaped a little after the tree is gone: dead they are then. */
static void await_no_child(pid_t pid)
{
	for (int i = 0; i < 2000 && child_of(pid); i++)
		run_for(5);
	CHECK(child_of(pid) == 0);
}

/* Five processes: the leader, a child, one that left the session, a double fork, one that is
 * stopped. */
#define TREE                                                                                       \
	"echo $$; sleep 1000 & echo $!; "                                                          \
	"setsid sh -c 'echo $$; exec sleep 1000' & "                                               \
	"(setsid sh -c '(echo $(exec sh -c \"echo \\$PPID\"); exec sleep 1000) & ' &) ; "          \
	"sh -c 'echo $$; kill -STOP $$; exec sleep 1000' & wait"
#define TREE_COUNT 5

/* ---- Tests ---- */

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
	CHECK(r.exec.exited && r.exec.value == code, "%d", r.exec.value);
	CHECK(strcmp(ERR(r), line) == 0, "%s", ERR(r));
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
	CHECK(strcmp(OUT(r), "120000\n") == 0, "%s", OUT(r));
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
	CHECK(strcmp(OUT(r), file) == 0, "%s / %s", OUT(r), ERR(r));
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
	CHECK(strcmp(OUT(fds), "3\n4\n") == 0 || strcmp(OUT(fds), "2\n4\n") == 0, "%s", OUT(fds));
	finish(&signals);
	CHECK(strcmp(OUT(signals), "SigBlk:0000000000000000SigIgn:0000000000000000") == 0, "%s",
	      OUT(signals));
	finish(&group);
	snprintf(soft, sizeof(soft), "%lu\n", (unsigned long)limit.rlim_cur);
	CHECK(strcmp(OUT(group), soft) == 0, "%s", OUT(group));
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

static void test_kill_tree(void)
{
	struct run r = {.argv = SH(TREE)};
	pid_t pids[TREE_COUNT];

	start(&r);
	await_pids(&r, pids, TREE_COUNT);
	backend->ops->kill(r.exec.command);
	backend->ops->kill(r.exec.command);
	await(r.exec.gone);
	CHECK(r.exec.signaled && r.exec.value == SIGKILL);
	check_all_dead(pids, TREE_COUNT);
	run_done(&r);
}

static void test_kill_before_started(void)
{
	struct run r = {.argv = {(char *)"sleep", (char *)"1000", NULL}};

	start(&r);
	backend->ops->kill(r.exec.command);
	/* It may have died before it could say that it is there: then it was never started. */
	for (int i = 0; i < 1000 && !r.exec.gone && !r.exec.refused; i++)
		run_for(5);
	CHECK(r.exec.gone || r.exec.refused);
	run_done(&r);
}

static void test_children_go_on(void)
{
	struct run r = {.argv = SH("(setsid sh -c 'echo $$; read x < /proc/self/fd/3; echo end' "
				   "3< fifo &) ; exit 5")};
	struct text why = {0};
	char dir[] = "/tmp/test_local.XXXXXX";
	char fifo[64];
	int fd;

	CHECK(mkdtemp(dir));
	r.spec.cwd = dir;
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	CHECK(mkfifo(fifo, 0600) == 0);
	fd = open(fifo, O_RDWR | O_CLOEXEC);
	start(&r);
	await(r.exec.exited);
	run_for(100);
	CHECK(r.exec.value == 5 && !r.exec.gone);
	CHECK(backend->ops->signal(r.exec.command, SIGTERM, &why) == -ESRCH);
	CHECK(write(fd, "\n", 1) == 1);
	await(r.exec.gone);
	CHECK(strstr(OUT(r), "end\n"), "%s", OUT(r));
	text_done(&why);
	run_done(&r);
	close(fd);
	unlink(fifo);
	rmdir(dir);
}

static void test_fork_bomb(void)
{
	/* Every process forks as fast as it can, up to the limit. */
	struct run r = {.argv = SH("ulimit -u 400 2>/dev/null; b() { b & b & wait; }; b")};

	/* Root is not bound by ulimit -u: the depth bounds it then. */
	r.argv[2] = (char *)"b() { [ $1 -gt 9 ] && exec sleep 1000; b $(($1+1)) & "
			    "setsid sh -c \"sleep 1000\" & b $(($1+1)) & wait; }; echo x; b 1";
	start(&r);
	for (int i = 0; i < 1000 && !r.exec.streams[0].len; i++)
		run_for(1);
	run_for(30);
	backend->ops->kill(r.exec.command);
	await(r.exec.gone);
	run_done(&r);
	await_no_child(child_of(getpid()));
}

static void test_last_byte(void)
{
	/* Held back by a reader that does not read; the end must bring all of it. */
	struct run r = {.argv = SH("head -c 60000 /dev/zero; echo end")};

	r.exec.room = 1000;
	finish(&r);
	CHECK(r.exec.streams[0].len == 60004, "%zu", r.exec.streams[0].len);
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
	CHECK(r.exec.streams[0].len == 3000004, "%zu", r.exec.streams[0].len);
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
	CHECK(count_entries(path) == keeper_fds, "%d, were %d", count_entries(path), keeper_fds);
}

static void test_keeper_killed(void)
{
	struct run r = {.argv = SH(TREE)};
	struct run second = {.argv = SH("true")};
	struct text why = {0};
	struct command *command;
	pid_t pids[TREE_COUNT];
	pid_t keeper;

	start(&r);
	await_pids(&r, pids, TREE_COUNT);
	keeper = child_of(getpid());
	CHECK(keeper > 1 && kill(keeper, SIGKILL) == 0);
	await(r.exec.gone);
	CHECK(r.exec.lost);
	check_all_dead(pids, TREE_COUNT);
	CHECK(child_of(getpid()) == 0);
	second.spec.argv = second.argv;
	second.spec.argc = 3;
	CHECK(backend->ops->start(backend, &second.exec, &second.spec, &command, &why) == -EIO);
	text_done(&why);
	run_done(&r);
}

/* Starts TREE in a daemon of its own, which is a child; its keeper is the daemon's only child. */
static void start_daemon(const char *tree, pid_t *daemon, pid_t *keeper, pid_t *pids)
{
	int ends[2];
	size_t want = (TREE_COUNT + 1) * sizeof(pid_t);

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	*daemon = fork();
	if (*daemon == 0) {
		struct run r = {.argv = SH(TREE)};
		pid_t found[TREE_COUNT + 1];

		CHECK(loop_new(&loop) == 0);
		open_backend(tree);
		start(&r);
		await_pids(&r, found, TREE_COUNT);
		found[TREE_COUNT] = child_of(getpid());
		CHECK(write(ends[1], found, want) == (ssize_t)want);
		for (;;)
			pause();
	}
	CHECK(read(ends[0], pids, want) == (ssize_t)want);
	*keeper = pids[TREE_COUNT];
	close(ends[0]);
	close(ends[1]);
}

static void await_dead(const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (int tries = 0; tries < 2000 && alive(pids[i]); tries++)
			run_for(5);
		CHECK(!alive(pids[i]), "pid %d of %zu", pids[i], i);
	}
}

static void kill_checked(pid_t pid)
{
	CHECK(pid > 1 && pid != getpid() && kill(pid, SIGKILL) == 0, "pid %d", pid);
}

static void reap_all(void)
{
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static const char *test_tree;

static void test_daemon_killed(void)
{
	pid_t daemon, keeper, pids[TREE_COUNT + 1];

	backend->ops->close(backend);
	start_daemon(test_tree, &daemon, &keeper, pids);
	kill_checked(daemon);
	await_dead(pids, TREE_COUNT);
	await_dead(&keeper, 1);
	reap_all();
	open_backend(test_tree);
}

static void test_daemon_and_keeper_killed(void)
{
	pid_t daemon, keeper, pids[TREE_COUNT + 1];

	backend->ops->close(backend);
	start_daemon(test_tree, &daemon, &keeper, pids);
	CHECK(kill(keeper, SIGSTOP) == 0);
	kill_checked(daemon);
	kill_checked(keeper);
	/* In a cgroup only the leader dies of this; the next mount finds the rest. */
	await_dead(pids, 1);
	open_backend(test_tree);
	await_dead(pids, TREE_COUNT);
	backend->ops->close(backend);
	reap_all();
	open_backend(test_tree);
}

static pid_t parent_of(pid_t pid)
{
	char path[64];
	char line[512] = "";
	int parent = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, line, sizeof(line) - 1) > 0)
		sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
	close(fd);
	return parent;
}

static void test_warden_killed(void)
{
	struct run r = {.argv = SH(TREE)};
	struct run other = {.argv = {(char *)"cat", NULL}};
	pid_t pids[TREE_COUNT];

	if (strcmp(test_tree, "walk") != 0)
		return;
	start(&other);
	await(other.exec.started);
	start(&r);
	await_pids(&r, pids, TREE_COUNT);
	CHECK(parent_of(pids[0]) != child_of(getpid()));
	kill_checked(parent_of(pids[0]));
	await(r.exec.gone);
	CHECK(r.exec.lost);
	check_all_dead(pids, TREE_COUNT);
	/* Nobody else has noticed. */
	backend->ops->close_input(other.exec.command);
	await(other.exec.gone);
	CHECK(other.exec.exited && other.exec.value == 0);
	run_done(&r);
	run_done(&other);
}

/* Where the groups are, for commands that move about in them. */
#define GROUP                                                                                      \
	"root=$(awk '/ - cgroup2 / {print $5; exit}' /proc/self/mountinfo); "                      \
	"own=$root$(sed -n 's/^0:://p' /proc/self/cgroup); "

static void test_nested_groups(void)
{
	struct run r = {.argv = SH(GROUP
				   "mkdir -p $own/a/b $own/c; "
				   "sh -c \"echo \\$\\$ > $own/a/b/cgroup.procs; echo in; "
				   "read x < fifo\" & "
				   "while ! grep -q . $own/a/b/cgroup.procs; do :; done; exit 4")};
	char dir[] = "/tmp/test_local.XXXXXX";
	char fifo[64];
	int fd;

	if (strcmp(test_tree, "cgroup") != 0)
		return;
	CHECK(mkdtemp(dir));
	r.spec.cwd = dir;
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	CHECK(mkfifo(fifo, 0600) == 0);
	start(&r);
	await(r.exec.exited);
	run_for(50);
	CHECK(r.exec.value == 4 && !r.exec.gone, "%s", ERR(r));
	fd = open(fifo, O_WRONLY | O_CLOEXEC);
	CHECK(write(fd, "\n", 1) == 1);
	await(r.exec.gone);
	close(fd);
	unlink(fifo);
	rmdir(dir);
	run_done(&r);
}

static void test_left_the_group(void)
{
	struct run r = {.argv = SH(GROUP "sh -c \"echo \\$\\$ > $root/cgroup.procs; echo \\$\\$; "
					 "exec sleep 1000\" & wait")};
	pid_t pids[1];

	if (strcmp(test_tree, "cgroup") != 0)
		return;
	start(&r);
	await_pids(&r, pids, 1);
	backend->ops->kill(r.exec.command);
	await(r.exec.gone);
	await_dead(pids, 1);
	run_done(&r);
}

static void test_close_kills(void)
{
	struct run r = {.argv = SH(TREE)};
	pid_t pids[TREE_COUNT];

	start(&r);
	await_pids(&r, pids, TREE_COUNT);
	release(&r.exec);
	backend->ops->close(backend);
	check_all_dead(pids, TREE_COUNT);
	run_done(&r);
	open_backend(test_tree);
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
		CHECK(strcmp(OUT(runs[i]), want) == 0, "%s", OUT(runs[i]));
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
	CHECK(r.exec.value == -EMFILE || r.exec.value == -EIO, "%d %s", r.exec.value, r.exec.why);
	CHECK(prlimit(keeper, RLIMIT_NOFILE, &before, NULL) == 0);
	r = (struct run){.argv = {(char *)"true", NULL}};
	finish(&r);
	CHECK(r.exec.exited && r.exec.value == 0);
}

/* ---- Running them ---- */

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"output and code", test_output_and_code},
	{"signaled", test_signaled},
	{"merged", test_merged},
	{"input", test_input},
	{"no input", test_no_input},
	{"input closed by command", test_input_closed_by_command},
	{"program errors", test_program_errors},
	{"refusals", test_refusals},
	{"bytes", test_bytes},
	{"large spec", test_large_spec},
	{"path and cwd", test_path_and_cwd},
	{"clean process", test_clean_process},
	{"signal", test_signal},
	{"kill tree", test_kill_tree},
	{"kill before started", test_kill_before_started},
	{"children go on", test_children_go_on},
	{"fork bomb", test_fork_bomb},
	{"last byte", test_last_byte},
	{"backpressure", test_backpressure},
	{"nothing is left", test_nothing_is_left},
	{"keeper killed", test_keeper_killed},
	{"daemon killed", test_daemon_killed},
	{"daemon and keeper killed", test_daemon_and_keeper_killed},
	{"warden killed", test_warden_killed},
	{"nested groups", test_nested_groups},
	{"left the group", test_left_the_group},
	{"close kills", test_close_kills},
	{"many starts at once", test_many_starts_at_once},
	{"no descriptors", test_no_descriptors},
};

int main(int argc, char **argv)
{
	test_tree = argc > 1 ? argv[1] : "auto";
	signal(SIGPIPE, SIG_IGN);
	log_open(LOG_SINK_STDERR, LOG_LEVEL_INFO);
	CHECK(loop_new(&loop) == 0);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
		if (argc > 2 && !strstr(tests[i].name, argv[2]))
			continue;
		test_name = tests[i].name;
		open_backend(test_tree);
		tests[i].run();
		backend->ops->close(backend);
		CHECK(child_of(getpid()) == 0);
		fprintf(stderr, "ok %s\n", test_name);
	}
	loop_free(loop);
	return 0;
}

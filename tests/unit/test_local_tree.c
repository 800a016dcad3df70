/* The backend local: alone: no process of a command survives it, whoever else is killed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "local_rig.h"

/* Five processes: the leader, a child, one that left the session, a double fork, one that is
 * stopped. */
#define TREE                                                                                       \
	"echo $$; sleep 1000 & echo $!; "                                                          \
	"setsid sh -c 'echo $$; exec sleep 1000' & "                                               \
	"(setsid sh -c '(echo $(exec sh -c \"echo \\$PPID\"); exec sleep 1000) & ' &) ; "          \
	"sh -c 'echo $$; kill -STOP $$; exec sleep 1000' & wait"
#define TREE_COUNT 5

static void check_all_dead(const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		CHECK(!alive(pids[i]));
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
	CHECK(strstr(OUT(r), "end\n"));
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
static void start_daemon(pid_t *daemon, pid_t *keeper, pid_t *pids)
{
	int ends[2];
	size_t want = (TREE_COUNT + 1) * sizeof(pid_t);

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	*daemon = fork();
	if (*daemon == 0) {
		struct run r = {.argv = SH(TREE)};
		pid_t found[TREE_COUNT + 1];

		CHECK(loop_new(&loop) == 0);
		open_backend();
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
		CHECK(!alive(pids[i]));
	}
}

static void kill_checked(pid_t pid)
{
	CHECK(pid > 1 && pid != getpid() && kill(pid, SIGKILL) == 0);
}

static void reap_all(void)
{
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static void test_daemon_killed(void)
{
	pid_t daemon, keeper, pids[TREE_COUNT + 1];

	backend->ops->close(backend);
	start_daemon(&daemon, &keeper, pids);
	kill_checked(daemon);
	await_dead(pids, TREE_COUNT);
	await_dead(&keeper, 1);
	reap_all();
	open_backend();
}

static void test_daemon_and_keeper_killed(void)
{
	pid_t daemon, keeper, pids[TREE_COUNT + 1];

	backend->ops->close(backend);
	start_daemon(&daemon, &keeper, pids);
	CHECK(kill(keeper, SIGSTOP) == 0);
	kill_checked(daemon);
	kill_checked(keeper);
	/* In a cgroup only the leader dies of this; the next mount finds the rest. */
	await_dead(pids, 1);
	open_backend();
	await_dead(pids, TREE_COUNT);
	backend->ops->close(backend);
	reap_all();
	open_backend();
}

static void test_warden_killed(void)
{
	struct run r = {.argv = SH(TREE)};
	struct run other = {.argv = {(char *)"cat", NULL}};
	pid_t pids[TREE_COUNT];

	if (strcmp(tree, "walk") != 0)
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

	if (strcmp(tree, "cgroup") != 0)
		return;
	CHECK(mkdtemp(dir));
	r.spec.cwd = dir;
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	CHECK(mkfifo(fifo, 0600) == 0);
	start(&r);
	await(r.exec.exited);
	run_for(50);
	CHECK(r.exec.value == 4 && !r.exec.gone);
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

	if (strcmp(tree, "cgroup") != 0)
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
	open_backend();
}

int main(int argc, char **argv)
{
	local_rig_init(argc, argv);
	RUN_LOCAL(test_kill_tree);
	RUN_LOCAL(test_kill_before_started);
	RUN_LOCAL(test_children_go_on);
	RUN_LOCAL(test_fork_bomb);
	RUN_LOCAL(test_keeper_killed);
	RUN_LOCAL(test_daemon_killed);
	RUN_LOCAL(test_daemon_and_keeper_killed);
	RUN_LOCAL(test_warden_killed);
	RUN_LOCAL(test_nested_groups);
	RUN_LOCAL(test_left_the_group);
	RUN_LOCAL(test_close_kills);
	loop_free(loop);
	return 0;
}

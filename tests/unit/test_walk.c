/* Walks over a tree of processes that cannot look at all of it. */
#include "walk.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static enum walk_choice choose_all(pid_t pid, void *arg)
{
	return WALK_KILL;
}

static int kill_children(int descriptors)
{
	struct rlimit limit;
	int ret;

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)(STDERR_FILENO + 1 + descriptors);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ret = walk_kill_chosen(getpid(), choose_all, NULL);
	limit.rlim_cur = limit.rlim_max;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return ret;
}

/* What could not be looked at, for want of descriptors, is not believed to have no children. */
static void test_no_descriptors(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	CHECK(pid > 1);
	CHECK_INT(close_range(STDERR_FILENO + 1, ~0U, 0), 0);
	CHECK_INT(kill_children(0), -EMFILE);
	/* For the directory of threads, and not for what is in it. */
	CHECK_INT(kill_children(1), -EMFILE);
	CHECK_INT(kill_children(2), 1);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
	test_no_descriptors();
	return 0;
}

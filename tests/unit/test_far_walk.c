/*
 * What finds and kills, where processes and their numbers are arranged: in a PID name space of the
 * test's own, by the shells that can be a /bin/sh. What it does to whole trees is tested on real
 * hosts (tests/test_ssh_host.py, tests/test_via_far.py).
 */
#include "far_script.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "far_shells.h"

/*
 * Runs `before`, the functions and `after` by the shell, below a PID 1 that reaps; with a /proc of
 * that name space, or the one of this test. Its output must be `wanted`.
 */
static void check_script(bool own_proc, const char *before, const char *after, const char *wanted)
{
	const char *argv[16] = {
		"unshare", "--pid", "--fork",		own_proc ? "--mount-proc" : "--mount",
		"sh",	   "-c",    "\"$@\" & wait $!", "sh"};
	AUTO_TEXT struct text line = {0};
	char output[256] = "";
	size_t n = 8;
	size_t len;
	FILE *out = tmpfile();
	pid_t pid;
	int status;

	CHECK(out);
	CHECK_INT(far_begin(&line), 0);
	CHECK_INT(text_printf(&line, "%s", before), 0);
	CHECK_INT(far_walk(&line), 0);
	CHECK_INT(text_printf(&line, "%s", after), 0);
	for (int i = 0; shell[i]; i++)
		argv[n++] = shell[i];
	argv[n++] = "-c";
	argv[n] = text_str(&line);
	pid = fork();
	if (!pid) {
		setenv("SPAWNFS_EXEC", "walk", 1);
		dup2(fileno(out), STDOUT_FILENO);
		execvp(argv[0], (char **)argv);
		_exit(99);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	rewind(out);
	len = fread(output, 1, sizeof(output) - 1, out);
	output[len] = '\0';
	fclose(out);
	CHECK_STR(output, wanted);
	CHECK_INT(WEXITSTATUS(status), 0);
}

/* A process of that name space stands under another's number in the wrong /proc. */
static void test_a_proc_of_another_name_space(void)
{
	check_script(false, "setsid sleep 100 & spawnfs_it=$!; ",
		     "for far_word in r y n s; do "
		     "if [ $far_word != r ]; then set -- " MARK " $spawnfs_it 0 $far_word; "
		     "far_find \"$@\"; echo $far_left; far_kill \"$@\"; echo $far_left; fi; done; "
		     "kill -0 $spawnfs_it && echo lives; kill -9 $spawnfs_it",
		     "blind\nblind\nblind\nblind\nblind\nblind\nlives\n");
}

/* The leader is known to be there: its group can be killed, but nobody can say what is left. */
static void test_a_blind_kill_of_a_leader(void)
{
	check_script(false,
		     "SPAWNFS_EXEC=" MARK " setsid sleep 100 & spawnfs_it=$!; "
		     "sleep 0.1; ",
		     "far_kill " MARK " $spawnfs_it 0 r; echo $far_left; wait $spawnfs_it; echo $?",
		     "blind\n137\n");
}

/* The leader's start is read where far_leader reads it. */
#define TICKS                                                                                      \
	"far_text=; IFS= read -r far_text < /proc/$spawnfs_it/stat; "                              \
	"far_begin ${far_text##*') '}; spawnfs_began=$far_begun; "

static void test_a_leader(void)
{
	check_script(true, "env -i setsid sleep 100 & spawnfs_it=$!; sleep 0.1; ",
		     TICKS "far_kill " MARK " $spawnfs_it 1 y; echo $far_left; "
			   "kill -0 $spawnfs_it && echo lives; "
			   "far_kill " MARK " $spawnfs_it $spawnfs_began r; echo $far_left; "
			   "wait $spawnfs_it; echo $?",
		     "none\nlives\nnone\n137\n");
}

/* The leader has ended, and what is left of its session has neither mark nor parent. */
static void test_an_orphaned_session(void)
{
	const char *before = "setsid sh -c 'env -i sleep 100 & echo $!' > /tmp/far-$$ & "
			     "spawnfs_leader=$!; wait $spawnfs_leader; "
			     "read spawnfs_it < /tmp/far-$$; rm /tmp/far-$$; ";

	check_script(true, before,
		     "far_kill " MARK " $spawnfs_leader 1 n; echo $far_left; "
		     "kill -0 $spawnfs_it && echo lives; "
		     "far_kill " MARK " $spawnfs_leader 1 y; echo $far_left; "
		     "kill -0 $spawnfs_it 2>/dev/null || echo dead",
		     "none\nlives\nnone\ndead\n");
}

/*
 * The leader has ended and nothing of its session is left; while the walk looks, another process
 * gets its number, and leads a session.
 */
static void test_a_number_that_is_given_out_again(void)
{
	check_script(true, "sleep 0 & spawnfs_leader=$!; wait $spawnfs_leader; ",
		     "far_marked() { if [ ! -e /proc/$spawnfs_leader ]; then "
		     "echo $((spawnfs_leader - 1)) > /proc/sys/kernel/ns_last_pid; "
		     "setsid sleep 100 >/dev/null & sleep 0.1; fi; }; "
		     "far_kill " MARK " $spawnfs_leader 1 y; echo $far_left; "
		     "kill -9 $spawnfs_leader && echo lived",
		     "none\nlived\n");
}

int main(void)
{
	for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
		shell = shells[i];
		test_a_proc_of_another_name_space();
		test_a_blind_kill_of_a_leader();
		test_a_leader();
		test_an_orphaned_session();
		test_a_number_that_is_given_out_again();
	}
	return 0;
}

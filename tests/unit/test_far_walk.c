/*
 * What finds and kills, where processes and their numbers are arranged: in a PID name space of the
 * test's own, by the shells that can be a /bin/sh. What it does to whole trees is tested on real
 * hosts (tests/test_ssh_host.py, tests/test_via_far.py).
 */
#include "far_script.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "far_shells.h"

/*
 * Runs `before`, the functions and `after` by the shell, below a PID 1 that reaps; with a /proc of
 * that name space, or the one of this test. Its output must be `wanted`.
 */
static const char *around;

static void check_script(bool own_proc, const char *before, const char *after, const char *wanted)
{
	const char *argv[16] = {"unshare",
				"--pid",
				"--fork",
				own_proc ? "--mount-proc" : "--mount",
				"sh",
				"-c",
				around ? around : "\"$@\" & wait $!",
				"sh"};
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
#define TICKS "far_stat $spawnfs_it; spawnfs_began=$far_begun; "

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
		     "far_stat $spawnfs_it; far_lives || echo dead",
		     "unsure\nlives\nnone\ndead\n");
}

/*
 * The same when its number may be another's by now: it is killed if it, or another of its session,
 * began when the session was the command's for certain; else it is nobody's, and not gone.
 */
static void test_an_orphaned_session_in_doubt(void)
{
	const char *before = "setsid sh -c 'env -i sleep 100 & echo $!; sleep 0.1; "
			     "env -i sleep 100 & echo $!' > /tmp/far-$$ & "
			     "spawnfs_leader=$!; wait $spawnfs_leader; "
			     "{ read spawnfs_it; read spawnfs_late; } < /tmp/far-$$; "
			     "rm /tmp/far-$$; ";

	check_script(true, before,
		     TICKS "far_kill " MARK
			   " $spawnfs_leader 1 $((spawnfs_began - 1)); echo $far_left; "
			   "kill -0 $spawnfs_it && kill -0 $spawnfs_late && echo live; "
			   "far_kill " MARK " $spawnfs_leader 1 $spawnfs_began; echo $far_left; "
			   "far_stat $spawnfs_it; far_lives || echo dead; "
			   "far_stat $spawnfs_late; far_lives || echo dead",
		     "unsure\nlive\nnone\ndead\ndead\n");
}

/* Of a connection that broke before it was told: the mark is all there is. */
static void test_a_leader_whose_beginning_is_not_known(void)
{
	check_script(true, "env -i setsid sleep 100 & spawnfs_it=$!; sleep 0.1; ",
		     "far_kill " MARK " $spawnfs_it 0 r; echo $far_left; "
		     "kill -9 $spawnfs_it && echo lived; wait $spawnfs_it; "
		     "far_kill " MARK " $spawnfs_it 0 n; echo $far_left",
		     "unsure\nlived\nnone\n");
	check_script(true, "SPAWNFS_EXEC=" MARK " setsid sleep 100 & spawnfs_it=$!; sleep 0.1; ",
		     "far_kill " MARK " $spawnfs_it 0 r; echo $far_left; "
		     "wait $spawnfs_it; echo $?",
		     "none\n137\n");
}

/* Names are whatever their processes want. */
static void test_a_name_with_newlines(void)
{
	check_script(true,
		     "spawnfs_name=\"/tmp/far-$$) S${spawnfs_n}1 \"; cp /bin/sleep "
		     "\"$spawnfs_name\"; "
		     "env -i setsid \"$spawnfs_name\" 100 & spawnfs_it=$!; sleep 0.1; "
		     "rm \"$spawnfs_name\"; ",
		     TICKS "far_kill " MARK " $spawnfs_it $spawnfs_began r; echo $far_left; "
			   "wait $spawnfs_it; echo $?",
		     "none\n137\n");
}

static void write_program(const char *path, const char *text)
{
	FILE *program = fopen(path, "w");

	CHECK(program);
	fprintf(program, "#!/bin/sh\n%s\n", text);
	CHECK_INT(fclose(program), 0);
	CHECK_INT(chmod(path, 0755), 0);
}

/* Whatever becomes of a grep, it is not for it that something is believed to be gone. */
static void test_a_grep_that_fails(void)
{
	static const char *const ways[] = {
		"exit 1",
		"exit 2",
		"kill -9 $$",
		"grep \"$@\" | head -n 1",
		/* Every other time. */
		"if rmdir $0.off 2>/dev/null; then exit 2; fi; mkdir $0.off; exec grep \"$@\"",
	};
	char directory[] = "/tmp/far-XXXXXX";
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text after = {0};

	CHECK(mkdtemp(directory));
	CHECK_INT(text_printf(&path, "%s/grep", directory), 0);
	CHECK_INT(text_printf(&after,
			      TICKS "far_grep=%s; set -- " MARK " $spawnfs_it $spawnfs_began r; "
				    "far_find \"$@\"; echo $far_left; "
				    "far_find " MARK " 0 0 n; echo $far_left; "
				    "far_kill \"$@\"; echo $far_left; "
				    "wait $spawnfs_it; echo $?; wait $spawnfs_marked; echo $?; "
				    "far_find \"$@\"; echo $far_left",
			      text_str(&path)),
		  0);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		write_program(text_str(&path), ways[i]);
		check_script(true,
			     "env -i setsid sleep 100 & spawnfs_it=$!; "
			     "SPAWNFS_EXEC=" MARK " setsid sleep 100 & spawnfs_marked=$!; "
			     "sleep 0.1; ",
			     text_str(&after), "some\nsome\nnone\n137\n137\nnone\n");
	}
	CHECK_INT(text_printf(&path, ".off"), 0);
	rmdir(text_str(&path));
	path.data[path.len - strlen(".off")] = '\0';
	CHECK_INT(unlink(text_str(&path)), 0);
	CHECK_INT(rmdir(directory), 0);
}

/* In execve(2) a process hides its mark: one look that does not see it is none. */
static void test_a_process_in_execve(void)
{
	static const char *const hidden[] = {
		/* The first look comes at the wrong moment. */
		"far_marked() { far_found=; [ ${far_seen-no} = no ] || "
		"far_found=/proc/$spawnfs_it/environ; far_seen=yes; }; ",
		/* It takes as long as two looks, but is seen to be on its way. */
		"far_marked() { far_found=; }; far_begun=; "
		"far_stat() { far_state=R far_parent=1 far_group=1 far_session=1 far_begun=9; "
		"far_execs=no; [ $1 != $spawnfs_it ] || far_execs=yes; }; far_way=slow; ",
	};
	static const char *const wanted[] = {"some\n", "unsure\n"};

	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		AUTO_TEXT struct text after = {0};

		CHECK_INT(text_printf(&after,
				      "%sfar_find " MARK " 0 0 n; echo $far_left; "
				      "kill -9 $spawnfs_it",
				      hidden[i]),
			  0);
		check_script(true, "setsid sleep 100 & spawnfs_it=$!; ", text_str(&after),
			     wanted[i]);
	}
}

/* A /proc that hides what is not one's own hides what has become another user's, too. */
static void test_a_proc_that_hides(void)
{
	static const char *const options[] = {"1", "2"};

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		AUTO_TEXT struct text script = {0};

		CHECK_INT(text_printf(&script,
				      "mount -o remount,hidepid=%s /proc; setsid sleep 100 & "
				      "spawnfs_it=$!; export spawnfs_it; "
				      "setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\" & "
				      "wait $!",
				      options[i]),
			  0);
		around = text_str(&script);
		check_script(true, "",
			     "for far_word in r y n; do "
			     "far_find " MARK " $spawnfs_it 1 $far_word; echo $far_left; done; "
			     "far_find " MARK " 0 0 n; echo $far_left",
			     "unsure\nunsure\nunsure\nnone\n");
		around = NULL;
	}
}

/*
 * The leader has ended and nothing of its session is left; while the walk looks, another process
 * gets its number, and leads a session.
 */
static void test_a_number_that_is_given_out_again(void)
{
	check_script(true, "sleep 0 & spawnfs_leader=$!; wait $spawnfs_leader; ",
		     "far_marked() { far_found=; if [ ! -e /proc/$spawnfs_leader ]; then "
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
		test_an_orphaned_session_in_doubt();
		test_a_leader_whose_beginning_is_not_known();
		test_a_name_with_newlines();
		test_a_grep_that_fails();
		test_a_process_in_execve();
		test_a_proc_that_hides();
		test_a_number_that_is_given_out_again();
	}
	return 0;
}

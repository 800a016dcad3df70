#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "backend.h"

/* confstr(3) _CS_PATH, which execvp(3) uses where PATH is not set. */
#define PATH_UNSET "/bin:/usr/bin"

static void write_all(int fd, const void *data, size_t len)
{
	while (write(fd, data, len) < 0 && errno == EINTR)
		;
}

void spawn_report(int fd, enum spawn_stage stage, int value)
{
	const struct spawn_report report = {.stage = (int32_t)stage, .value = value};

	write_all(fd, &report, sizeof(report));
}

static _Noreturn void fail(int status, enum spawn_stage stage, int err)
{
	spawn_report(status, stage, err);
	_exit(127);
}

int close_all_but(int *keep, size_t count)
{
	unsigned from = 3;

	for (size_t i = 1; i < count; i++)
		for (size_t j = i; j > 0 && keep[j - 1] > keep[j]; j--) {
			int swapped = keep[j];

			keep[j] = keep[j - 1];
			keep[j - 1] = swapped;
		}
	for (size_t i = 0; i < count; i++) {
		if (keep[i] < 3)
			continue;
		if ((unsigned)keep[i] > from && close_range(from, (unsigned)keep[i] - 1, 0) < 0)
			return -errno;
		from = (unsigned)keep[i] + 1;
	}
	return close_range(from, ~0U, 0) < 0 ? -errno : 0;
}

/* ---- The strings ---- */

/* Points ret[0] to ret[count - 1] at the next strings, and ret[count] at nothing. */
static char **take_strings(char **next, uint32_t count)
{
	char **ret = calloc((size_t)count + 1, sizeof(*ret));

	for (uint32_t i = 0; ret && i < count; i++) {
		ret[i] = *next;
		*next += strlen(*next) + 1;
	}
	return ret;
}

/* Whether a and b, each ended by '=' or NUL, are the same name. */
static bool same_name(const char *a, const char *b)
{
	size_t len = strcspn(a, "=");

	return strncmp(a, b, len) == 0 && (!b[len] || b[len] == '=');
}

static bool names(char *const *list, const char *variable)
{
	for (; *list; list++)
		if (same_name(*list, variable))
			return true;
	return false;
}

/* Lays the variables of the spec over those that the daemon was started with. */
static char **make_environment(char *const *set, uint32_t set_count, char *const *unset)
{
	size_t inherited = 0;
	size_t count = 0;
	char **ret;

	while (environ && environ[inherited])
		inherited++;
	ret = calloc(inherited + set_count + 1, sizeof(*ret));
	if (!ret)
		return NULL;
	for (size_t i = 0; i < inherited; i++)
		if (!names(set, environ[i]) && !names(unset, environ[i]))
			ret[count++] = environ[i];
	for (uint32_t i = 0; i < set_count; i++)
		ret[count++] = set[i];
	return ret;
}

/* ---- The program ---- */

/* Returns only when it failed: -errno. A file without #! goes to the shell, as in execvp(3). */
static int run(const char *file, char **argv, uint32_t argc, char **env)
{
	AUTO_FREE char **script = NULL;

	execve(file, argv, env);
	if (errno != ENOEXEC)
		return -errno;
	script = calloc((size_t)argc + 2, sizeof(*script));
	if (!script)
		return -ENOMEM;
	script[0] = (char *)"/bin/sh";
	script[1] = (char *)file;
	if (argc > 1)
		memcpy(script + 2, argv + 1, (argc - 1) * sizeof(*script));
	execve(script[0], script, env);
	return -errno;
}

static const char *search_path(char **env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return PATH_UNSET;
}

/* The errors that execvp(3) passes by. */
static bool search_goes_on(int err)
{
	return err == -EACCES || err == -ENOENT || err == -ENOTDIR || err == -ENAMETOOLONG ||
	       err == -ESTALE || err == -ENODEV || err == -ETIMEDOUT;
}

/* Tries each directory of PATH; one that may not be executed is passed by, and remembered. */
static int search(char **argv, uint32_t argc, char **env)
{
	size_t name_len = strlen(argv[0]);
	const char *dir = search_path(env);
	AUTO_FREE char *file = malloc(strlen(dir) + name_len + 2);
	int found = -ENOENT;

	if (!file)
		return -ENOMEM;
	for (;;) {
		size_t len = strcspn(dir, ":");
		char *end = mempcpy(file, dir, len);
		int err;

		/* An empty entry is the current directory. */
		if (len)
			*end++ = '/';
		memcpy(end, argv[0], name_len + 1);
		err = run(file, argv, argc, env);
		/* As in shells, a file that is hidden by its directory's mode is not found. */
		if (err == -EACCES && access(file, F_OK) == 0)
			found = err;
		if (!search_goes_on(err))
			return err;
		if (!dir[len])
			return found;
		dir += len + 1;
	}
}

/* Whether it is the system that cannot, rather than the program. */
static bool out_of_resources(int err)
{
	return err == -E2BIG || err == -ENOMEM || err == -EAGAIN || err == -EMFILE ||
	       err == -ENFILE;
}

static _Noreturn void execute(int status, char **argv, uint32_t argc, char **env)
{
	char line[1024];
	size_t len;
	int err = -ENOENT;

	if (strchr(argv[0], '/'))
		err = run(argv[0], argv, argc, env);
	else if (argv[0][0])
		err = search(argv, argc, env);
	if (out_of_resources(err))
		fail(status, SPAWN_EXEC, -err);
	len = program_error_line(line, sizeof(line) - 1, argv[0], err);
	line[len++] = '\n';
	write_all(STDERR_FILENO, line, len);
	_exit(program_error_code(err));
}

/* ---- The process ---- */

static int take_stdio(const struct spawn *s)
{
	int keep[] = {s->fds[FD_STATUS]};

	if (dup2(s->fds[FD_INPUT], STDIN_FILENO) < 0 ||
	    dup2(s->fds[FD_OUTPUT], STDOUT_FILENO) < 0 || dup2(s->fds[FD_ERROR], STDERR_FILENO) < 0)
		return -errno;
	return close_all_but(keep, 1);
}

static int set_up(const struct spawn *s)
{
	sigset_t none;

	setsid();
	/* It can have missed the parent's death before this, but not after. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	if (getppid() != s->parent)
		_exit(127);
	if (setrlimit(RLIMIT_NOFILE, &s->inherited->nofile) < 0 ||
	    setrlimit(RLIMIT_CORE, &s->inherited->core) < 0)
		return -errno;
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

static char *map_text(const struct spawn *s)
{
	void *text;

	if (s->text)
		return (char *)s->text;
	text = mmap(NULL, s->text_len, PROT_READ, MAP_PRIVATE, s->fds[FD_MEMFD], 0);
	return text == MAP_FAILED ? NULL : text;
}

_Noreturn void spawn(const struct spawn *s)
{
	int status = s->fds[FD_STATUS];
	char *next = map_text(s);
	const char *cwd = NULL;
	char **argv;
	char **set;
	char **unset;
	char **env;
	int err = next ? take_stdio(s) : -ENOMEM;

	if (err == 0) {
		spawn_report(status, SPAWN_PID, getpid());
		err = set_up(s);
	}
	if (err < 0)
		fail(status, SPAWN_SETUP, -err);
	if (s->counts.cwd) {
		cwd = next;
		next += strlen(next) + 1;
	}
	argv = take_strings(&next, s->counts.argc);
	set = take_strings(&next, s->counts.set);
	unset = take_strings(&next, s->counts.unset);
	env = argv && argv[0] && set && unset ? make_environment(set, s->counts.set, unset) : NULL;
	if (!env)
		fail(status, SPAWN_SETUP, ENOMEM);
	/* What the keeper stands in is no one's to keep busy: it went away from there. */
	if ((!cwd || cwd[0] != '/') && chdir(s->inherited->directory) < 0)
		fail(status, SPAWN_DIRECTORY, errno);
	if (cwd && chdir(cwd) < 0)
		fail(status, SPAWN_CWD, errno);
	execute(status, argv, s->counts.argc, env);
}

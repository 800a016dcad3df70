#include "local_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "log.h"

extern const struct backend_ops local_backend;

/* ---- The other side of the reports ---- */

struct loop *loop;
struct backend *backend;
const char *tree;

void release(struct exec *exec)
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
	return exec->room ? MIN(exec->room - exec->streams[stream].len, sizeof(scratch))
			  : sizeof(scratch);
}

void exec_output_commit(struct exec *exec, enum stream_id stream, size_t len)
{
	CHECK(text_append(&exec->streams[stream], scratch, len) == 0);
}

void exec_output_overdraw(struct exec *exec, enum stream_id stream, size_t len)
{
	if (exec->allowance)
		len = MIN(len, exec->allowance);
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

void await_within(const bool *condition, const char *what, uint64_t ms)
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
	CHECK(!timed_out);
}

void run_for(uint64_t ms)
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

void open_backend(void)
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

	CHECK(local_backend.open(&args, &backend, &why) == 0);
	text_done(&why);
}

void start(struct run *r)
{
	struct text why = {0};

	r->spec.argv = r->argv;
	for (r->spec.argc = 0; r->argv[r->spec.argc];)
		r->spec.argc++;
	CHECK(backend->ops->start(backend, &r->exec, &r->spec, &r->exec.command, &why) == 0);
	text_done(&why);
}

void run_done(struct run *r)
{
	for (int i = 0; i < STREAM_COUNT; i++)
		text_done(&r->exec.streams[i]);
}

void finish(struct run *r)
{
	start(r);
	await(r->exec.gone);
}

/* ---- What is left ---- */

int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	/* What a process that hides itself has open is for root to see. */
	if (!dir && errno == EACCES)
		return -1;
	CHECK(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

bool alive(pid_t pid)
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
pid_t child_of(pid_t pid)
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

void await_pids(struct run *r, pid_t *pids, size_t count)
{
	for (int i = 0; i < 2000; i++) {
		if (read_pids(OUT(*r), pids, count) == count)
			return;
		run_for(10);
	}
	CHECK(false);
}

/* Orphans are reaped a little after the tree is gone: dead they are then. */
void await_no_child(pid_t pid)
{
	for (int i = 0; i < 2000 && child_of(pid); i++)
		run_for(5);
	CHECK(child_of(pid) == 0);
}

pid_t parent_of(pid_t pid)
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

void close_backend(void)
{
	backend->ops->close(backend);
	CHECK(child_of(getpid()) == 0);
}

void local_rig_init(int argc, char **argv)
{
	tree = argc > 1 ? argv[1] : "auto";
	signal(SIGPIPE, SIG_IGN);
	log_open(LOG_SINK_STDERR, LOG_LEVEL_INFO);
	CHECK(loop_new(&loop) == 0);
}

/* The target local: commands are processes of this machine, in the care of a keeper (keeper.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "local.h"
#include "log.h"
#include "spawn.h"
#include "util.h"

static struct local_backend *local_of(struct backend *backend)
{
	return container_of(backend, struct local_backend, backend);
}

static struct local_command *command_of(struct command *command)
{
	return container_of(command, struct local_command, command);
}

/* ---- The start ---- */

static void refuse(struct local_command *c, int stage, int err)
{
	struct exec *exec = c->command.exec;
	const struct spec *spec = c->spec;
	const char *why = strerror(err);

	if (stage == SPAWN_DIRECTORY)
		exec_refused(exec, -err,
			     "cannot change to the directory %s, where the mount was started: %s: "
			     "set cwd",
			     local_of(c->command.backend)->directory, why);
	else if (stage == SPAWN_CWD)
		exec_refused(exec, -err, "cannot change to the directory %s: %s", spec->cwd, why);
	else if (stage == SPAWN_EXEC && err == E2BIG)
		exec_refused(exec, -err,
			     "cannot run %s: its arguments and environment are larger than the "
			     "system allows (see getconf ARG_MAX)",
			     spec->argv[0]);
	else if (stage == SPAWN_EXEC)
		exec_refused(exec, -err, "cannot run %s: %s", spec->argv[0], why);
	else if (stage == SPAWN_FORK)
		exec_refused(exec, -err, "cannot start a process for %s: %s", spec->argv[0], why);
	else
		exec_refused(exec, -err, "cannot set up the process for %s: %s", spec->argv[0],
			     why);
}

static void started(struct local_command *c)
{
	int err = local_watch_pipes(c, c->command.backend->loop);

	exec_started(c->command.exec, c->pid);
	if (err == 0)
		return;
	/* The one end that is told. */
	c->kept.ended = true;
	exec_lost(c->command.exec, "no_watch", "cannot watch the pipes of pid %lld: %s",
		  (long long)c->pid, strerror(-err));
}

/*
 * Takes the reports of the process that becomes the command. No more come when the pipe has ended,
 * or when the process is known to be over. Returns false when c is no more: it was refused.
 */
static bool take_reports(struct local_command *c, bool over)
{
	struct spawn_report report;
	ssize_t n;

	while ((n = read(c->status.fd, &report, sizeof(report))) == sizeof(report)) {
		if (report.stage != SPAWN_PID) {
			refuse(c, report.stage, report.value);
			return false;
		}
		c->pid = report.value;
	}
	if (n < 0 && !over)
		return true;
	loop_unwatch(&c->status);
	close_fd(&c->status.fd);
	if (!c->pid) {
		exec_refused(c->command.exec, -EIO, "cannot start %s: its process was lost",
			     c->spec->argv[0]);
		return false;
	}
	started(c);
	return true;
}

static void status_ready(struct source *source, uint32_t events)
{
	take_reports(container_of(source, struct local_command, status), false);
}

/* The keeper speaks of a process whose own reports have perhaps not been read yet. */
static bool is_started(struct local_command *c)
{
	return c->status.fd < 0 || take_reports(c, true);
}

/* ---- The end ---- */

static void report_exit(struct local_command *c)
{
	struct exec *exec = c->command.exec;

	c->exited = false;
	if (WIFEXITED(c->wait_status))
		exec_exited(exec, WEXITSTATUS(c->wait_status));
	else
		exec_signaled(exec, WTERMSIG(c->wait_status));
}

/*
 * What is known of the end is told once the output before it has been taken. Bytes for which there
 * is no memory or disk, or more than an end may overdraw, are waited for: nothing else holds them.
 */
static void finish(struct task *task)
{
	struct local_command *c = container_of(task, struct local_command, finish);

	if (!local_take_rest(c))
		return;
	if (c->exited)
		report_exit(c);
	if (c->gone)
		exec_gone(c->command.exec);
}

static void leader_exited(struct kept *kept, int status)
{
	struct local_command *c = container_of(kept, struct local_command, kept);

	if (!is_started(c))
		return;
	c->exited = true;
	c->wait_status = status;
	finish(&c->finish);
}

static void leader_lost(struct kept *kept)
{
	struct local_command *c = container_of(kept, struct local_command, kept);

	if (!is_started(c))
		return;
	local_take_rest(c);
	exec_lost(c->command.exec, "keeper_died",
		  "the process that watches over pid %lld was killed: so was the command, "
		  "and how it ended is not known",
		  (long long)c->pid);
}

static void tree_gone(struct kept *kept)
{
	struct local_command *c = container_of(kept, struct local_command, kept);

	if (!is_started(c))
		return;
	c->gone = true;
	finish(&c->finish);
}

/* ---- The calls ---- */

static void local_release(struct command *command)
{
	struct local_command *c = command_of(command);

	keeper_forget(&c->kept);
	task_cancel(&c->finish);
	local_close_pipes(c);
	free(c);
}

static struct local_command *command_new(struct backend *backend, struct exec *exec,
					 const struct spec *spec)
{
	struct local_command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->command = (struct command){.exec = exec, .backend = backend};
	c->spec = spec;
	c->kept = (struct kept){
		.exited = leader_exited,
		.lost = leader_lost,
		.gone = tree_gone,
	};
	c->status = (struct source){.fd = -1, .ready = status_ready};
	task_init(&c->finish, finish);
	return c;
}

static int give_to_keeper(struct local_command *c, const struct spec *spec,
			  const struct local_ends *ends, struct text *why)
{
	struct local_backend *b = local_of(c->command.backend);
	struct keeper_start start = {
		.spec = spec,
		.input = ends->input >= 0 ? ends->input : b->null,
		.input_write = ends->input >= 0 ? c->input.source.fd : b->null,
		.output = ends->output,
		.error = ends->error >= 0 ? ends->error : ends->output,
		.status = ends->status,
	};
	int err = loop_watch(b->backend.loop, &c->status, EPOLLIN);

	if (err < 0)
		return text_fail(why, err, "cannot start %s: cannot watch it: %s", spec->argv[0],
				 strerror(-err));
	return keeper_start(b->keeper, &c->kept, &start, why);
}

static int local_start(struct backend *backend, struct exec *exec, const struct spec *spec,
		       struct command **ret, struct text *why)
{
	struct local_ends ends = {-1, -1, -1, -1};
	struct local_command *c = command_new(backend, exec, spec);
	int err;

	if (!c)
		return text_fail(why, -ENOMEM, "cannot start %s: no memory", spec->argv[0]);
	err = local_make_pipes(c, spec, &ends);
	if (err < 0)
		text_fail(why, err, "cannot start %s: cannot make its pipes: %s", spec->argv[0],
			  strerror(-err));
	else
		err = give_to_keeper(c, spec, &ends, why);
	close_fd(&ends.input);
	close_fd(&ends.output);
	close_fd(&ends.error);
	close_fd(&ends.status);
	if (err < 0) {
		local_release(&c->command);
		return err;
	}
	*ret = &c->command;
	return 0;
}

static int local_signal(struct command *command, int signo, struct text *why)
{
	struct local_command *c = command_of(command);

	if (!c->pid || c->kept.ended || !c->kept.keeper)
		return text_fail(why, -ESRCH, "signal: the command %s",
				 c->pid ? "has ended" : "has not started yet");
	keeper_signal(&c->kept, signo);
	return 0;
}

static void local_kill(struct command *command)
{
	keeper_kill(&command_of(command)->kept);
}

/* ---- The target ---- */

static int parse_options(const struct backend_args *args, enum keeper_tree *tree, struct text *why)
{
	static const char *const names[] = {
		[KEEPER_TREE_AUTO] = "auto",
		[KEEPER_TREE_CGROUP] = "cgroup",
		[KEEPER_TREE_WALK] = "walk",
	};

	*tree = KEEPER_TREE_AUTO;
	for (size_t i = 0; i < args->option_count; i++) {
		const struct backend_option *o = &args->options[i];
		const char *value = o->value ? o->value : "";
		size_t choice = 0;

		if (strcmp(o->key, "tree") != 0)
			return text_fail(why, -EINVAL,
					 "local: unknown option \"%s\": see spawnfs --help",
					 o->key);
		while (choice < ARRAY_LEN(names) && strcmp(names[choice], value) != 0)
			choice++;
		if (choice == ARRAY_LEN(names))
			return text_fail(why, -EINVAL,
					 "local: option tree is auto, cgroup or walk, not \"%s\"",
					 value);
		*tree = (enum keeper_tree)choice;
	}
	return 0;
}

static void local_close(struct backend *backend)
{
	struct local_backend *b = local_of(backend);

	keeper_close(b->keeper);
	close_fd(&b->null);
	free(b->backend.target);
	free(b->directory);
	free(b);
}

static int fill(struct local_backend *b, const struct backend_args *args, enum keeper_tree tree,
		struct text *why)
{
	struct inherited inherited;
	int err;

	b->backend.target = strdup(args->target);
	b->directory = getcwd(NULL, 0);
	/* Commands would run somewhere else than whoever mounts believes. */
	if (!b->directory)
		return text_fail(why, -errno,
				 "local: cannot tell the current directory, in which commands "
				 "run: %s: change to one that exists",
				 strerror(errno));
	if (!b->backend.target)
		return text_fail(why, -ENOMEM, "local: no memory");
	b->null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (b->null < 0)
		return text_fail(why, -errno, "local: cannot open /dev/null: %s", strerror(errno));
	/* Before the daemon raises its own. */
	if (getrlimit(RLIMIT_NOFILE, &inherited.nofile) < 0 ||
	    getrlimit(RLIMIT_CORE, &inherited.core) < 0)
		return text_fail(why, -errno, "local: cannot read limits: %s", strerror(errno));
	inherited.directory = b->directory;
	err = keeper_open(args->loop, tree, &inherited, &b->keeper, why);
	if (err == 0)
		log_info("local: trees of processes are held together by %s",
			 keeper_way(b->keeper));
	return err;
}

extern const struct backend_ops local_backend;

static int local_open(const struct backend_args *args, struct backend **ret, struct text *why)
{
	enum keeper_tree tree;
	struct local_backend *b;
	int err = parse_options(args, &tree, why);

	if (err < 0)
		return err;
	if (args->address[0])
		return text_fail(why, -EINVAL,
				 "the target is \"local:\" with nothing after it, not \"local:%s\"",
				 args->address);
	b = calloc(1, sizeof(*b));
	if (!b)
		return text_fail(why, -ENOMEM, "local: no memory");
	b->backend = (struct backend){
		.ops = &local_backend,
		.loop = args->loop,
		.settings = args->settings,
		.keys = SPEC_KEYS_BASIC,
	};
	b->null = -1;
	err = fill(b, args, tree, why);
	if (err < 0) {
		local_close(&b->backend);
		return err;
	}
	*ret = &b->backend;
	return 0;
}

const struct backend_ops local_backend = {
	.scheme = "local",
	.summary = "as child processes of the daemon: local:",
	.options = "tree=auto|cgroup|walk  how all processes of a command are held together\n",
	.open = local_open,
	.close = local_close,
	.start = local_start,
	.write = local_write,
	.can_write = local_can_write,
	.close_input = local_close_input,
	.resume = local_resume,
	.close_output = local_close_output,
	.signal = local_signal,
	.kill = local_kill,
	.release = local_release,
};

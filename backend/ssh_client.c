#include "ssh_client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "log.h"

/* Within directory. */
#define SOCKET_NAME "master"

/* ---- Processes ---- */

/* In the child. Only what is async-signal-safe. */
static void become(char **argv, enum ssh_what what, pid_t parent, int out, int err)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/*
	 * ^C at a mount in the foreground ends the mount, which needs the connection for the kills:
	 * ssh leaves signals alone that were ignored at its start. It ends when we do.
	 */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	/* Without a terminal nothing can be asked there, by a ProxyCommand either. */
	if (what == SSH_MASTER_SILENT)
		setsid();
	if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		_exit(1);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerrordesc_np(errno));
	_exit(127);
}

static pid_t spawn(const struct ssh_options *options, enum ssh_what what, const char *path, int out,
		   int err)
{
	struct ssh_argv argv;
	pid_t parent = getpid();
	pid_t pid;
	int e = ssh_options_argv(options, what, path, &argv);

	if (e < 0)
		return e;
	pid = fork();
	if (!pid)
		become(argv.words, what, parent, out, err);
	e = -errno;
	ssh_argv_done(&argv);
	return pid < 0 ? e : pid;
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}

int ssh_client_resolve(const struct ssh_options *options, enum ssh_what what, struct text *ret,
		       struct text *why)
{
	int ends[2];
	char buf[4096];
	pid_t pid;
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return text_fail(why, -errno, "cannot make a pipe: %s", strerror(errno));
	/* Nobody asked for a plain configuration: an ssh too old to print one need not say so. */
	pid = spawn(options, what, NULL, ends[1],
		    what == SSH_RESOLVE_PLAIN ? ends[1] : STDERR_FILENO);
	close(ends[1]);
	while (pid > 0 && (n = read(ends[0], buf, sizeof(buf))) != 0)
		if (n < 0 ? errno != EINTR : text_append(ret, buf, (size_t)n) < 0)
			break;
	close(ends[0]);
	if (pid < 0)
		return text_fail(why, pid, "cannot run ssh: %s", strerror(-pid));
	if (wait_for(pid) != 0)
		return text_fail(why, -EINVAL,
				 "%s: ssh does not accept its configuration: try `%s -G %s`",
				 options->host, options->base.words[0], options->host);
	return 0;
}

/* ---- What it says ---- */

/*
 * At the terminal each line is shown once the next has come: the last one before a failure
 * goes into the sentence about it.
 */
static void end_line(struct ssh_client *c)
{
	if (c->asking && *c->line)
		dprintf(STDERR_FILENO, "%s\n", c->line);
	memcpy(c->line, c->part, c->part_len);
	c->line[c->part_len] = '\0';
	c->part_len = 0;
	if (!c->asking)
		log_info("ssh: %s", c->line);
}

static void take_bytes(struct ssh_client *c, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\r')
			continue;
		if (data[i] == '\n') {
			end_line(c);
			continue;
		}
		if (c->part_len < sizeof(c->part) - 1)
			c->part[c->part_len++] = data[i] ? data[i] : ' ';
	}
}

static void on_said(struct source *source, uint32_t events)
{
	struct ssh_client *c = container_of(source, struct ssh_client, said);
	char buf[4096];
	ssize_t n;

	while ((n = read(source->fd, buf, sizeof(buf))) > 0)
		take_bytes(c, buf, (size_t)n);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	loop_unwatch(source);
	close_fd(&source->fd);
}

const char *ssh_client_reason(const struct ssh_client *client)
{
	return client->line;
}

/* ---- Its end ---- */

static void remove_directory(struct ssh_client *c)
{
	char path[sizeof(c->directory) + sizeof(SOCKET_NAME) + 1];

	if (!*c->directory)
		return;
	snprintf(path, sizeof(path), "%s/" SOCKET_NAME, c->directory);
	unlink(path);
	rmdir(c->directory);
	*c->directory = '\0';
}

static void drop_source(struct source *source)
{
	loop_unwatch(source);
	close_fd(&source->fd);
}

static void forget(struct ssh_client *c)
{
	drop_source(&c->process);
	drop_source(&c->said);
	drop_source(&c->appeared);
	remove_directory(c);
	c->pid = 0;
}

static void on_ended(struct source *source, uint32_t events)
{
	struct ssh_client *c = container_of(source, struct ssh_client, process);

	/* Its last words may still be in the pipe. */
	if (c->said.fd >= 0)
		on_said(&c->said, 0);
	if (c->part_len)
		end_line(c);
	wait_for(c->pid);
	forget(c);
	c->events->ended(c);
}

void ssh_client_stop(struct ssh_client *c)
{
	if (!c->pid)
		return;
	if (c->pid > 1)
		kill(c->pid, SIGKILL);
	wait_for(c->pid);
	forget(c);
}

/* ---- Its socket ---- */

static int connect_to(const char *directory)
{
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	if (fd < 0)
		return -errno;
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/" SOCKET_NAME, directory);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	return take_fd(&fd);
}

/* ssh links the listening socket to its name once it is connected to the host. */
static void on_appeared(struct source *source, uint32_t events)
{
	struct ssh_client *c = container_of(source, struct ssh_client, appeared);
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	int fd;

	while (read(source->fd, buf, sizeof(buf)) > 0)
		;
	fd = connect_to(c->directory);
	if (fd < 0)
		return;
	drop_source(source);
	remove_directory(c);
	if (c->asking && *c->line)
		dprintf(STDERR_FILENO, "%s\n", c->line);
	*c->line = '\0';
	c->asking = false;
	c->events->connected(c, fd);
}

static int make_directory(struct ssh_client *c)
{
	const char *place = getenv("XDG_RUNTIME_DIR");

	/* ssh adds 17 bytes to the name of the socket, and all must fit sun_path. */
	if (!place || strlen(place) > 32 || access(place, W_OK | X_OK) < 0)
		place = "/tmp";
	snprintf(c->directory, sizeof(c->directory), "%s/spawnfs-XXXXXX", place);
	if (!mkdtemp(c->directory)) {
		*c->directory = '\0';
		return -errno;
	}
	return 0;
}

static int watch_directory(struct ssh_client *c)
{
	int err = make_directory(c);

	if (err < 0)
		return err;
	c->appeared.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (c->appeared.fd < 0 ||
	    inotify_add_watch(c->appeared.fd, c->directory, IN_CREATE | IN_MOVED_TO) < 0)
		return -errno;
	return loop_watch(c->loop, &c->appeared, EPOLLIN);
}

static int launch(struct ssh_client *c, const struct ssh_options *options, enum ssh_what what)
{
	char path[sizeof(c->directory) + sizeof(SOCKET_NAME) + 1];
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	AUTO_CLOSE int write_end = -1;
	int ends[2];
	int pid;

	if (null < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	c->said.fd = ends[0];
	write_end = ends[1];
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	snprintf(path, sizeof(path), "%s/" SOCKET_NAME, c->directory);
	pid = spawn(options, what, path, null, write_end);
	if (pid < 0)
		return pid;
	c->pid = pid;
	c->process.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (c->process.fd < 0)
		return -errno;
	return 0;
}

int ssh_client_start(struct ssh_client *c, struct loop *loop,
		     const struct ssh_client_events *events, const struct ssh_options *options,
		     enum ssh_what what, struct text *why)
{
	int err;

	*c = (struct ssh_client){
		.events = events,
		.loop = loop,
		.process = {.fd = -1, .ready = on_ended},
		.said = {.fd = -1, .ready = on_said},
		.appeared = {.fd = -1, .ready = on_appeared},
		.asking = what == SSH_MASTER_ASKING,
	};
	err = watch_directory(c);
	err = err ? err : launch(c, options, what);
	err = err ? err : loop_watch(loop, &c->process, EPOLLIN);
	err = err ? err : loop_watch(loop, &c->said, EPOLLIN);
	if (!err)
		return 0;
	ssh_client_stop(c);
	forget(c);
	return text_fail(why, err, "%s: cannot start ssh: %s", options->host, strerror(-err));
}

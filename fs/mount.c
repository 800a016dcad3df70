/* The FUSE session on the loop: mounting, serving and ending. */
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "handle.h"
#include "invalidate.h"
#include "log.h"
#include "mountpoint.h"
#include "park.h"

/* Requests taken in one turn, so that a flood of them does not starve the commands' pipes. */
#define REQUESTS_PER_TURN 16

/* RELEASE is a background request in the kernel, and end of input follows from it. */
#define MAX_BACKGROUND 4096

/* The last thing libfuse said while mounting, for the sentence about its failure. */
static char fuse_said[256];

PRINTF_LIKE(2, 0)
static void fuse_log_line(enum fuse_log_level level, const char *fmt, va_list args)
{
	vsnprintf(fuse_said, sizeof(fuse_said), fmt, args);
	fuse_said[strcspn(fuse_said, "\n")] = '\0';
	log_at(level <= FUSE_LOG_ERR ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "libfuse: %s", fuse_said);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND;
	/* Reads by aio would be background requests: parked, they would hold up every RELEASE. */
	conn->want &= ~(unsigned)(FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS_AUTO);
	conn->want |= conn->capable & FUSE_CAP_READDIRPLUS;
}

/* ---- Events ---- */

static void stop(struct mount *m)
{
	timer_cancel(&m->ending_timer);
	loop_stop(m->loop);
}

void mount_check_ended(struct mount *m)
{
	if (m->ending && !m->execs.live)
		stop(m);
}

static void ending_fired(struct timer *timer)
{
	struct mount *m = container_of(timer, struct mount, ending_timer);

	log_error("%zu commands on %s are not known to be gone after %llu s: they may still run",
		  m->execs.live, m->backend->target,
		  (unsigned long long)m->settings.shutdown_ms / 1000);
	stop(m);
}

/* Kills everything; the loop stops when it is known to be gone, or at the bound. */
static void end(struct mount *m)
{
	if (m->ending)
		return;
	m->ending = true;
	list_for_each_safe (e, &m->entries.entries, struct entry, link)
		entry_remove(e);
	timer_arm(m->loop, &m->ending_timer, m->settings.shutdown_ms);
	mount_check_ended(m);
}

static void on_request(struct source *source, uint32_t events)
{
	struct mount *m = container_of(source, struct mount, fuse_source);

	for (int i = 0; i < REQUESTS_PER_TURN; i++) {
		int n = fuse_session_receive_buf(m->session, &m->request);

		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0 || fuse_session_exited(m->session)) {
			if (n < 0)
				log_error("reading requests from /dev/fuse: %s", strerror(-n));
			loop_unwatch(source);
			end(m);
			return;
		}
		fuse_session_process_buf(m->session, &m->request);
	}
}

static void on_signal(struct source *source, uint32_t events)
{
	struct mount *m = container_of(source, struct mount, signal_source);
	struct signalfd_siginfo info;

	if (read(source->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	log_info("signal %u: ending the mount", info.ssi_signo);
	end(m);
}

static void on_gone(struct mount_watch *watch)
{
	struct mount *m = container_of(watch, struct mount, watch);

	if (m->ending)
		return;
	log_info("%s was unmounted: ending", m->mountpoint);
	end(m);
}

/* ---- Setting up ---- */

/* Commas would end the option, and a backslash keeps them for libfuse. */
static int append_escaped(struct text *t, const char *s)
{
	int err = 0;

	for (; !err && *s; s++) {
		if (*s == ',' || *s == '\\')
			err = text_append(t, "\\", 1);
		if (!err)
			err = text_append(t, s, 1);
	}
	return err;
}

static int make_session(struct mount *m)
{
	struct fuse_lowlevel_ops ops = {.init = op_init};
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	AUTO_TEXT struct text options = {0};
	int err = text_printf(&options, "subtype=spawnfs,default_permissions%s,fsname=",
			      m->allow_other ? ",allow_other" : "");

	if (!err)
		err = append_escaped(&options, m->backend->target);
	if (err < 0)
		return err;
	dir_ops_add(&ops);
	file_ops_add(&ops);
	if (fuse_opt_add_arg(&args, "spawnfs") == 0 && fuse_opt_add_arg(&args, "-o") == 0 &&
	    fuse_opt_add_arg(&args, text_str(&options)) == 0)
		m->session = fuse_session_new(&args, &ops, sizeof(ops), m);
	fuse_opt_free_args(&args);
	return m->session ? 0 : -EINVAL;
}

static int watch_requests(struct mount *m)
{
	int fd = fuse_session_fd(m->session);

	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	m->fuse_source.fd = fd;
	m->fuse_source.ready = on_request;
	return loop_watch(m->loop, &m->fuse_source, EPOLLIN);
}

static int watch_signals(struct mount *m)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	m->signal_source.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (m->signal_source.fd < 0)
		return -errno;
	m->signal_source.ready = on_signal;
	return loop_watch(m->loop, &m->signal_source, EPOLLIN);
}

static int attach(struct mount *m, struct text *why)
{
	if (fuse_session_mount(m->session, m->mountpoint) < 0)
		return text_fail(
			why, -EIO, "cannot mount on %s: %s", m->mountpoint,
			*fuse_said ? fuse_said
				   : "fusermount3 did not do it, and says above why; if it does "
				     "not, install fuse3");
	return 0;
}

/* Found out now, not when the first large output needs it. */
static int check_spool_dir(const char *dir, struct text *why)
{
	struct stat st;

	if (stat(dir, &st) < 0)
		return text_fail(why, -errno,
				 "cannot use the spool directory %s: %s: make it, or name another "
				 "with -o spool=DIRECTORY",
				 dir, strerror(errno));
	if (!S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK) < 0)
		return text_fail(why, -EACCES,
				 "cannot write to the spool directory %s: name another with -o "
				 "spool=DIRECTORY",
				 dir);
	return 0;
}

int mount_open(struct mount *m, struct text *why)
{
	int err;

	m->uid = getuid();
	m->gid = getgid();
	m->fuse_source.fd = -1;
	m->signal_source.fd = -1;
	m->watch.source.fd = -1;
	m->ending_timer.fire = ending_fired;
	clock_gettime(CLOCK_REALTIME, &m->since);
	list_init(&m->handles);
	err = entry_table_init(&m->entries);
	if (err < 0)
		return text_fail(why, err, "no memory");
	exec_table_init(&m->execs, m->backend, m->loop, &m->settings, &file_observer);
	loop_set_spin(m->loop, m->backend->no_spin ? 0 : m->settings.spin_ns);
	fuse_set_log_func(fuse_log_line);
	err = mountpoint_check(m->mountpoint, why);
	if (err < 0)
		return err;
	err = check_spool_dir(m->settings.spool_dir, why);
	if (err < 0)
		return err;
	err = make_session(m);
	if (err < 0)
		return text_fail(why, err, "cannot set up FUSE: %s",
				 *fuse_said ? fuse_said : strerror(-err));
	/* Before there is a mount: one whose daemon a signal has ended would stay there, dead. */
	err = watch_signals(m);
	if (err < 0)
		return text_fail(why, err, "cannot watch for signals: %s", strerror(-err));
	err = attach(m, why);
	if (err < 0)
		return err;
	err = watch_requests(m);
	if (!err)
		err = invalidator_new(m->session, m->loop, &m->invalidator);
	m->watch.gone = on_gone;
	if (!err && mount_watch_open(&m->watch, m->loop, m->mountpoint) < 0)
		log_debug("the list of mounts is not watched: is /proc there?");
	if (err < 0)
		return text_fail(why, err, "cannot serve %s: %s", m->mountpoint, strerror(-err));
	return 0;
}

int mount_serve(struct mount *m)
{
	return loop_run(m->loop);
}

/* Whoever still waits is answered: a caller must not hang on a mount that has ended. */
static void answer_all(struct mount *m)
{
	list_for_each (exec, &m->execs.execs, struct exec, link) {
		struct entry *e = exec->owner;

		for (int i = 0; i < STREAM_COUNT; i++)
			park_fail_all(&e->stream_reads[i], EIO);
		park_fail_all(&e->exit_reads, EIO);
		park_fail_all(&e->stdin_writes, EPIPE);
		park_fail_all(&e->spec_writes, ESHUTDOWN);
	}
}

/*
 * Closes /dev/fuse, so that nobody waits for an answer, and the copies in other namespaces end too.
 * libfuse leaves the mountpoint alone when a poll of its descriptor gives POLLERR, as a pipe
 * without a reader does.
 */
static void disconnect(struct mount *m)
{
	int pipe_ends[2];

	if (pipe2(pipe_ends, O_CLOEXEC) < 0)
		return;
	close(pipe_ends[0]);
	dup3(pipe_ends[1], fuse_session_fd(m->session), O_CLOEXEC);
	close(pipe_ends[1]);
}

/* Its number, by which the list of mounts names it, may be another's by now. */
static bool file_system_has_ended(const struct mount *m)
{
	struct pollfd device = {.fd = fuse_session_fd(m->session)};

	return poll(&device, 1, 0) > 0 && device.revents & POLLERR;
}

/*
 * Wherever it is now. libfuse knows the path that was mounted on, and would unmount whatever is
 * there.
 */
static void unmount(struct mount *m)
{
	int err = m->watch.source.fd >= 0 ? 0 : -EOPNOTSUPP;

	while (!err) {
		AUTO_TEXT struct text path = {0};

		err = mount_watch_path(&m->watch, &path);
		if (file_system_has_ended(m))
			break;
		if (err == -EBUSY)
			log_warning("cannot unmount %s: something else is mounted over it: "
				    "umount -l takes away first that, then what is left of this",
				    m->mountpoint);
		if (err)
			break;
		err = mountpoint_detach(text_str(&path));
		if (err < 0)
			log_warning("cannot unmount %s: try umount -l there", text_str(&path));
	}
	if (err != -EOPNOTSUPP)
		disconnect(m);
	fuse_session_unmount(m->session);
}

void mount_close(struct mount *m)
{
	answer_all(m);
	loop_unwatch(&m->fuse_source);
	loop_unwatch(&m->signal_source);
	close_fd(&m->signal_source.fd);
	if (m->session)
		unmount(m);
	mount_watch_close(&m->watch);
	invalidator_free(m->invalidator);
	list_for_each_safe (h, &m->handles, struct handle, link)
		handle_free(h);
	exec_table_done(&m->execs);
	if (m->session)
		fuse_session_destroy(m->session);
	entry_table_done(&m->entries);
	free(m->request.mem);
	free(m->bounce);
}

char *mount_bounce(struct mount *m)
{
	if (!m->bounce)
		m->bounce = malloc(TRANSFER_BYTES_MAX);
	return m->bounce;
}

#include "warden.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bounds.h"
#include "walk.h"

struct warden {
	int keeper; /* the socket */
	int signals;
	pid_t leader; /* 0: reaped */
	bool killing;
};

/* Reaps what has ended. Returns false when there are no children: nothing of the tree is left. */
static bool reap(struct warden *w)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		int32_t word = status;

		if (pid != w->leader)
			continue;
		w->leader = 0;
		send(w->keeper, &word, sizeof(word), MSG_NOSIGNAL);
	}
	return pid == 0 || errno != ECHILD;
}

static void begin_kill(struct warden *w)
{
	/* A tree of many runnable processes must not keep the walk from running. */
	setpriority(PRIO_PROCESS, 0, -20);
	w->killing = true;
}

static void listen_to_keeper(struct warden *w, struct pollfd *poll)
{
	int32_t word;
	ssize_t n = recv(w->keeper, &word, sizeof(word), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == sizeof(word) && word != WARDEN_KILL) {
		/* The leader makes its group only when it has come to setsid(2). */
		if (w->leader > 1 && kill(-w->leader, word) < 0 && errno == ESRCH)
			kill(w->leader, word);
		return;
	}
	if (n <= 0)
		poll->fd = -1;
	begin_kill(w);
}

static _Noreturn void watch(struct warden *w)
{
	struct pollfd fds[] = {
		{.fd = w->keeper, .events = POLLIN},
		{.fd = w->signals, .events = POLLIN},
	};

	while (reap(w)) {
		struct signalfd_siginfo info;

		if (w->killing)
			walk_kill(getpid());
		if (poll(fds, 2, w->killing ? KEEPER_SWEEP_MS : -1) <= 0)
			continue;
		if (fds[1].revents && read(w->signals, &info, sizeof(info)) < 0 && errno != EAGAIN)
			_exit(1);
		if (fds[0].revents)
			listen_to_keeper(w, &fds[0]);
	}
	_exit(0);
}

_Noreturn void warden_run(int socket, struct spawn *s)
{
	struct warden w = {.keeper = socket};
	int keep[FD_COUNT + 1] = {socket};
	size_t count = 1;
	int status = s->fds[FD_STATUS];
	sigset_t children;

	for (int i = 0; i < FD_COUNT; i++)
		if (s->fds[i] >= 0)
			keep[count++] = s->fds[i];
	close_all_but(keep, count);
	prctl(PR_SET_NAME, "spawnfs-warden");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	w.signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	s->parent = getpid();
	w.leader = w.signals < 0 ? -1 : _Fork();
	if (w.leader == 0)
		spawn(s);
	if (w.leader < 0) {
		spawn_report(status, SPAWN_FORK, errno);
		_exit(0);
	}
	/* The command's descriptors are its own: an end of file must not wait for the warden. */
	keep[0] = socket;
	keep[1] = w.signals;
	close_all_but(keep, 2);
	watch(&w);
}

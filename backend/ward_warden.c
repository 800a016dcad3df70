/* A command under a warden: the child of the keeper is the warden, the leader is the warden's. */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"
#include "walk.h"
#include "ward.h"
#include "warden.h"

static int start(struct keeper_process *k, struct ward *ward, struct spawn *s)
{
	AUTO_CLOSE int theirs = -1;
	int pair[2];
	int err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ward->fd = pair[0];
	theirs = pair[1];
	err = ward_watch(k, ward, EPOLLIN);
	if (err == 0) {
		ward->pid = _Fork();
		if (ward->pid == 0)
			warden_run(theirs, s);
		if (ward->pid > 0)
			return 0;
		err = -errno;
	}
	ward->pid = 0;
	close_fd(&ward->fd);
	return err;
}

/* Takes the leader's status, if the warden has sent it. Returns false at the end of the socket. */
static bool take_status(struct keeper_process *k, struct ward *ward)
{
	int32_t word;
	ssize_t n = recv(ward->fd, &word, sizeof(word), MSG_DONTWAIT);

	if (n == sizeof(word))
		ward_exited(k, ward, word);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* The orphans of a warden that was killed have fallen to the keeper. */
static enum walk_choice choose_orphans(pid_t pid, void *arg)
{
	return ward_of_pid(arg, pid) ? WALK_SKIP : WALK_KILL;
}

static void settle(struct keeper_process *k, struct ward *ward)
{
	if (ward->pid)
		return;
	if (walk_kill_chosen(getpid(), choose_orphans, k) == 0)
		ward_gone(k, ward);
	else
		ward_unsettled(k, ward);
}

static void reaped(struct keeper_process *k, struct ward *ward, int status)
{
	take_status(k, ward);
	close_fd(&ward->fd);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		ward_gone(k, ward);
		return;
	}
	/* Somebody killed it; the leader died with it (PR_SET_PDEATHSIG). */
	if (!ward->leader_ended)
		ward_lost(k, ward);
	settle(k, ward);
}

static void ready(struct keeper_process *k, struct ward *ward)
{
	int status;

	if (take_status(k, ward))
		return;
	/* The socket was closed by its exit: this takes no longer than the exit does. */
	while (waitpid(ward->pid, &status, 0) < 0)
		if (errno != EINTR)
			return;
	ward->pid = 0;
	reaped(k, ward, status);
}

static void tell_warden(struct ward *ward, int32_t word)
{
	/* A warden that does not listen has thousands of these waiting: one more says nothing new.
	 */
	if (ward->fd >= 0)
		send(ward->fd, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_signal(struct keeper_process *k, struct ward *ward, int signo)
{
	tell_warden(ward, signo);
}

static void kill_tree(struct keeper_process *k, struct ward *ward)
{
	if (ward->pid)
		tell_warden(ward, WARDEN_KILL);
	else
		settle(k, ward);
}

const struct ward_way ward_under_warden = {
	.start = start,
	.ready = ready,
	.reaped = reaped,
	.signal = send_signal,
	.kill = kill_tree,
	.settle = settle,
};

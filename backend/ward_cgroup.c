/* A command in a cgroup of its own: the leader is a child of the keeper. */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"
#include "walk.h"
#include "ward.h"

static int start(struct keeper_process *k, struct ward *ward, struct spawn *s)
{
	AUTO_CLOSE int group = cgroup_slot_make(&k->setup->cgroup, ward->slot);
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&ward->fd,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)group,
	};
	int err;

	if (group < 0)
		return group;
	s->parent = getpid();
	/* Like fork(2): a child that shares memory would block the keeper in its chdir(2). */
	ward->pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (ward->pid == 0)
		spawn(s);
	err = ward->pid < 0 ? -errno : ward_watch(k, ward, EPOLLIN);
	if (err == 0)
		return 0;
	if (ward->pid > 0) {
		kill(ward->pid, SIGKILL);
		waitpid(ward->pid, NULL, 0);
	}
	ward->pid = 0;
	close_fd(&ward->fd);
	cgroup_slot_remove(&k->setup->cgroup, ward->slot);
	return err;
}

/* The leader has ended and processes of its group go on: the kernel says when the last one ends. */
static int watch_group(struct keeper_process *k, struct ward *ward)
{
	char events[256];
	int fd = cgroup_slot_watch(&k->setup->cgroup, ward->slot);
	int err;

	if (fd < 0)
		return fd;
	ward->fd = fd;
	/* The change that is polled for is one since the last read. */
	err = read(fd, events, sizeof(events)) < 0 ? -errno : ward_watch(k, ward, EPOLLPRI);
	if (err < 0)
		close_fd(&ward->fd);
	return err;
}

static void settle(struct keeper_process *k, struct ward *ward)
{
	int err;

	if (ward->pid)
		return;
	err = cgroup_slot_remove(&k->setup->cgroup, ward->slot);
	/* When it is watched, look again: it can have become empty in between. */
	if (err == -EBUSY && ward->fd < 0 && watch_group(k, ward) == 0)
		err = cgroup_slot_remove(&k->setup->cgroup, ward->slot);
	if (err == 0)
		ward_gone(k, ward);
	else if (err != -EBUSY || ward->killing || ward->fd < 0)
		ward_unsettled(k, ward);
}

static void reaped(struct keeper_process *k, struct ward *ward, int status)
{
	close_fd(&ward->fd);
	ward_exited(k, ward, status);
	settle(k, ward);
}

static void ready(struct keeper_process *k, struct ward *ward)
{
	char events[256];
	int status;

	if (!ward->pid) {
		if (pread(ward->fd, events, sizeof(events), 0) < 0)
			close_fd(&ward->fd);
		settle(k, ward);
	} else if (waitpid(ward->pid, &status, WNOHANG) == ward->pid) {
		ward->pid = 0;
		reaped(k, ward, status);
	}
}

static void send_signal(struct keeper_process *k, struct ward *ward, int signo)
{
	/* The leader makes its group only when it has come to setsid(2). */
	if (ward->pid > 1 && kill(-ward->pid, signo) < 0 && errno == ESRCH)
		kill(ward->pid, signo);
}

struct group_of {
	const struct cgroup *cgroup;
	uint32_t slot;
};

static enum walk_choice choose_outside(pid_t pid, void *arg)
{
	const struct group_of *group = arg;

	return cgroup_slot_has(group->cgroup, group->slot, pid) ? WALK_PASS : WALK_KILL;
}

/*
 * A process may have been moved to another group, by itself or by a service manager.
 * While its line of parents is alive the walk finds it. An orphan that also left the group
 * is nobody's: it is killed when the mount ends.
 */
static void kill_tree(struct keeper_process *k, struct ward *ward)
{
	struct group_of group = {&k->setup->cgroup, ward->slot};

	if (ward->pid > 1) {
		walk_kill_chosen(ward->pid, choose_outside, &group);
		if (!cgroup_slot_has(group.cgroup, group.slot, ward->pid))
			kill(ward->pid, SIGKILL);
	}
	cgroup_slot_kill(group.cgroup, ward->slot);
	settle(k, ward);
}

const struct ward_way ward_in_cgroup = {
	.start = start,
	.ready = ready,
	.reaped = reaped,
	.signal = send_signal,
	.kill = kill_tree,
	.settle = settle,
};

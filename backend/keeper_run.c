#include "keeper_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util.h"
#include "walk.h"
#include "ward.h"

/* What epoll says is ready: these, or a ward's slot. */
#define TAG_SOCKET ((uint64_t)1 << 32)
#define TAG_SIGNALS (TAG_SOCKET + 1)

#define BATCH 32

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- To the daemon ---- */

static void flush_events(struct keeper_process *k)
{
	size_t len = k->event_count * sizeof(k->events[0]);

	k->event_count = 0;
	if (!len || k->ending)
		return;
	/* May wait: a daemon that does not read now has nothing to gain from a keeper that goes on.
	 */
	while (send(k->setup->socket, k->events, len, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return;
}

static void tell(struct keeper_process *k, enum keeper_event_kind kind, uint32_t slot, int value)
{
	if (k->event_count == KEEPER_EVENTS_MAX)
		flush_events(k);
	k->events[k->event_count++] = (struct keeper_event){
		.kind = kind,
		.slot = slot,
		.value = value,
	};
}

void ward_exited(struct keeper_process *k, struct ward *ward, int status)
{
	ward->leader_ended = true;
	tell(k, KEEPER_EXITED, ward->slot, status);
}

void ward_lost(struct keeper_process *k, struct ward *ward)
{
	ward->leader_ended = true;
	tell(k, KEEPER_LOST, ward->slot, 0);
}

/* ---- The wards ---- */

static struct ward *ward_at(struct keeper_process *k, uint64_t slot)
{
	return slot < k->wards.capacity ? k->wards.slots[slot] : NULL;
}

struct ward *ward_of_pid(struct keeper_process *k, pid_t pid)
{
	for (size_t i = 0; i < k->wards.capacity; i++)
		if (k->wards.slots[i] && k->wards.slots[i]->pid == pid)
			return k->wards.slots[i];
	return NULL;
}

static struct ward *ward_new(struct keeper_process *k, uint32_t slot)
{
	struct ward_table *t = &k->wards;
	struct ward *ward = calloc(1, sizeof(*ward));

	if (ward && slot >= t->capacity) {
		size_t capacity = MAX(2 * t->capacity, (size_t)slot + 16);
		struct ward **slots = realloc(t->slots, capacity * sizeof(struct ward *));

		if (!slots) {
			free(ward);
			return NULL;
		}
		memset(slots + t->capacity, 0, (capacity - t->capacity) * sizeof(struct ward *));
		t->slots = slots;
		t->capacity = capacity;
	}
	if (!ward)
		return NULL;
	ward->slot = slot;
	ward->fd = -1;
	ward->input = -1;
	t->slots[slot] = ward;
	t->count++;
	return ward;
}

void ward_gone(struct keeper_process *k, struct ward *ward)
{
	tell(k, KEEPER_GONE, ward->slot, 0);
	k->wards.slots[ward->slot] = NULL;
	k->wards.count--;
	close_fd(&ward->fd);
	close_fd(&ward->input);
	free(ward);
}

int ward_watch(struct keeper_process *k, struct ward *ward, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = ward->slot};

	return epoll_ctl(k->epoll, EPOLL_CTL_ADD, ward->fd, &ev) < 0 ? -errno : 0;
}

static void ward_kill(struct keeper_process *k, struct ward *ward)
{
	ward->killing = true;
	k->way->kill(k, ward);
}

/* ---- From the daemon ---- */

struct packet {
	struct keeper_message message;
	char text[KEEPER_INLINE_BYTES];
};

static void start(struct keeper_process *k, const struct packet *packet, int *fds)
{
	struct spawn s = {
		.counts = packet->message.counts,
		.text = packet->message.text_in_memfd ? NULL : packet->text,
		.text_len = packet->message.text_len,
		.inherited = &k->setup->inherited,
	};
	struct ward *ward = ward_new(k, packet->message.slot);
	int last = packet->message.text_in_memfd ? FD_MEMFD : FD_INPUT_WRITE;
	int err = !ward ? -ENOMEM : fds[last] < 0 ? -EMFILE : 0;

	memcpy(s.fds, fds, sizeof(s.fds));
	if (err == 0)
		err = k->way->start(k, ward, &s);
	if (err < 0)
		spawn_report(fds[FD_STATUS], SPAWN_FORK, -err);
	if (err == 0)
		ward->input = take_fd(&fds[FD_INPUT_WRITE]);
	else if (ward)
		ward_gone(k, ward);
	else
		tell(k, KEEPER_GONE, packet->message.slot, 0);
}

static void obey(struct keeper_process *k, const struct packet *packet, int *fds)
{
	const struct keeper_message *message = &packet->message;
	struct ward *ward = ward_at(k, message->slot);

	if (message->order == KEEPER_START) {
		start(k, packet, fds);
		return;
	}
	/* It may be gone while the order was on its way. */
	if (!ward)
		return;
	if (message->order == KEEPER_SIGNAL)
		k->way->signal(k, ward, message->value);
	else if (message->order == KEEPER_KILL)
		ward_kill(k, ward);
	else if (message->order == KEEPER_CLOSE_INPUT)
		close_fd(&ward->input);
	else if (message->order == KEEPER_WILL_SAY)
		ward->farewell = true;
}

static void kill_all(struct keeper_process *k)
{
	k->kill_due_ms = 0;
	if (k->setup->cgroup.fd >= 0)
		cgroup_kill_all(&k->setup->cgroup);
	for (size_t i = 0; i < k->wards.capacity; i++)
		if (k->wards.slots[i])
			ward_kill(k, k->wards.slots[i]);
}

/* Returns whether the ward may live on for a while. */
static bool say_farewell(struct ward *ward)
{
	static const char words[] = KEEPER_LAST_WORDS;
	const ssize_t len = sizeof(words) - 1;
	bool said = ward->farewell && !ward->killing && write(ward->input, words, len) == len;

	if (said)
		close_fd(&ward->input);
	return said;
}

static void end(struct keeper_process *k)
{
	k->ending = true;
	epoll_ctl(k->epoll, EPOLL_CTL_DEL, k->setup->socket, NULL);
	for (size_t i = 0; i < k->wards.capacity; i++)
		if (k->wards.slots[i] && say_farewell(k->wards.slots[i]))
			k->kill_due_ms = now_ms() + KEEPER_FAREWELL_MS;
	if (!k->kill_due_ms) {
		kill_all(k);
		return;
	}
	for (size_t i = 0; i < k->wards.capacity; i++)
		if (k->wards.slots[i] && !k->wards.slots[i]->farewell)
			ward_kill(k, k->wards.slots[i]);
}

static void take_fds(struct msghdr *header, int *fds)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(header);

	for (int i = 0; i < FD_COUNT; i++)
		fds[i] = -1;
	if (control && control->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(control), control->cmsg_len - CMSG_LEN(0));
}

/* Returns whether there was a message. */
static bool listen_to_daemon(struct keeper_process *k)
{
	static struct packet packet;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FD_COUNT * sizeof(int))];
	} control;
	struct iovec iov = {&packet, sizeof(packet)};
	struct msghdr header = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(k->setup->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int fds[FD_COUNT];

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < (ssize_t)sizeof(packet.message)) {
		end(k);
		return false;
	}
	take_fds(&header, fds);
	obey(k, &packet, fds);
	for (int i = 0; i < FD_COUNT; i++)
		close_fd(&fds[i]);
	return true;
}

/* ---- The process ---- */

static void sweep_within(struct keeper_process *k, uint64_t delay_ms)
{
	uint64_t due_ms = now_ms() + delay_ms;

	if (!k->sweep_due_ms || due_ms < k->sweep_due_ms)
		k->sweep_due_ms = due_ms;
}

void sweep_later(struct keeper_process *k)
{
	sweep_within(k, KEEPER_SWEEP_MS);
}

void ward_unsettled(struct keeper_process *k, struct ward *ward)
{
	ward->unsettled = true;
	sweep_later(k);
}

/* Reaps orphans, and leaders that ended meanwhile; goes on with what was not settled. */
static void sweep(struct keeper_process *k)
{
	int status;
	pid_t pid;

	k->sweep_due_ms = 0;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct ward *ward = ward_of_pid(k, pid);

		if (!ward)
			continue;
		ward->pid = 0;
		k->way->reaped(k, ward, status);
	}
	for (size_t i = 0; i < k->wards.capacity; i++) {
		struct ward *ward = k->wards.slots[i];

		if (!ward || !ward->unsettled)
			continue;
		ward->unsettled = false;
		if (ward->killing)
			k->way->kill(k, ward);
		else
			k->way->settle(k, ward);
	}
}

static void deliver(struct keeper_process *k, uint64_t tag)
{
	struct signalfd_siginfo info[8];
	struct ward *ward;

	if (tag == TAG_SOCKET) {
		for (int i = 0; i < BATCH && listen_to_daemon(k); i++)
			;
	} else if (tag == TAG_SIGNALS) {
		/* A leader's end is seen at once by its own descriptor; an orphan can wait. */
		if (read(k->signals, info, sizeof(info)) > 0)
			sweep_within(k, KEEPER_REAP_MS);
	} else {
		/* It may have been reaped in this very batch. */
		ward = ward_at(k, tag);
		if (ward && ward->fd >= 0)
			k->way->ready(k, ward);
	}
}

static void run_until_ended(struct keeper_process *k)
{
	while (!k->ending || k->wards.count) {
		struct epoll_event batch[BATCH];
		int wait = k->sweep_due_ms || k->kill_due_ms ? KEEPER_SWEEP_MS : -1;
		int count = epoll_wait(k->epoll, batch, BATCH, wait);

		for (int i = 0; i < count; i++)
			deliver(k, batch[i].data.u64);
		if (k->sweep_due_ms && now_ms() >= k->sweep_due_ms)
			sweep(k);
		if (k->kill_due_ms && now_ms() >= k->kill_due_ms)
			kill_all(k);
		flush_events(k);
	}
}

/* Whoever left its group and its parents has no ward any more, but has fallen to the keeper. */
static void kill_strays(void)
{
	for (;;) {
		struct timespec pause = {.tv_nsec = KEEPER_SWEEP_MS * 1000000L};

		walk_kill(getpid());
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		nanosleep(&pause, NULL);
	}
}

static void hide(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(SANITIZED)
	/* The leak checker traces its own process, which this would forbid. */
	prctl(PR_SET_DUMPABLE, 0);
#endif
	prctl(PR_SET_NAME, "spawnfs-keeper");
}

/* The commands inherit the defaults; the keeper itself hears of the daemon's end by its socket. */
static void reset_signals(void)
{
	sigset_t all;

	for (int signo = 1; signo < NSIG; signo++)
		signal(signo, SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

static void raise_limits(const struct inherited *inherited)
{
	struct rlimit nofile = inherited->nofile;
	struct rlimit core = {.rlim_cur = 0, .rlim_max = inherited->core.rlim_max};

	nofile.rlim_cur = nofile.rlim_max;
	setrlimit(RLIMIT_NOFILE, &nofile);
	setrlimit(RLIMIT_CORE, &core);
}

static int take_descriptors(const struct keeper_setup *setup)
{
	int keep[] = {setup->socket, setup->cgroup.fd, setup->cgroup.parent};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			return -errno;
	return close_all_but(keep, ARRAY_LEN(keep));
}

static int add_to_epoll(int epoll, int fd, uint64_t tag)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = tag};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev);
}

_Noreturn void keeper_run(const struct keeper_setup *setup)
{
	struct keeper_process k = {
		.setup = setup,
		.way = setup->cgroup.fd >= 0 ? &ward_in_cgroup : &ward_under_warden,
	};
	sigset_t children;

	reset_signals();
	hide();
	setsid();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	raise_limits(&setup->inherited);
	if (chdir("/") < 0 || take_descriptors(setup) < 0)
		_exit(1);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	k.epoll = epoll_create1(EPOLL_CLOEXEC);
	k.signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	if (k.epoll < 0 || k.signals < 0 || add_to_epoll(k.epoll, setup->socket, TAG_SOCKET) < 0 ||
	    add_to_epoll(k.epoll, k.signals, TAG_SIGNALS) < 0)
		_exit(1);
	run_until_ended(&k);
	kill_strays();
	if (setup->cgroup.fd >= 0)
		cgroup_remove(&setup->cgroup);
	_exit(0);
}

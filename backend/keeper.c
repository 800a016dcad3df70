/*
 * The daemon's side of the keeper: its start and end, its events, and what is left to do
 * when it has been killed.
 */
#include "keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "keeper_private.h"
#include "keeper_run.h"
#include "log.h"
#include "walk.h"

static void retry_fired(struct timer *timer);

/* ---- Slots ---- */

static int slots_grow(struct keeper *k)
{
	uint32_t capacity = k->capacity ? 2 * k->capacity : 64;
	struct kept **slots = realloc(k->slots, capacity * sizeof(struct kept *));
	bool *taken;

	if (!slots)
		return -ENOMEM;
	k->slots = slots;
	taken = realloc(k->taken, capacity * sizeof(*taken));
	if (!taken)
		return -ENOMEM;
	k->taken = taken;
	memset(k->slots + k->capacity, 0, (capacity - k->capacity) * sizeof(struct kept *));
	memset(k->taken + k->capacity, 0, (capacity - k->capacity) * sizeof(*taken));
	k->capacity = capacity;
	return 0;
}

/* next_free is at or below the lowest free slot: what is alive stays dense. */
int keeper_take_slot(struct keeper *k, struct kept *kept)
{
	while (k->next_free < k->capacity && k->taken[k->next_free])
		k->next_free++;
	if (k->next_free == k->capacity && slots_grow(k) < 0)
		return -ENOMEM;
	kept->slot = k->next_free++;
	kept->keeper = k;
	kept->ended = false;
	kept->due = 0;
	k->taken[kept->slot] = true;
	k->slots[kept->slot] = kept;
	return 0;
}

void keeper_free_slot(struct keeper *k, uint32_t slot)
{
	k->taken[slot] = false;
	k->slots[slot] = NULL;
	k->next_free = MIN(k->next_free, slot);
}

void keeper_forget(struct kept *kept)
{
	if (!kept->keeper)
		return;
	kept->keeper->slots[kept->slot] = NULL;
	kept->keeper = NULL;
}

/* ---- Events ---- */

static void tell_gone(struct keeper *k, uint32_t slot)
{
	struct kept *kept = k->slots[slot];

	keeper_free_slot(k, slot);
	if (!kept)
		return;
	kept->keeper = NULL;
	kept->gone(kept);
}

static void tell_ended(struct kept *kept, bool known, int status)
{
	if (!kept || kept->ended)
		return;
	kept->ended = true;
	if (known)
		kept->exited(kept, status);
	else
		kept->lost(kept);
}

static void take_event(struct keeper *k, const struct keeper_event *event)
{
	if (event->slot >= k->capacity || !k->taken[event->slot])
		return;
	if (event->kind == KEEPER_GONE)
		tell_gone(k, event->slot);
	else
		tell_ended(k->slots[event->slot], event->kind == KEEPER_EXITED, event->value);
}

/*
 * The keeper was killed. Its wards have fallen to this process, or to their wardens, who
 * kill them. No more is known of how they end.
 */
static void keeper_died(struct keeper *k)
{
	log_error("local: the keeper of the commands was killed: killing all commands; "
		  "mount again to start more");
	loop_unwatch(&k->socket);
	close_fd(&k->socket.fd);
	keeper_drop_orders(k);
	retry_fired(&k->retry);
	for (uint32_t i = 0; i < k->capacity; i++)
		tell_ended(k->slots[i], false, 0);
}

static void socket_ready(struct source *source, uint32_t ready)
{
	struct keeper *k = container_of(source, struct keeper, socket);
	struct keeper_event events[KEEPER_EVENTS_MAX];
	ssize_t n;

	if (ready & EPOLLOUT)
		keeper_send_orders(k);
	n = recv(source->fd, events, sizeof(events), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		keeper_died(k);
		return;
	}
	for (size_t i = 0; i < (size_t)n / sizeof(events[0]); i++)
		take_event(k, &events[i]);
}

/* ---- After the keeper's death ---- */

/* Returns whether nothing is left of what it kept. */
static bool kill_remains(struct keeper *k)
{
	bool in_cgroup = k->cgroup.fd >= 0;

	if (in_cgroup)
		cgroup_kill_all(&k->cgroup);
	walk_kill(getpid());
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	if (waitpid(-1, NULL, WNOHANG) == 0)
		return false;
	k->pid = 0;
	if (!in_cgroup)
		return true;
	for (uint32_t i = 0; i < k->capacity; i++)
		if (k->taken[i] && cgroup_slot_remove(&k->cgroup, i) < 0)
			return false;
	return cgroup_remove(&k->cgroup) == 0;
}

static void retry_fired(struct timer *timer)
{
	struct keeper *k = container_of(timer, struct keeper, retry);

	if (k->socket.fd >= 0) {
		keeper_send_orders(k);
		return;
	}
	if (!kill_remains(k)) {
		timer_arm(k->loop, &k->retry, KEEPER_SWEEP_MS);
		return;
	}
	for (uint32_t i = 0; i < k->capacity; i++) {
		if (!k->taken[i])
			continue;
		tell_ended(k->slots[i], false, 0);
		tell_gone(k, i);
	}
}

/* ---- The keeper's process ---- */

/* Makes the mount's cgroup, or finds that there will be wardens. Returns 0 or -errno. */
static int choose_way(struct keeper *k, enum keeper_tree tree, struct text *why)
{
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text reason = {0};
	int err = -ENOENT;

	if (tree != KEEPER_TREE_WALK)
		err = cgroup_open(&k->cgroup, &path, &reason);
	if (err == 0)
		return text_printf(&k->way, "cgroup %s", text_str(&path));
	if (tree == KEEPER_TREE_CGROUP)
		return text_fail(why, err, "local: tree=cgroup: %s: use tree=walk",
				 text_str(&reason));
	if (!walk_works())
		return text_fail(why, -ENOSYS,
				 "local: cannot keep track of a command's processes: there is no "
				 "cgroup v2 to use (%s), and no /proc/thread-self/children: mount "
				 "/proc, on a kernel with CONFIG_PROC_CHILDREN",
				 text_str(&reason));
	return text_printf(&k->way, "walk%s%s%s", reason.len ? " (" : "", text_str(&reason),
			   reason.len ? ")" : "");
}

static int start_process(struct keeper *k, const struct inherited *inherited, struct text *why)
{
	struct keeper_setup setup = {.cgroup = k->cgroup, .inherited = *inherited};
	AUTO_CLOSE int theirs = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return text_fail(why, -errno, "local: cannot make a socket pair: %s",
				 strerror(errno));
	k->socket.fd = pair[0];
	theirs = pair[1];
	setup.socket = theirs;
	k->pid = fork();
	if (k->pid == 0)
		keeper_run(&setup);
	if (k->pid < 0) {
		k->pid = 0;
		return text_fail(why, -errno, "local: cannot start the keeper of commands: %s",
				 strerror(errno));
	}
	return 0;
}

static int set_up(struct keeper *k, enum keeper_tree tree, const struct inherited *inherited,
		  struct text *why)
{
	int err;

	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return text_fail(why, -errno, "local: cannot become a subreaper: %s",
				 strerror(errno));
	err = choose_way(k, tree, why);
	if (err == 0)
		err = start_process(k, inherited, why);
	if (err < 0)
		return err;
	err = loop_watch(k->loop, &k->socket, EPOLLIN);
	if (err < 0)
		return text_fail(why, err, "local: cannot watch the keeper: %s", strerror(-err));
	return 0;
}

int keeper_open(struct loop *loop, enum keeper_tree tree, const struct inherited *inherited,
		struct keeper **ret, struct text *why)
{
	struct keeper *k = calloc(1, sizeof(*k));
	int err;

	if (!k)
		return text_fail(why, -ENOMEM, "local: out of memory");
	k->loop = loop;
	k->socket.fd = -1;
	k->socket.ready = socket_ready;
	k->retry.fire = retry_fired;
	k->cgroup = (struct cgroup){.fd = -1, .parent = -1};
	list_init(&k->orders);
	err = set_up(k, tree, inherited, why);
	if (err < 0) {
		keeper_close(k);
		return err;
	}
	*ret = k;
	return 0;
}

/* Waits for the keeper, which goes on by itself if it takes longer. */
static void await_end(struct keeper *k)
{
	struct pollfd ended = {.fd = pidfd_open(k->pid, 0), .events = POLLIN};

	if (ended.fd < 0 || poll(&ended, 1, KEEPER_END_MS) > 0)
		waitpid(k->pid, NULL, 0);
	else
		log_warning("local: commands are still being killed by the keeper, pid %d", k->pid);
	close_fd(&ended.fd);
}

void keeper_close(struct keeper *k)
{
	if (!k)
		return;
	loop_unwatch(&k->socket);
	timer_cancel(&k->retry);
	close_fd(&k->socket.fd);
	if (k->pid)
		await_end(k);
	else if (k->cgroup.fd >= 0)
		cgroup_remove(&k->cgroup);
	cgroup_done(&k->cgroup);
	keeper_drop_orders(k);
	text_done(&k->way);
	free(k->slots);
	free(k->taken);
	free(k);
}

const char *keeper_way(const struct keeper *k)
{
	return text_str(&k->way);
}

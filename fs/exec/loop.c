/*
 * The event loop on epoll(7). Timers are a binary heap, ordered by due_ns;
 * each knows its slot, so that cancelling is O(log n).
 */
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "util.h"

#define BATCH 64

struct loop {
	int epoll;
	bool stopped;
	uint64_t spin_ns;
	struct timer **heap;
	size_t timers;
	size_t heap_size;
	struct list tasks;
	/* The events of the running batch; those before batch_next have been delivered. */
	struct epoll_event batch[BATCH];
	int batch_next;
	int batch_len;
};

uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int loop_new(struct loop **ret)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return -ENOMEM;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll < 0) {
		int err = -errno;

		free(loop);
		return err;
	}
	list_init(&loop->tasks);
	*ret = loop;
	return 0;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	close(loop->epoll);
	free(loop->heap);
	free(loop);
}

void loop_set_spin(struct loop *loop, uint64_t spin_ns)
{
	loop->spin_ns = spin_ns;
}

void loop_stop(struct loop *loop)
{
	loop->stopped = true;
}

/* ---- Sources ---- */

int loop_watch(struct loop *loop, struct source *source, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = source};

	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, source->fd, &ev) < 0)
		return -errno;
	source->loop = loop;
	source->events = events;
	return 0;
}

int loop_rewatch(struct source *source, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = source};

	if (source->events == events)
		return 0;
	if (epoll_ctl(source->loop->epoll, EPOLL_CTL_MOD, source->fd, &ev) < 0)
		return -errno;
	source->events = events;
	return 0;
}

void loop_unwatch(struct source *source)
{
	struct loop *loop = source->loop;

	if (!loop)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	for (int i = loop->batch_next; i < loop->batch_len; i++)
		if (loop->batch[i].data.ptr == source)
			loop->batch[i].data.ptr = NULL;
	source->loop = NULL;
}

/* ---- Timers ---- */

static void heap_put(struct loop *loop, size_t slot, struct timer *timer)
{
	loop->heap[slot] = timer;
	timer->slot = slot;
}

static void heap_up(struct loop *loop, size_t slot, struct timer *timer)
{
	while (slot > 0 && loop->heap[(slot - 1) / 2]->due_ns > timer->due_ns) {
		heap_put(loop, slot, loop->heap[(slot - 1) / 2]);
		slot = (slot - 1) / 2;
	}
	heap_put(loop, slot, timer);
}

static void heap_down(struct loop *loop, size_t slot, struct timer *timer)
{
	for (;;) {
		size_t child = 2 * slot + 1;

		if (child >= loop->timers)
			break;
		if (child + 1 < loop->timers &&
		    loop->heap[child + 1]->due_ns < loop->heap[child]->due_ns)
			child++;
		if (loop->heap[child]->due_ns >= timer->due_ns)
			break;
		heap_put(loop, slot, loop->heap[child]);
		slot = child;
	}
	heap_put(loop, slot, timer);
}

void timer_cancel(struct timer *timer)
{
	struct loop *loop = timer->loop;
	struct timer *last;

	if (!loop)
		return;
	timer->loop = NULL;
	last = loop->heap[--loop->timers];
	if (last == timer)
		return;
	if (last->due_ns < timer->due_ns)
		heap_up(loop, timer->slot, last);
	else
		heap_down(loop, timer->slot, last);
}

int timer_arm(struct loop *loop, struct timer *timer, uint64_t delay_ms)
{
	timer_cancel(timer);
	if (loop->timers == loop->heap_size) {
		size_t size = loop->heap_size ? 2 * loop->heap_size : 64;
		struct timer **heap = reallocarray(loop->heap, size, sizeof(struct timer *));

		if (!heap)
			return -ENOMEM;
		loop->heap = heap;
		loop->heap_size = size;
	}
	timer->loop = loop;
	timer->due_ns = monotonic_ns() + delay_ms * 1000000;
	heap_up(loop, loop->timers++, timer);
	return 0;
}

static void fire_timers(struct loop *loop)
{
	uint64_t now;

	if (!loop->timers)
		return;
	now = monotonic_ns();
	while (loop->timers && loop->heap[0]->due_ns <= now) {
		struct timer *timer = loop->heap[0];

		timer_cancel(timer);
		timer->fire(timer);
	}
}

/* ---- Tasks ---- */

void task_init(struct task *task, void (*run)(struct task *task))
{
	task->run = run;
	list_init(&task->link);
}

void loop_defer(struct loop *loop, struct task *task)
{
	if (list_empty(&task->link))
		list_append(&loop->tasks, &task->link);
}

static void run_tasks(struct loop *loop)
{
	while (!list_empty(&loop->tasks)) {
		struct task *task = list_first(&loop->tasks, struct task, link);

		list_remove(&task->link);
		task->run(task);
	}
}

/* ---- The loop ---- */

/* Milliseconds that epoll_wait may sleep: -1 for ever. Rounded up, so that a timer is due then. */
static int sleep_ms(const struct loop *loop)
{
	uint64_t now;
	uint64_t ms;

	if (!loop->timers)
		return -1;
	now = monotonic_ns();
	if (loop->heap[0]->due_ns <= now)
		return 0;
	ms = (loop->heap[0]->due_ns - now + 999999) / 1000000;
	return ms > 3600000 ? 3600000 : (int)ms;
}

/* Polls without sleeping until there is an event or busy_until has passed; then sleeps. */
static int wait_events(struct loop *loop, uint64_t busy_until)
{
	int n;

	while (busy_until && monotonic_ns() < busy_until) {
		n = epoll_wait(loop->epoll, loop->batch, BATCH, 0);
		if (n != 0)
			return n < 0 ? -errno : n;
	}
	n = epoll_wait(loop->epoll, loop->batch, BATCH, sleep_ms(loop));
	return n < 0 ? -errno : n;
}

static void deliver(struct loop *loop, int events)
{
	loop->batch_len = events;
	loop->batch_next = 0;
	while (loop->batch_next < loop->batch_len) {
		struct epoll_event *ev = &loop->batch[loop->batch_next++];
		struct source *source = ev->data.ptr;

		if (!source)
			continue;
		source->ready(source, ev->events);
		run_tasks(loop);
	}
	loop->batch_len = 0;
}

int loop_run(struct loop *loop)
{
	uint64_t busy_until = 0;

	for (;;) {
		int n;

		run_tasks(loop);
		if (loop->stopped) {
			loop->stopped = false;
			return 0;
		}
		n = wait_events(loop, busy_until);
		if (n < 0 && n != -EINTR)
			return n;
		if (n > 0) {
			deliver(loop, n);
			if (loop->spin_ns)
				busy_until = monotonic_ns() + loop->spin_ns;
		}
		fire_timers(loop);
	}
}

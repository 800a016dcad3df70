/*
 * The event loop: one thread, one epoll set, timers and deferred tasks. Every
 * callback runs on the loop thread and must not block.
 *
 * Sources, timers and tasks are embedded in their owners, which must remove or
 * cancel them before they are freed. That may be done in any callback: an
 * event of the same batch for a removed source is dropped.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "list.h"

struct loop;

/* A watched descriptor. The owner fills fd (not closed by the loop) and ready. */
struct source {
	int fd;
	/* events: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP as epoll_wait(2) gives them. */
	void (*ready)(struct source *source, uint32_t events);
	struct loop *loop; /* the loop's own: NULL while not watched */
	uint32_t events;   /* the loop's own */
};

/* A one-shot timer. The owner zeroes it and fills fire. */
struct timer {
	void (*fire)(struct timer *timer);
	struct loop *loop; /* the loop's own: NULL while not armed */
	uint64_t due_ns;   /* the loop's own: CLOCK_MONOTONIC */
	size_t slot;	   /* the loop's own */
};

/* Work for later in this turn of the loop. The owner calls task_init(). */
struct task {
	void (*run)(struct task *task);
	struct list link; /* the loop's own */
};

/* Makes a loop. Returns 0 or -errno; *ret is released by loop_free(). */
int loop_new(struct loop **ret);
void loop_free(struct loop *loop);

/*
 * Runs until loop_stop(). Returns 0, or -errno when epoll itself fails.
 * May be called again after it returned.
 */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/*
 * Lets the loop poll without sleeping for up to spin_ns after each event
 * before it sleeps: a wake-up costs more than that on most machines. 0: never.
 */
void loop_set_spin(struct loop *loop, uint64_t spin_ns);

/* Watches source->fd, level-triggered, for events. Returns 0 or -errno (epoll_ctl(2)). */
int loop_watch(struct loop *loop, struct source *source, uint32_t events);

/* Changes what a watched source waits for; 0 waits for errors only. Returns 0 or -errno. */
int loop_rewatch(struct source *source, uint32_t events);

/* Stops watching. Harmless when not watched. Call it before closing the fd. */
void loop_unwatch(struct source *source);

/* Arms, or re-arms, a timer to fire once, delay_ms milliseconds from now. Returns 0 or -ENOMEM. */
int timer_arm(struct loop *loop, struct timer *timer, uint64_t delay_ms);

/* Harmless when not armed. */
void timer_cancel(struct timer *timer);
static inline bool timer_armed(const struct timer *timer)
{
	return timer->loop;
}

void task_init(struct task *task, void (*run)(struct task *task));

/* Runs task once, after the present callback has returned and before the loop sleeps. */
void loop_defer(struct loop *loop, struct task *task);
static inline void task_cancel(struct task *task)
{
	list_remove(&task->link);
}

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t monotonic_ns(void);

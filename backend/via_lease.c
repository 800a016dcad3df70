/*
 * When there is a guard. It is called with the first command that needs it, and commands that start
 * wait until it stands; but none fails, or waits twice, because none can be had: then it runs
 * unguarded, the log says so, and the next guard is tried after a while.
 */
#include "via_lease.h"

#include <string.h>

#include "log.h"
#include "random_hex.h"
#include "via.h"

static struct lease *lease_of(const struct via_command *c)
{
	return &container_of(c->base.backend, struct via, base)->lease;
}

static struct via *via_of(struct lease *l)
{
	return container_of(l, struct via, lease);
}

static void judge_all(struct lease *l)
{
	list_for_each (c, &l->commands, struct via_command, link)
		loop_defer(via_of(l)->base.loop, &c->judge_task);
}

/* Nothing has the old prefix: no guard that may still be there has anything to do. */
static void begin_anew(struct lease *l)
{
	if (random_hex(l->prefix, VIA_PREFIX_HEX) == 0)
		l->generation = 0;
	l->failures = 0;
	timer_cancel(&l->retry);
}

static void try_again(struct lease *l, const char *why)
{
	unsigned doubled = MIN(l->failures, 8U);
	unsigned delay_ms = MIN(VIA_RETRY_FIRST_MS << doubled, VIA_RETRY_LAST_MS);

	log_at(l->failures ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
	       "via: no guard stands on the far side: %s: until one does, commands that start "
	       "outlive a daemon that is killed; others are killed after %u s",
	       why, l->seconds);
	l->failures++;
	timer_arm(via_of(l)->base.loop, &l->retry, delay_ms);
	judge_all(l);
}

static void call_guard(struct lease *l)
{
	AUTO_TEXT struct text why = {0};

	timer_cancel(&l->retry);
	if (guard_call(l, &l->guard, &why) < 0)
		try_again(l, text_str(&why));
	else
		l->generation++;
}

static void retry_fired(struct timer *timer)
{
	struct lease *l = container_of(timer, struct lease, retry);

	if (list_empty(&l->commands))
		begin_anew(l);
	else
		call_guard(l);
}

static void let_go(struct lease *l, bool kill)
{
	if (l->guard)
		guard_dismiss(l->guard, kill);
	l->guard = NULL;
}

static void idle_fired(struct timer *timer)
{
	struct lease *l = container_of(timer, struct lease, idle);

	let_go(l, true);
	begin_anew(l);
}

/* A guard that may be at another place than the commands could only do harm. */
static void give_up(struct lease *l, const char *why)
{
	log_warning("via: commands on the far side outlive a daemon that is killed: %s", why);
	l->never = true;
	timer_cancel(&l->retry);
	let_go(l, false);
	judge_all(l);
}

/* ---- Guards ---- */

static bool same_place(const struct script_place *a, const struct script_place *b)
{
	return strcmp(a->boot, b->boot) == 0 && strcmp(a->space, b->space) == 0;
}

/* Whether it is where commands run, if any is known to. */
static bool is_of_use(const struct lease *l, const struct guard *g)
{
	bool elsewhere = false;

	list_for_each (c, &l->commands, struct via_command, link) {
		if (c->phase == VIA_CALLING || c->dies_with_call)
			continue;
		if (same_place(&c->place, &g->place))
			return true;
		elsewhere = true;
	}
	return !elsewhere;
}

void lease_guard_up(struct guard *g)
{
	struct lease *l = g->lease;

	if (l->failures < VIA_GUARD_TRIES && !is_of_use(l, g)) {
		let_go(l, false);
		try_again(l, "a call of the prefix led to another place than the commands'");
		return;
	}
	if (l->failures)
		log_info("via: a guard stands on the far side");
	l->failures = 0;
	judge_all(l);
}

void lease_guard_blind(struct guard *g)
{
	give_up(g->lease, "it has no /proc of its own, or no sleep");
}

/* One that has ended is followed at once, unless guards end as fast as they come up. */
static bool recall(struct lease *l, const struct guard *g)
{
	uint64_t now_ns = monotonic_ns();

	if (g->phase != GUARD_UP ||
	    now_ns - l->recalled_ns < (uint64_t)VIA_RETRY_FIRST_MS * 1000000)
		return false;
	l->recalled_ns = now_ns;
	return true;
}

void lease_guard_ended(struct guard *g, const char *why)
{
	struct lease *l = g->lease;

	if (g->phase == GUARD_LEAVING) {
		guard_free(g);
		if (l->closing && list_empty(&l->leaving))
			loop_stop(via_of(l)->base.loop);
		return;
	}
	l->guard = NULL;
	if (list_empty(&l->commands)) {
		begin_anew(l);
	} else if (recall(l, g)) {
		log_info("via: the guard on the far side is called again: %s", why);
		call_guard(l);
	} else {
		try_again(l, why);
	}
	guard_free(g);
}

/* ---- Commands ---- */

void lease_join(struct via_command *c)
{
	struct lease *l = lease_of(c);

	timer_cancel(&l->idle);
	list_append(&l->commands, &c->link);
	c->called_guard = l->needed && !l->never && !l->guard && !timer_armed(&l->retry);
	if (c->called_guard)
		call_guard(l);
}

void lease_leave(struct via_command *c)
{
	struct lease *l = lease_of(c);

	list_remove(&c->link);
	if (list_empty(&l->commands) && l->needed)
		timer_arm(c->base.backend->loop, &l->idle, MIN(l->seconds * 1000, VIA_IDLE_MS));
}

/*
 * The guard is at another place than the command. Once that may be since there is a new
 * place (a pod that was replaced): then nobody misses the old guard.
 */
static bool moved(struct lease *l, struct via_command *c)
{
	bool alone = l->commands.next == &c->link && c->link.next == &l->commands;

	if (c->called_guard || !alone)
		return false;
	c->called_guard = true;
	let_go(l, false);
	call_guard(l);
	return true;
}

bool lease_allows(struct via_command *c)
{
	struct lease *l = lease_of(c);

	if (!c->place_told)
		return false;
	if (c->dies_with_call || !l->seconds || l->never)
		return true;
	if (!c->place.boot[0]) {
		give_up(l, "it has no /proc of its own, or no readlink");
		return true;
	}
	l->needed = true;
	if (!l->guard && !timer_armed(&l->retry)) {
		c->called_guard = true;
		call_guard(l);
	}
	if (!l->guard)
		return true;
	if (l->guard->phase == GUARD_COMING)
		return l->failures;
	if (same_place(&c->place, &l->guard->place))
		return true;
	if (moved(l, c))
		return !l->guard;
	give_up(l, "each call of the prefix leads to another place");
	return true;
}

/* ---- Start and end ---- */

int lease_init(struct lease *l, unsigned seconds)
{
	*l = (struct lease){
		.seconds = seconds,
		.retry = {.fire = retry_fired},
		.idle = {.fire = idle_fired},
	};
	list_init(&l->commands);
	list_init(&l->leaving);
	return random_hex(l->prefix, VIA_PREFIX_HEX);
}

void lease_done(struct lease *l)
{
	timer_cancel(&l->retry);
	timer_cancel(&l->idle);
	let_go(l, true);
	l->closing = true;
	if (!list_empty(&l->leaving))
		loop_run(via_of(l)->base.loop);
}

/* One guard: a call of the prefix that is asked now and then whether it still stands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_hex.h"
#include "via.h"

static struct guard *guard_of(struct call *call)
{
	return container_of(call, struct guard, call);
}

static struct loop *loop_of(const struct guard *g)
{
	return container_of(g->lease, struct via, lease)->base.loop;
}

/*
 * Twice this time is the longest that a guard is believed to stand which has seen the end of its
 * input: half the lease is left for another.
 */
static uint64_t beat_ms(const struct guard *g)
{
	uint64_t quarter_ms = (uint64_t)g->lease->seconds * 1000 / 4;

	return MIN(MAX(quarter_ms, (uint64_t)VIA_BEAT_FIRST_MS), (uint64_t)VIA_BEAT_LAST_MS);
}

static void mark(struct call *call, enum stream_id stream, const char *words)
{
	struct guard *g = guard_of(call);

	sscanf(words, "place %63s %63s", g->place.boot, g->place.space);
	if (strcmp(words, "guard beat") == 0)
		g->heard = true;
	if (strncmp(words, "guard ", 6) != 0 || g->phase != GUARD_COMING)
		return;
	if (strcmp(words, "guard blind") == 0) {
		lease_guard_blind(g);
		return;
	}
	g->phase = GUARD_UP;
	g->heard = true;
	timer_arm(loop_of(g), &g->timer, beat_ms(g));
	/* It has read all lines that came before. */
	keeper_grant_farewell(&call->kept);
	lease_guard_up(g);
}

static size_t bytes(struct call *call, enum stream_id stream, const char *data, size_t len)
{
	via_keep_noise(&guard_of(call)->noise, data, len);
	return len;
}

static void changed(struct call *call)
{
	struct guard *g = guard_of(call);
	AUTO_TEXT struct text why = {0};

	if (call->ended) {
		via_describe_end(&why, call, &g->noise);
		lease_guard_ended(g, text_str(&why));
	} else if (call->over[STREAM_STDERR]) {
		/* It can say no more. */
		g->heard = false;
		timer_arm(loop_of(g), &g->timer, VIA_LINGER_MS);
	}
}

static const struct call_events events = {
	.mark = mark,
	.bytes = bytes,
	.changed = changed,
};

static void say(struct guard *g, const char *word)
{
	struct text line = {0};

	/* Without memory it is not said, and the beat goes unanswered. */
	if (text_printf(&line, "%s\n", word) == 0)
		call_send(&g->call, &line);
	text_done(&line);
}

/* The beat also keeps those in between from taking the call for an idle one. */
static void timer_fired(struct timer *timer)
{
	struct guard *g = container_of(timer, struct guard, timer);

	if (g->phase != GUARD_UP || !g->heard) {
		lease_guard_ended(g, "it does not answer");
		return;
	}
	g->heard = false;
	say(g, "beat");
	timer_arm(loop_of(g), timer, beat_ms(g));
}

int guard_call(struct lease *l, struct guard **ret, struct text *why)
{
	struct via *via = container_of(l, struct via, lease);
	const struct call_setup setup = {via->base.loop, via->keeper, via->prefix};
	struct guard *g = calloc(1, sizeof(*g));
	AUTO_TEXT struct text lines = {0};
	int err;

	if (!g)
		return text_fail(why, -ENOMEM, "no memory");
	g->lease = l;
	g->timer.fire = timer_fired;
	list_init(&g->link);
	err = random_hex(g->secret, MARK_SECRET_BYTES);
	if (err == 0)
		err = script_guard(&lines, g->secret, l->prefix, l->generation, l->seconds);
	if (err == 0)
		err = timer_arm(via->base.loop, &g->timer, VIA_GUARD_MS);
	if (err < 0)
		text_fail(why, err, "%s", strerror(-err));
	else
		err = call_start(&g->call, &setup, &events, g->secret, why);
	if (err < 0) {
		timer_cancel(&g->timer);
		free(g);
		return err;
	}
	call_send(&g->call, &lines);
	*ret = g;
	return 0;
}

void guard_dismiss(struct guard *g, bool kill)
{
	g->phase = GUARD_LEAVING;
	list_append(&g->lease->leaving, &g->link);
	say(g, kill ? "end" : "leave");
	call_close_input(&g->call);
	timer_arm(loop_of(g), &g->timer, VIA_LINGER_MS);
}

void guard_free(struct guard *g)
{
	list_remove(&g->link);
	timer_cancel(&g->timer);
	call_done(&g->call);
	text_done(&g->noise);
	explicit_bzero(g->secret, sizeof(g->secret));
	free(g);
}

/* A further call of the prefix for a command: one line there, one mark back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "random_hex.h"
#include "via.h"

static struct errand *errand_of(struct call *call)
{
	return container_of(call, struct errand, call);
}

static void mark(struct call *call, enum stream_id stream, const char *words)
{
	struct errand *e = errand_of(call);
	const char *last = strrchr(words, ' ');

	if (stream != STREAM_STDERR || !last || strlen(last + 1) >= sizeof(e->answer))
		return; /* "ready", on both */
	strcpy(e->answer, last + 1);
}

static size_t bytes(struct call *call, enum stream_id stream, const char *data, size_t len)
{
	via_keep_noise(&errand_of(call)->noise, data, len);
	return len;
}

static void changed(struct call *call)
{
	struct errand *e = errand_of(call);

	if (e->answer[0] || call_over(call))
		via_errand_done(e);
}

static const struct call_events events = {
	.mark = mark,
	.bytes = bytes,
	.changed = changed,
};

static void limit_fired(struct timer *timer)
{
	via_errand_done(container_of(timer, struct errand, limit));
}

/*
 * Whether the leader's session can be nobody else's: unless it is known to have ended, and nobody
 * knows what it has left, its number is its own, or a survivor's.
 */
static bool session_held(const struct via_command *c)
{
	return !call_over(&c->call) || c->phase != VIA_ENDED || c->left == VIA_LEFT_SOME ||
	       c->left == VIA_LEFT_HELD;
}

static int errand_line(struct text *ret, const struct errand *e)
{
	const struct via_command *c = e->owner;

	return e->kind == ERRAND_KILL
		       ? script_kill(ret, e->secret, c->mark, &c->place, session_held(c))
		       : script_signal(ret, e->secret, &c->place, e->signo);
}

int errand_start(struct via_command *c, enum errand_kind kind, int signo, struct errand **ret,
		 struct text *why)
{
	struct via *via = container_of(c->base.backend, struct via, base);
	const struct call_setup setup = {via->base.loop, via->keeper, via->prefix};
	struct errand *e = calloc(1, sizeof(*e));
	AUTO_TEXT struct text line = {0};
	int err;

	if (!e)
		return text_fail(why, -ENOMEM, "via: no memory for a call of the prefix");
	e->owner = c;
	e->kind = kind;
	e->signo = signo;
	e->limit.fire = limit_fired;
	err = random_hex(e->secret, MARK_SECRET_BYTES);
	if (err == 0)
		err = errand_line(&line, e);
	if (err < 0)
		text_fail(why, err, "via: cannot prepare a call of the prefix: %s", strerror(-err));
	else
		err = call_start(&e->call, &setup, &events, e->secret, why);
	if (err < 0) {
		free(e);
		return err;
	}
	call_send(&e->call, &line);
	timer_arm(via->base.loop, &e->limit, VIA_ERRAND_MS);
	list_append(&c->errands, &e->link);
	*ret = e;
	return 0;
}

void errand_free(struct errand *e)
{
	list_remove(&e->link);
	timer_cancel(&e->limit);
	call_done(&e->call);
	text_done(&e->noise);
	free(e);
}

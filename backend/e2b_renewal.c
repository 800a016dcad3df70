/* Keeping a sandbox alive: see e2b_control.h for what is set and what is only extended. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bounds.h"
#include "e2b_control.h"
#include "e2b_sandbox.h"
#include "log.h"

struct e2b_renewal {
	struct e2b_control control;
	struct e2b_sandbox *sandbox;
	bool idle; /* it is time, but nothing runs */
};

static void arm(struct e2b_sandbox *s, uint64_t seconds)
{
	timer_arm(s->e2b->base.loop, &s->renew_timer, seconds * 1000);
}

/* A third of the time to live: for the next renewal, and at most for the answer to one. */
static uint64_t third(const struct e2b_sandbox *s)
{
	return MAX(s->ttl_s / 3, 1u);
}

/*
 * As long as the server asks for, but not so long that the sandbox ends meanwhile: after a third
 * for the first try and a third for its answer there is time for another.
 */
static uint64_t retry_delay(const struct e2b_sandbox *s, const struct e2b_fault *fault)
{
	uint64_t delay = MIN(MAX(third(s) / 2, 1u), (uint64_t)E2B_RENEW_RETRY_S);

	return MIN(MAX(delay, fault->retry_after_s), third(s));
}

static void renewed(struct e2b_control *control, const struct e2b_fault *fault)
{
	struct e2b_renewal *r = container_of(control, struct e2b_renewal, control);
	struct e2b_sandbox *s = r->sandbox;

	if (fault)
		log_warning("e2b: sandbox %s was not kept alive, it may end within %llu s: %s",
			    s->id, (unsigned long long)s->ttl_s, fault->text);
	s->ttl_due = s->ttl_due && fault;
	if (!e2b_control_says_gone(control, fault))
		arm(s, fault ? retry_delay(s, fault) : third(s));
}

/* Sets it, for a sandbox of our own or by the option; otherwise only extends. */
static int renew(struct e2b_sandbox *s)
{
	bool set = s->owned || s->e2b->config.ttl_s;
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text body = {0};

	if (text_printf(&path, "/sandboxes/%s/%s", s->id, set ? "timeout" : "refreshes") < 0 ||
	    text_printf(&body, "{\"%s\":%llu}", set ? "timeout" : "duration",
			(unsigned long long)s->ttl_s) < 0)
		return -ENOMEM;
	s->renewal->control.limit_ms = MIN(third(s) * 1000, (uint64_t)E2B_CONTROL_LIMIT_MS);
	return e2b_control_begin(&s->renewal->control, "keeping the sandbox alive", "POST",
				 text_str(&path), text_str(&body));
}

static void timer_fired(struct timer *timer)
{
	struct e2b_sandbox *s = container_of(timer, struct e2b_sandbox, renew_timer);

	if (http_active(&s->renewal->control.call))
		return;
	s->renewal->idle = !s->owned && !s->commands && !s->ttl_due;
	if (!s->renewal->idle && renew(s) < 0)
		arm(s, 1);
}

void e2b_renewal_wake(struct e2b_sandbox *s)
{
	if (s->renewal && s->renewal->idle)
		arm(s, 0);
}

void e2b_renewal_start(struct e2b_sandbox *s)
{
	if (s->renewal || !e2b_config_has_control(&s->e2b->config))
		return;
	s->renewal = calloc(1, sizeof(*s->renewal));
	if (!s->renewal)
		return;
	s->renewal->sandbox = s;
	s->renewal->control.e2b = s->e2b;
	s->renewal->control.done = renewed;
	if (!s->ttl_s)
		s->ttl_s = s->e2b->config.ttl_s ? s->e2b->config.ttl_s : E2B_ATTACH_TTL_S;
	s->renew_timer.fire = timer_fired;
	/* The option is to hold from the start; what was just made or extended has time. */
	s->ttl_due = s->e2b->config.ttl_s && !s->owned;
	arm(s, s->ttl_due ? 0 : third(s));
}

void e2b_renewal_stop(struct e2b_sandbox *s)
{
	timer_cancel(&s->renew_timer);
	if (s->renewal)
		e2b_control_cancel(&s->renewal->control);
	free(s->renewal);
	s->renewal = NULL;
}

#include "e2b_fate.h"

#include <stdlib.h>

#include "e2b_control.h"
#include "e2b_sandbox.h"

struct e2b_fate {
	struct e2b_control control;
	struct e2b_sandbox *sandbox;
	struct list waiters;
	struct task task;
};

static void tell(struct e2b_fate *fate, bool gone)
{
	struct list now;

	list_init(&now);
	list_splice(&now, &fate->waiters);
	while (!list_empty(&now)) {
		struct e2b_fate_waiter *w = list_first(&now, struct e2b_fate_waiter, link);

		list_remove(&w->link);
		w->told(w, gone);
	}
}

static void control_done(struct e2b_control *c, const struct e2b_fault *fault)
{
	tell(container_of(c, struct e2b_fate, control), e2b_control_says_gone(c, fault));
}

static void run_task(struct task *task)
{
	struct e2b_fate *fate = container_of(task, struct e2b_fate, task);
	AUTO_TEXT struct text path = {0};

	if (list_empty(&fate->waiters) || http_active(&fate->control.call))
		return;
	if (!e2b_config_has_control(&fate->sandbox->e2b->config) ||
	    text_printf(&path, "/sandboxes/%s", fate->sandbox->id) < 0 ||
	    e2b_control_begin(&fate->control, "asking for the sandbox", "GET", text_str(&path),
			      NULL) < 0)
		tell(fate, false);
}

static struct e2b_fate *get(struct e2b_sandbox *s)
{
	if (s->fate)
		return s->fate;
	s->fate = calloc(1, sizeof(*s->fate));
	if (!s->fate)
		return NULL;
	s->fate->sandbox = s;
	s->fate->control.e2b = s->e2b;
	s->fate->control.done = control_done;
	list_init(&s->fate->waiters);
	task_init(&s->fate->task, run_task);
	return s->fate;
}

void e2b_fate_waiter_init(struct e2b_fate_waiter *w)
{
	list_init(&w->link);
}

void e2b_fate_ask(struct e2b_sandbox *s, struct e2b_fate_waiter *w)
{
	struct e2b_fate *fate = get(s);

	/* Without memory nothing is said; the owner's own timer asks again. */
	if (!fate)
		return;
	list_append(&fate->waiters, &w->link);
	loop_defer(s->e2b->base.loop, &fate->task);
}

void e2b_fate_cancel(struct e2b_fate_waiter *w)
{
	list_remove(&w->link);
}

void e2b_fate_free(struct e2b_fate *fate)
{
	if (!fate)
		return;
	e2b_control_cancel(&fate->control);
	task_cancel(&fate->task);
	free(fate);
}

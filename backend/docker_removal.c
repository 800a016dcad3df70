#include "docker_removal.h"

#include <errno.h>
#include <stdlib.h>

#include "bounds.h"
#include "log.h"

struct removal {
	struct list link;
	struct docker_removals *all;
	struct docker_call call;
	struct timer retry;
	unsigned tries;
	char *id;
};

static void ask(struct removal *removal);

void docker_removals_init(struct docker_removals *r, struct docker_api *api)
{
	*r = (struct docker_removals){.api = api};
	list_init(&r->list);
}

static void forget(struct removal *removal)
{
	struct docker_removals *r = removal->all;

	list_remove(&removal->link);
	docker_call_cancel(&removal->call);
	timer_cancel(&removal->retry);
	free(removal->id);
	free(removal);
	if (r->closing && list_empty(&r->list))
		loop_stop(r->api->loop);
}

static void removed(struct docker_call *call, int err)
{
	struct removal *removal = container_of(call, struct removal, call);
	AUTO_TEXT struct text why = {0};

	if (!err && (call->answer.status / 100 == 2 || call->answer.status == 404)) {
		forget(removal);
		return;
	}
	/* 409: it is being removed already, which may fail. */
	if (removal->tries++ < DOCKER_REMOVE_TRIES) {
		timer_arm(removal->all->api->loop, &removal->retry, DOCKER_REMOVE_RETRY_MS);
		return;
	}
	docker_why(call->api, err, &call->answer, &call->body, &why,
		   "docker: cannot remove the container of a command that has ended");
	log_warning("%s", text_str(&why));
	forget(removal);
}

static void ask(struct removal *removal)
{
	AUTO_TEXT struct text path = {0};

	text_printf(&path, "/containers/%s?force=1&v=1", removal->id);
	docker_call_start(&removal->call, removal->all->api, "DELETE", text_str(&path), NULL,
			  DOCKER_CALL_MS, removed);
}

static void retry_fired(struct timer *timer)
{
	ask(container_of(timer, struct removal, retry));
}

void docker_remove_later(struct docker_removals *r, const char *id)
{
	struct removal *removal = calloc(1, sizeof(*removal));

	if (removal)
		removal->id = strdup(id);
	if (!removal || !removal->id) {
		free(removal);
		return;
	}
	removal->all = r;
	removal->retry.fire = retry_fired;
	list_init(&removal->link);
	list_append(&r->list, &removal->link);
	ask(removal);
}

struct closing {
	struct timer timer;
	struct loop *loop;
};

static void closing_fired(struct timer *timer)
{
	loop_stop(container_of(timer, struct closing, timer)->loop);
}

void docker_removals_done(struct docker_removals *r)
{
	struct closing closing = {.timer = {.fire = closing_fired}};

	if (!r->api)
		return;
	closing.loop = r->api->loop;
	r->closing = true;
	if (!list_empty(&r->list)) {
		timer_arm(closing.loop, &closing.timer, DOCKER_CLOSE_MS);
		loop_run(closing.loop);
		timer_cancel(&closing.timer);
	}
	r->closing = false;
	list_for_each_safe (removal, &r->list, struct removal, link)
		forget(removal);
}

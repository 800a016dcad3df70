/*
 * A command in a container of its own, which is made for it and removed after it. The
 * container's first process is a shell that waits for the end of its input; the command is an exec
 * in it, as in docker_exec.c:
 *
 *   POST containers/create -> POST containers/ID/attach (hijacked) -> POST containers/ID/start
 *     -> an exec -> DELETE containers/ID
 *
 * The command is not the first process itself, since of that an engine tells the end only when it
 * has dropped what was left of its output; and since an exec has a process group of its own.
 *
 * The shell's input is the container's lifeline: when this daemon dies, the engine ends it, and
 * with its first process the container ends, too. Its labels say whose it is, so that the next
 * mount removes it.
 */
#include <errno.h>
#include <stdlib.h>

#include "bounds.h"
#include "docker.h"
#include "docker_body.h"
#include "docker_container.h"

/* ---- The lifeline ---- */

static void started(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, call);
	AUTO_TEXT struct text why = {0};

	if (!docker_container_has_started(call, err)) {
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot start a container");
		docker_container_refuse(c, err, text_str(&why));
		return;
	}
	if (docker_container_is_killed(c))
		return;
	err = docker_exec_make(c, &why);
	if (err < 0)
		docker_container_refuse(c, err, text_str(&why));
}

static void lifeline_answered(struct docker_stream *s, int err)
{
	struct docker_command *c = container_of(s, struct docker_command, lifeline);
	AUTO_TEXT struct text why = {0};

	if (!s->up) {
		err = docker_why(&c->docker->api, err, &s->answer, &s->body, &why,
				 "docker: cannot attach to a new container");
		docker_container_refuse(c, err, text_str(&why));
		return;
	}
	if (!docker_container_is_killed(c))
		docker_container_call(c, "POST", "/start", DOCKER_START_MS, started);
}

static size_t lifeline_output(struct docker_stream *s, enum stream_id id, const char *data,
			      size_t len)
{
	return len;
}

/* What that means for the command, its own stream tells. */
static void lifeline_ended(struct docker_stream *s, int err)
{
}

static const struct docker_stream_events lifeline_events = {
	.answered = lifeline_answered,
	.output = lifeline_output,
	.ended = lifeline_ended,
};

static void made(struct docker_command *c)
{
	int err = docker_container_attach(c, &c->lifeline, "stdin=1", &lifeline_events);

	if (err < 0)
		docker_container_refuse(c, err, "docker: out of memory");
}

static int begin(struct docker_command *c, struct text *why)
{
	AUTO_TEXT struct text body = {0};
	int err;

	c->timer.fire = docker_exec_timer_fired;
	c->output.reports = true;
	err = docker_room_body(c, &body);
	if (!err)
		docker_container_create(c, &body, made);
	return err;
}

/* ---- The end ---- */

/* No signal is to be sent any more. */
static void drop_helper(struct docker_command *c)
{
	if (!c->helper)
		return;
	docker_helper_done(c->helper);
	free(c->helper);
	c->helper = NULL;
}

/* What the command has left in its container is not to go on. */
static void finish(struct docker_command *c)
{
	drop_helper(c);
	docker_container_remove(c);
}

static void removed(struct docker_command *c)
{
	if (c->phase <= DOCKER_STARTING)
		exec_refused(c->base.exec, -ECANCELED, "docker: removed before it was started");
	else
		docker_exec_found_gone(c);
}

static void kill_command(struct docker_command *c)
{
	docker_command_abandon(c);
	drop_helper(c);
	/* While the container is being made, each step looks whether it is to go on. */
	if (c->id || c->phase > DOCKER_MAKING)
		docker_container_remove(c);
}

/* Only who wants to send one needs a helper in the container. */
static int signal_command(struct docker_command *c, int signo, struct text *why)
{
	if (c->killing)
		return text_fail(why, -ESRCH, "docker: the command is being killed");
	if (!c->helper) {
		c->helper = calloc(1, sizeof(*c->helper));
		if (!c->helper)
			return -ENOMEM;
		docker_helper_init(c->helper, &c->docker->api, c->container, NULL,
				   c->docker->prefix);
	}
	return docker_helper_signal(c->helper, &c->ask, c->mark, signo);
}

static void release(struct docker_command *c)
{
	drop_helper(c);
	docker_stream_close(&c->lifeline);
	docker_container_release(c);
}

const struct docker_kind docker_room_kind = {
	.begin = begin,
	.answered = docker_exec_answered,
	.ended = docker_exec_ended,
	.finish = finish,
	.removed = removed,
	.kill = kill_command,
	.signal = signal_command,
	.release = release,
};

/*
 * A command in a container without a shell: no helper can look after it there. Where the engine is
 * on this machine, its processes are found in our own /proc (docker_near.c); else nothing is done,
 * the command is never said to be gone, and the sentence says what can be done.
 */
#include <cjson/cJSON.h>
#include <errno.h>

#include "bounds.h"
#include "docker.h"
#include "docker_near.h"

static int64_t first_pid(const struct docker_call *call)
{
	cJSON *json = docker_call_json(call);
	const cJSON *state = cJSON_GetObjectItemCaseSensitive(json, "State");
	const cJSON *pid = cJSON_GetObjectItemCaseSensitive(state, "Pid");
	int64_t ret = cJSON_IsNumber(pid) ? pid->valueint : 0;

	cJSON_Delete(json);
	return ret;
}

static struct docker_near near_of(const struct docker_command *c)
{
	return (struct docker_near){
		.container = c->container,
		.mark = c->mark,
		.leader = c->ask.pid,
		.ticks = c->ask.ticks,
	};
}

/* Returns as docker_near_check(). Without the leader's number, its session cannot be told. */
static int look(struct docker_command *c, const struct docker_call *call)
{
	struct docker_near near = near_of(c);

	near.init = first_pid(call);
	if (!near.leader)
		return -EXDEV;
	return c->killing ? docker_near_kill(&near) : docker_near_check(&near);
}

static void kill_failed(struct docker_command *c, int found, bool paused)
{
	const char *container = c->docker->container;

	if (paused)
		exec_kill_failed(c->base.exec, -EBUSY,
				 "docker: cannot kill a command in %s: it is paused: unpause it",
				 container);
	else if (found > 0)
		exec_kill_failed(c->base.exec, -EBUSY,
				 "docker: processes of the command in %s survive SIGKILL: they may "
				 "wait for a device or a network file system",
				 container);
	else
		exec_kill_failed(
			c->base.exec, found,
			"docker: cannot kill a command in %s: it has no /bin/sh, and its "
			"processes cannot be seen from here (spawnfs is not root, or the engine "
			"is on another machine): stop the container, or use docker:image=IMAGE",
			container);
}

static void seen(struct docker_call *call, int err)
{
	struct docker_command *c = container_of(call, struct docker_command, container_call);
	bool paused;
	int found;

	if (docker_exec_container_stopped(c, call, err, &paused))
		return;
	if (err || call->answer.status != 200)
		found = -EIO;
	else
		found = look(c, call);
	if (found == 0)
		docker_exec_found_gone(c);
	else if (found > 0 && c->killing && !paused && c->asks++ < DOCKER_NEAR_LOOKS)
		timer_arm(c->docker->base.loop, &c->bare_timer, DOCKER_NEAR_LOOK_MS);
	else if (c->killing)
		kill_failed(c, found, paused);
}

static void ask(struct docker_command *c)
{
	AUTO_TEXT struct text path = {0};

	text_printf(&path, "/containers/%s/json", c->container);
	docker_call_start(&c->container_call, &c->docker->api, "GET", text_str(&path), NULL,
			  DOCKER_CALL_MS, seen);
}

/* What was killed ends in its own time. */
static void timer_fired(struct timer *timer)
{
	ask(container_of(timer, struct docker_command, bare_timer));
}

void docker_bare_ask(struct docker_command *c)
{
	timer_cancel(&c->bare_timer);
	c->bare_timer.fire = timer_fired;
	c->asks = 0;
	ask(c);
}

void docker_bare_leader(struct docker_command *c, int64_t pid)
{
	c->ask.pid = pid;
	c->ask.ticks = docker_near_ticks(c->container, pid);
}

int docker_bare_signal(struct docker_command *c, int signo, struct text *why)
{
	struct docker_near near = near_of(c);
	int err = docker_near_signal(&near, signo);

	if (err == -ESRCH)
		return text_fail(why, err, "docker: the command has ended");
	if (err < 0)
		return text_fail(
			why, -EOPNOTSUPP,
			"docker: the container %s has no /bin/sh, and its processes cannot be seen "
			"from here (spawnfs is not root, or the engine is on another machine): no "
			"signal can be sent",
			c->docker->container);
	return 0;
}

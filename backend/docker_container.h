/*
 * The container that is made for one command, c->container, and its end: what its two uses
 * (docker_room.c, docker_run.c) have in common. To remove it by force is to kill: nothing
 * escapes.
 */
#pragma once

#include <stdint.h>

#include "docker.h"

/*
 * Makes it: POST containers/create. ready() follows, in which c->container is set; or the command
 * is refused.
 */
void docker_container_create(struct docker_command *c, const struct text *body,
			     void (*ready)(struct docker_command *c));

/* A call about it in c->call: "POST", "/start". */
void docker_container_call(struct docker_command *c, const char *method, const char *what,
			   uint64_t timeout_ms, void (*done)(struct docker_call *call, int err));

/* Opens a raw stream to it: "stdin=1&stdout=1". Returns 0 or -ENOMEM. */
int docker_container_attach(struct docker_command *c, struct docker_stream *stream,
			    const char *what, const struct docker_stream_events *events);

/* Whether a call to start it was answered well. */
bool docker_container_has_started(const struct docker_call *call, int err);

/*
 * Kills all in it and removes it. kind->removed(c) follows; or exec_kill_failed(), or, of a
 * command that is not being killed, c->timer; of one that was refused, exec_refused().
 */
void docker_container_remove(struct docker_command *c);

/* It never ran: that is reported once its container is gone. */
void docker_container_refuse(struct docker_command *c, int err, const char *why);

/* Whether a kill has come in between; then nothing more is begun, and the command is refused. */
bool docker_container_is_killed(struct docker_command *c);

/* For kind->release: what is left of it is removed in its own time. */
void docker_container_release(struct docker_command *c);

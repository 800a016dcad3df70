/*
 * Removing the containers of ended commands: nobody waits for that, but the end of the
 * mount, for a while. What is not removed then is found by the next mount, by its label.
 */
#pragma once

#include "docker_call.h"
#include "list.h"

struct docker_removals {
	struct docker_api *api;
	struct list list; /* struct removal, docker_removal.c's own */
	bool closing;
};

void docker_removals_init(struct docker_removals *r, struct docker_api *api);

/* Runs the loop until all is removed, at most DOCKER_CLOSE_MS, and forgets the rest. */
void docker_removals_done(struct docker_removals *r);

/* Removes a container, by force, in its own time. */
void docker_remove_later(struct docker_removals *r, const char *id);

/*
 * Whose a container is: the label that names the daemon which made it, so that another can
 * tell whether that daemon still lives.
 */
#pragma once

#include <stdbool.h>

#include "text.h"

/* Appends the name of this process: "BOOT PIDNS PID START". Returns 0 or -errno. */
int docker_owner_print(struct text *ret);

/*
 * Whether the process of that name is certainly dead. Of another machine, another boot or
 * another PID name space that is not known.
 */
bool docker_owner_is_dead(const char *owner);

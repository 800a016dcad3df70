/*
 * A warden: the parent and subreaper of one command's tree, where no cgroup can hold
 * it together. It ends when no process of the tree is left, and kills the
 * tree when its keeper has died. Keeper and warden talk over a SOCK_SEQPACKET pair:
 * the keeper sends a signal's number for the leader's group, or WARDEN_KILL; the warden sends
 * the leader's status, as wait(2) has it. Each is one int32_t.
 */
#pragma once

#include <stdint.h>

#include "spawn.h"

#define WARDEN_KILL 0

/* Becomes the warden of a new command, in a fork of the keeper. socket is its end of the pair. */
_Noreturn void warden_run(int socket, struct spawn *spawn);

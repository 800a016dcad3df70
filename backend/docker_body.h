/* The JSON bodies that make an exec or a container. */
#pragma once

#include <stdbool.h>

#include "far_script.h"
#include "text.h"

struct docker_command;

/* The name of the variable that marks every process of a command (far_script.h). */
#define DOCKER_MARK "SPAWNFS_EXEC"

/* The labels of a container that was made for a command: whose it is, and its mark. */
#define DOCKER_OWNER_LABEL "spawnfs.owner"
#define DOCKER_EXEC_LABEL "spawnfs.exec"

/*
 * A shell that says which process it is, and then becomes what the first line of its
 * input says.
 */
#define DOCKER_READY "echo \"$SPAWNFS_EXEC $$\"; " FAR_READ_LINE

/*
 * Appends what makes the exec of a shell, for a helper: root's with every privilege, or a
 * user's (NULL: the container's own). Returns 0 or -ENOMEM.
 */
int docker_shell_body(struct text *ret, const char *mark, const char *user, bool privileged);

/*
 * Appends what makes an exec for a command: the command itself, or where there is a shell, the
 * shell that becomes it. Returns 0, or -errno with a sentence: -EOPNOTSUPP, what the engine
 * cannot be told.
 */
int docker_exec_body(const struct docker_command *c, struct text *ret, struct text *why);

/* Likewise what makes a container whose first process is the command, without a shell. */
int docker_run_body(const struct docker_command *c, struct text *ret, struct text *why);

/* Appends what makes a container for an exec, which ends with its input. Returns 0 or -ENOMEM. */
int docker_room_body(const struct docker_command *c, struct text *ret);

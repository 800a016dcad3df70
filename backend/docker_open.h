/* What a mount asks the engine before it is up, and a spec before it is started. */
#pragma once

#include "docker.h"

/*
 * Meets the engine: which API they share, whether the container runs and has a shell.
 * Blocks: runs the loop, on which nothing else is yet. Returns 0 or -errno with a sentence.
 */
int docker_meet(struct docker *docker, struct text *why);

/* backend_ops.check */
int docker_check(struct docker *docker, const struct spec *spec, struct text *why);

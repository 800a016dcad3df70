/*
 * What an engine says when a command could not be started: text for people, in a few
 * known forms (runc and crun, under Docker and Podman), and what it means.
 */
#pragma once

#include <stdbool.h>

struct docker_failure {
	/* -ENOENT, -EACCES, -ENOTDIR, -E2BIG; -EIO when the text is of no known form. */
	int err;
	/* It is about the program itself; else about cwd, user or the engine. */
	bool program;
};

struct docker_failure docker_failure_parse(const char *text);

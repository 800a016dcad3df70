/*
 * What the files of the e2b backend share: the backend itself and what it knows
 * of one sandbox. All state belongs to the loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"
#include "e2b_codec.h"
#include "e2b_config.h"
#include "http.h"
#include "list.h"

/* Where envd listens in a sandbox. */
#define E2B_ENVD_PORT 49983

struct e2b_sandbox;

struct e2b {
	struct backend base;
	struct http *http;
	struct e2b_config config;
	struct list sandboxes;
	struct e2b_sandbox *sandbox; /* the mount's own; NULL: each spec names one */
	bool created;		     /* delete it at the end */
	struct list released;	     /* commands to free: see e2b_command.c */
	struct task free_task;
};

extern const struct backend_ops e2b_backend;

static inline struct e2b *e2b_of(struct backend *backend)
{
	return container_of(backend, struct e2b, base);
}

/* Why a call has no good answer. */
struct e2b_fault {
	int err;		/* -errno, as a writer of spec should see it */
	int status;		/* of HTTP; 0: there was no answer */
	bool unsure;		/* the call may have been acted upon */
	bool sandbox_gone;	/* the sandbox does not run any more */
	unsigned retry_after_s; /* 0: not said */
	struct e2b_error error; /* as the server put it */
	char text[640];		/* a sentence: what was asked of what, and the answer */
};

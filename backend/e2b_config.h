/*
 * Where E2B is and who we are there: from the environment, as E2B's own SDKs read it, and
 * from a file of the same NAME=VALUE lines named by the option `credentials`, which
 * wins. Nothing here may be logged but URLs and the domain.
 */
#pragma once

#include <stdbool.h>

#include "backend.h"
#include "text.h"

struct e2b_config {
	char *api_key;	    /* E2B_API_KEY; NULL: none */
	char *access_token; /* E2B_ACCESS_TOKEN: a bearer token for the control plane */
	char *envd_token; /* E2B_ENVD_ACCESS_TOKEN: for a sandbox, when no control plane is asked */
	char *domain;	  /* E2B_DOMAIN, "e2b.app" */
	char *api_url;	  /* E2B_API_URL, "https://api.DOMAIN" */
	char *sandbox_url; /* E2B_SANDBOX_URL; NULL: made from the domain */
	bool debug;	   /* E2B_DEBUG=true: envd on this machine, no control plane */
	char *ca_file;	   /* option ca; NULL: the system's certificates */
	unsigned ttl_s;	   /* option ttl: set exactly this time to live; 0: see e2b_control.h */
};

/*
 * Reads the options of the mount and what they and the environment lead to. Returns 0
 * or -errno with a sentence: an unknown option, a file that others may read.
 */
int e2b_config_load(struct e2b_config *config, const struct backend_args *args, struct text *why);
void e2b_config_done(struct e2b_config *config);

/* Whether the control plane can be asked: there is a key or a token, and it is not debug mode. */
bool e2b_config_has_control(const struct e2b_config *config);

/* The base URL of a sandbox's envd. domain: as the control plane said, or NULL. Heap, or NULL. */
char *e2b_sandbox_url(const struct e2b_config *config, const char *id, const char *domain);

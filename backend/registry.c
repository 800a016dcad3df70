/* The targets that a mount can have. */
#include <string.h>

#include "backend.h"

extern const struct backend_ops docker_backend;
extern const struct backend_ops e2b_backend;
extern const struct backend_ops fake_backend;
extern const struct backend_ops local_backend;
extern const struct backend_ops ssh_backend;
extern const struct backend_ops via_backend;

const struct backend_ops *const backends[] = {
	&local_backend, &e2b_backend, &ssh_backend, &via_backend, &docker_backend,
#ifdef WITH_FAKE
	&fake_backend,
#endif
	NULL,
};

const struct backend_ops *backend_find(const char *target, const char **address)
{
	const char *colon = strchr(target, ':');

	if (!colon)
		return NULL;
	for (size_t i = 0; backends[i]; i++) {
		size_t len = strlen(backends[i]->scheme);

		if (len != (size_t)(colon - target) ||
		    memcmp(backends[i]->scheme, target, len) != 0)
			continue;
		*address = colon + 1;
		return backends[i];
	}
	return NULL;
}

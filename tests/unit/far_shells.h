/* The shells that can be a /bin/sh on the far side: what is tested of the far scripts runs by each.
 */
#pragma once

#include <stddef.h>

#define MARK "0123456789abcdef0123456789abcdef"

static const char *const shells[][4] = {
	{"dash", NULL},
	{"bash", "--posix", NULL},
	{"busybox", "sh", NULL},
};

/* The one that runs now. */
static const char *const *shell;

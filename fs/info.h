/* .spawnfs: files about the mount. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mount;

extern const unsigned info_count;
const char *info_name(unsigned i);

/* The length of what the file says now. */
uint64_t info_size(struct mount *m, unsigned i);

/* Marks that nobody can guess: what tells our processes and our lines from all others. */
#pragma once

#include <stddef.h>

/* The most digits at a time: as many bytes getrandom(2) gives whole, without being interrupted. */
#define RANDOM_HEX_MAX 256

/* Writes that many random lower-case hex digits and a NUL. Returns 0 or -EIO. */
int random_hex(char *ret, size_t digits);

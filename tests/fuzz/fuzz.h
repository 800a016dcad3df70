/* What every fuzz target has: its entry, which libFuzzer calls, and what it insists on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs the target on one input. Returns 0 (LLVM, "libFuzzer", Fuzz target). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the run, with the input as a finding, where something does not hold. */
static inline void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

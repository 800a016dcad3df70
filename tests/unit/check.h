/*
 * The whole test framework: CHECK() ends the program with the place and the
 * text of what did not hold. Each test file is one program.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,          \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_INT(got, wanted)                                                                     \
	do {                                                                                       \
		long long got_ = (long long)(got);                                                 \
		long long wanted_ = (long long)(wanted);                                           \
		if (got_ != wanted_) {                                                             \
			fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__,  \
				#got, got_, #wanted, wanted_);                                     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_STR(got, wanted)                                                                     \
	do {                                                                                       \
		const char *got_ = (got);                                                          \
		const char *wanted_ = (wanted);                                                    \
		if (strcmp(got_, wanted_) != 0) {                                                  \
			fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__,   \
				#got, got_, wanted_);                                              \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Names what the checks that follow are about, for the log of a failure. */
#define RUN(test)                                                                                  \
	do {                                                                                       \
		printf("%s\n", #test);                                                             \
		fflush(stdout);                                                                    \
		test();                                                                            \
	} while (0)

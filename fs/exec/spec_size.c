/* Sizes as people write them: 65536, 64K, 1M. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "spec.h"

/* The power of two that a suffix stands for, or -EINVAL. */
static int suffix_shift(const char *s)
{
	static const char suffixes[] = "KMGT";
	const char *found;

	if (!*s)
		return 0;
	found = strchr(suffixes, toupper((unsigned char)*s));
	if (!found || s[1])
		return -EINVAL;
	return (int)(found - suffixes + 1) * 10;
}

int size_parse(const char *s, uint64_t *ret)
{
	uint64_t number = 0;
	int shift;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*s - '0'), &number))
			return -EINVAL;
	shift = suffix_shift(s);
	if (shift < 0 || number > UINT64_MAX >> shift)
		return -EINVAL;
	*ret = number << shift;
	return 0;
}

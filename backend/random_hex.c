#include "random_hex.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

int random_hex(char *ret, size_t digits)
{
	unsigned char bytes[RANDOM_HEX_MAX];

	if (digits > sizeof(bytes) || getrandom(bytes, digits, 0) != (ssize_t)digits)
		return -EIO;
	for (size_t i = 0; i < digits; i++)
		ret[i] = "0123456789abcdef"[bytes[i] & 15];
	ret[digits] = '\0';
	return 0;
}

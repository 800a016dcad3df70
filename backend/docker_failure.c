#include "docker_failure.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "util.h"

/* The reasons, as the kernel's strerror() and Go's exec.LookPath() word them. */
static int reason(const char *text)
{
	static const struct {
		const char *words;
		int err;
	} reasons[] = {
		{"not found in $PATH", -ENOENT},  {"no such file or directory", -ENOENT},
		{"no matching entries", -ENOENT}, {"unable to find", -ENOENT},
		{"not a directory", -ENOTDIR},	  {"permission denied", -EACCES},
		{"is a directory", -EACCES},	  {"argument list too long", -E2BIG},
		{"exec format error", -ENOEXEC},
	};

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (strcasestr(text, reasons[i].words))
			return reasons[i].err;
	return -EIO;
}

struct docker_failure docker_failure_parse(const char *text)
{
	static const char *const others[] = {
		"chdir to",    /* chdir to cwd ("/x") set in config.json failed */
		"working dir", /* workdir "/x" does not exist on container */
		"workdir",	  "mkdir", "unable to find user", "unable to find group",
		"in passwd file",
	};
	struct docker_failure failure = {.err = reason(text)};

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (strcasestr(text, others[i]))
			return failure;
	/* exec: "nosuch": executable file not found; exec /x: exec format error; crun's own words
	 */
	failure.program = failure.err != -EIO && failure.err != -E2BIG &&
			  (strstr(text, "exec: ") || strstr(text, "exec /") ||
			   strstr(text, "executable file"));
	return failure;
}

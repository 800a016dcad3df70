/* The files of an exec's directory, as a table. */
#include "node.h"

#include <string.h>

#include "util.h"

static const struct {
	const char *name;
	mode_t mode;
} files[FILE_KINDS] = {
	[FILE_SPEC] = {"spec", 0666},	  [FILE_STDIN] = {"stdin", 0222},
	[FILE_STDOUT] = {"stdout", 0444}, [FILE_STDERR] = {"stderr", 0444},
	[FILE_EXIT] = {"exit", 0444},	  [FILE_STATUS] = {"status", 0444},
	[FILE_CTL] = {"ctl", 0222},	  [FILE_OWNER] = {"owner", 0444},
};

const char *node_name(enum file_kind kind)
{
	return files[kind].name;
}

enum file_kind node_find(const char *name)
{
	for (int i = FILE_SPEC; i < FILE_KINDS; i++)
		if (strcmp(files[i].name, name) == 0)
			return (enum file_kind)i;
	return FILE_DIR;
}

mode_t node_mode(enum file_kind kind)
{
	return files[kind].mode;
}

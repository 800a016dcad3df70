/* The line on stderr for a program that cannot be run: the same on every target. */
#include <errno.h>
#include <string.h>

#include "backend.h"

struct line {
	char *at;
	char *end;
};

static void put(struct line *line, const char *s, size_t max)
{
	for (size_t i = 0; s[i] && i < max && line->at < line->end; i++) {
		unsigned char c = (unsigned char)s[i];

		/* It stays one line, whatever the name. */
		*line->at++ = c < ' ' || c == 0x7f ? '?' : (char)c;
	}
}

size_t program_error_line(char *buf, size_t size, const char *program, int err)
{
	struct line line = {buf, buf + size};
	const char *reason = strerrordesc_np(-err);

	if (err == -ENOENT && !strchr(program, '/'))
		reason = "command not found";
	put(&line, "spawnfs: ", SIZE_MAX);
	/* The reason must not be pushed out by a long name. */
	put(&line, program, size > 128 ? size - 128 : 0);
	put(&line, ": ", SIZE_MAX);
	put(&line, reason ? reason : "unknown error", SIZE_MAX);
	return (size_t)(line.at - buf);
}

/*
 * Where a spec ends. A frame looks at each byte once and keeps a few words of
 * state; whether what it frames is valid is for spec_parse() to say. It bounds
 * the depth, because cJSON recurses, and refuses NUL, because C strings end there.
 */
#include <errno.h>
#include <string.h>

#include "bounds.h"
#include "spec.h"

/* White space of JSON (RFC 8259, section 2). */
static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int open_bracket(struct frame *f, struct text *why)
{
	if (f->depth == SPEC_DEPTH_MAX)
		return text_fail(why, -EINVAL, "spec: nested deeper than %d levels",
				 SPEC_DEPTH_MAX);
	f->depth++;
	return 0;
}

static void close_bracket(struct frame *f)
{
	f->depth--;
	f->complete = f->depth == 0;
}

static void feed_string(struct frame *f, char c)
{
	if (f->escaped)
		f->escaped = false;
	else if (c == '\\')
		f->escaped = true;
	else if (c == '"')
		f->in_string = false;
}

static int feed_json(struct frame *f, char c, struct text *why)
{
	if (f->in_string)
		feed_string(f, c);
	else if (f->complete)
		return is_space(c)
			       ? 0
			       : text_fail(why, -EINVAL,
					   "spec: there is more after the end of the JSON value");
	else if (c == '"')
		f->in_string = true;
	else if (c == '{' || c == '[')
		return open_bracket(f, why);
	else if (c == '}' || c == ']')
		close_bracket(f);
	return 0;
}

static enum frame_kind kind_of(char c)
{
	return c == '{' || c == '[' ? FRAME_JSON : FRAME_SHELL;
}

int frame_feed(struct frame *f, const char *data, size_t len, struct text *why)
{
	int err = 0;

	if (len && memchr(data, '\0', len))
		return text_fail(why, -EINVAL, "spec: contains a NUL byte");
	for (size_t i = 0; i < len && !err; i++) {
		if (f->kind == FRAME_EMPTY && !is_space(data[i]))
			f->kind = kind_of(data[i]);
		if (f->kind == FRAME_SHELL)
			break;
		if (f->kind == FRAME_JSON)
			err = feed_json(f, data[i], why);
	}
	return err;
}

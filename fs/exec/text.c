/*
 * Growing byte strings. A text that moves to a larger place overwrites the old
 * one: any text may hold a secret, and a freed block would keep it.
 */
#include "text.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"

#define CAPACITY_FIRST 64

void text_done(struct text *t)
{
	free(t->data);
	*t = (struct text){0};
}

void text_wipe(struct text *t)
{
	if (t->data)
		explicit_bzero(t->data, t->capacity);
	text_done(t);
}

/* Makes place for len more bytes and the NUL. */
static int make_place(struct text *t, size_t len)
{
	size_t capacity = t->capacity ? t->capacity : CAPACITY_FIRST;
	char *data;

	if (len > TEXT_BYTES_MAX - t->len)
		return -E2BIG;
	if (t->len + len < t->capacity)
		return 0;
	while (capacity <= t->len + len)
		capacity *= 2;
	data = malloc(capacity);
	if (!data)
		return -ENOMEM;
	if (t->data) {
		memcpy(data, t->data, t->len + 1);
		explicit_bzero(t->data, t->len);
		free(t->data);
	}
	t->data = data;
	t->capacity = capacity;
	t->data[t->len] = '\0';
	return 0;
}

int text_append(struct text *t, const void *data, size_t len)
{
	int err = make_place(t, len);

	if (err < 0)
		return err;
	if (len)
		memcpy(t->data + t->len, data, len);
	t->len += len;
	t->data[t->len] = '\0';
	return 0;
}

int text_vprintf(struct text *t, const char *fmt, va_list args)
{
	va_list again;
	int len;
	int err;

	va_copy(again, args);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (len < 0)
		return -ENOMEM;
	err = make_place(t, (size_t)len);
	if (err < 0)
		return err;
	vsnprintf(t->data + t->len, (size_t)len + 1, fmt, args);
	t->len += (size_t)len;
	return 0;
}

int text_printf(struct text *t, const char *fmt, ...)
{
	va_list args;
	int err;

	va_start(args, fmt);
	err = text_vprintf(t, fmt, args);
	va_end(args);
	return err;
}

int text_fail(struct text *t, int err, const char *fmt, ...)
{
	struct text sentence = {0};
	va_list args;

	if (!t)
		return err;
	/* Built aside: an argument may point into the text that is replaced. */
	va_start(args, fmt);
	text_vprintf(&sentence, fmt, args);
	va_end(args);
	text_done(t);
	*t = sentence;
	return err;
}

static bool is_between(unsigned char c, unsigned char low, unsigned char high)
{
	return c >= low && c <= high;
}

/*
 * The length of the printable character at p: 0 when there is none. RFC 3629, section 4, less
 * the control characters U+0000 to U+001F and U+007F to U+009F: terminals act on them.
 */
static size_t printable_length(const unsigned char *p, size_t len)
{
	unsigned char low = 0x80;
	unsigned char high = 0xbf;
	size_t tail;

	if (is_between(p[0], 0x20, 0x7e))
		return 1;
	if (is_between(p[0], 0xc2, 0xdf))
		tail = 1;
	else if (is_between(p[0], 0xe0, 0xef))
		tail = 2;
	else if (is_between(p[0], 0xf0, 0xf4))
		tail = 3;
	else
		return 0;
	if (len <= tail)
		return 0;
	if (p[0] == 0xc2 || p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (!is_between(p[1], low, high))
		return 0;
	for (size_t i = 2; i <= tail; i++)
		if (!is_between(p[i], 0x80, 0xbf))
			return 0;
	return tail + 1;
}

int text_append_printable(struct text *t, const char *data, size_t len)
{
	const unsigned char *p = (const unsigned char *)data;
	size_t before = t->len;
	int err = 0;

	for (size_t i = 0, n; i < len && !err; i += n) {
		n = printable_length(p + i, len - i);
		if (n) {
			err = text_append(t, p + i, n);
		} else {
			err = text_printf(t, "\\x%02x", p[i]);
			n = 1;
		}
	}
	if (err < 0 && t->data) {
		t->len = before;
		t->data[before] = '\0';
	}
	return err;
}

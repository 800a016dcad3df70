/*
 * A growing byte string. Zero-initialised is empty and valid; data is NULL or
 * NUL-terminated, and len never counts that NUL. It never grows past the limit
 * TEXT_BYTES_MAX: then, as when memory runs out, the append fails and the text
 * stays as it was.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "util.h"

struct text {
	char *data;
	size_t len;
	size_t capacity;
};

/* Releases the bytes; the text is empty and usable afterwards. */
void text_done(struct text *t);

/* As text_done(), but overwrites the bytes first: for texts that held secrets. */
void text_wipe(struct text *t);

/* Appends len bytes. Returns 0, -ENOMEM or -E2BIG. */
int text_append(struct text *t, const void *data, size_t len);

/* Appends a formatted string. Returns 0, -ENOMEM or -E2BIG. */
int text_printf(struct text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
int text_vprintf(struct text *t, const char *fmt, va_list args) PRINTF_LIKE(2, 0);

/*
 * Replaces the text by a formatted sentence and returns err: for the line that
 * fails with an error and says why. t may be NULL.
 */
int text_fail(struct text *t, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/*
 * Appends len bytes made fit for a person and for JSON: control bytes and what
 * is not UTF-8 (RFC 3629) become \xNN. Returns 0, -ENOMEM or -E2BIG.
 */
int text_append_printable(struct text *t, const char *data, size_t len);

/* The text as a C string, "" when empty. Owned by the text. */
static inline const char *text_str(const struct text *t)
{
	return t->data ? t->data : "";
}

static inline void cleanup_text(struct text *t)
{
	text_done(t);
}

#define AUTO_TEXT __attribute__((cleanup(cleanup_text)))

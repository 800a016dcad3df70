#include "docker_http.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bounds.h"

/* A line and what stands behind it; the line may end in CRLF or, leniently, LF. */
struct line {
	const char *at;
	size_t len;  /* without its end */
	size_t used; /* with its end; 0: it has not come to its end */
};

static struct line next_line(const char *data, size_t len)
{
	struct line line = {.at = data};
	const char *end = memchr(data, '\n', len);

	if (!end)
		return line;
	line.used = (size_t)(end - data) + 1;
	line.len = line.used - 1;
	if (line.len && data[line.len - 1] == '\r')
		line.len--;
	return line;
}

/* "HTTP/1.1 101 UPGRADED" */
static int parse_status(struct line line)
{
	const char *s = line.at;

	if (line.len < 12 || memcmp(s, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)s[7]) ||
	    s[8] != ' ' || (line.len > 12 && s[12] != ' '))
		return -EBADMSG;
	for (int i = 9; i < 12; i++)
		if (!isdigit((unsigned char)s[i]))
			return -EBADMSG;
	if (s[9] == '0')
		return -EBADMSG;
	return (s[9] - '0') * 100 + (s[10] - '0') * 10 + (s[11] - '0');
}

/* Digits of a base and nothing else, at most 15 of them so that nothing overflows. */
static int parse_number(const char *s, size_t len, int base, uint64_t *ret)
{
	char digits[16];

	if (!len || len >= sizeof(digits))
		return -EBADMSG;
	memcpy(digits, s, len);
	digits[len] = '\0';
	if (strspn(digits, base == 16 ? "0123456789abcdefABCDEF" : "0123456789") != len)
		return -EBADMSG;
	*ret = strtoull(digits, NULL, base);
	return 0;
}

static bool is_header(struct line line, const char *name, const char **value, size_t *value_len)
{
	size_t len = strlen(name);

	if (line.len <= len || line.at[len] != ':' || strncasecmp(line.at, name, len) != 0)
		return false;
	*value = line.at + len + 1;
	*value_len = line.len - len - 1;
	while (*value_len && (**value == ' ' || **value == '\t')) {
		(*value)++;
		(*value_len)--;
	}
	return true;
}

static int parse_header(struct docker_answer *a, struct line line)
{
	const char *value;
	size_t len;

	if (!memchr(line.at, ':', line.len))
		return -EBADMSG;
	if (is_header(line, "Content-Length", &value, &len)) {
		a->sized = true;
		return parse_number(value, len, 10, &a->length);
	}
	if (is_header(line, "Transfer-Encoding", &value, &len)) {
		a->chunked = len == 7 && strncasecmp(value, "chunked", len) == 0;
		return a->chunked ? 0 : -EBADMSG;
	}
	if (is_header(line, "Api-Version", &value, &len) && len < sizeof(a->api_version)) {
		memcpy(a->api_version, value, len);
		a->api_version[len] = '\0';
	}
	if (is_header(line, "Libpod-Api-Version", &value, &len))
		a->libpod = true;
	return 0;
}

/* Parses the whole head, which is known to be there. */
static int parse_head(struct docker_answer *a, const char *data, size_t len)
{
	struct line line = next_line(data, len);
	int status = parse_status(line);
	int err;

	if (status < 0)
		return status;
	*a = (struct docker_answer){0};
	for (size_t at = line.used; at < len; at += line.used) {
		line = next_line(data + at, len - at);
		if (!line.len)
			break;
		err = parse_header(a, line);
		if (err < 0)
			return err;
	}
	a->status = status;
	a->left = a->sized && !a->chunked ? a->length : 0;
	/* RFC 9112, 6.3: these never have a body, whatever the headers say. */
	if (status / 100 == 1 || status == 204 || status == 304)
		a->complete = true;
	if (a->sized && !a->chunked && !a->length)
		a->complete = true;
	return 0;
}

ssize_t docker_answer_head(struct docker_answer *a, const char *data, size_t len)
{
	size_t at = 0;
	int err;

	for (;;) {
		struct line line = next_line(data + at, len - at);

		if (!line.used)
			return len > DOCKER_HEAD_BYTES_MAX ? -E2BIG : 0;
		at += line.used;
		if (at > DOCKER_HEAD_BYTES_MAX)
			return -E2BIG;
		if (!line.len)
			break;
	}
	err = parse_head(a, data, at);
	return err < 0 ? err : (ssize_t)at;
}

static int append(struct text *body, const char *data, size_t len)
{
	if (body->len + len > DOCKER_BODY_BYTES_MAX)
		return -E2BIG;
	return text_append(body, data, len);
}

/* The line before a chunk, with its length; or one of the lines behind the last. */
static int chunk_line(struct docker_answer *a, struct line line)
{
	size_t digits = 0;
	int err;

	if (a->after_chunk) {
		a->after_chunk = false;
		return line.len ? -EBADMSG : 0;
	}
	if (a->in_trailer) {
		a->complete = !line.len;
		return 0;
	}
	while (digits < line.len && line.at[digits] != ';' && line.at[digits] != ' ')
		digits++;
	err = parse_number(line.at, digits, 16, &a->left);
	if (err < 0)
		return err;
	a->in_trailer = !a->left;
	return 0;
}

static ssize_t chunked_body(struct docker_answer *a, const char *data, size_t len,
			    struct text *body)
{
	size_t at = 0;
	int err;

	while (at < len && !a->complete) {
		size_t take = (size_t)MIN((uint64_t)(len - at), a->left);

		if (take) {
			err = append(body, data + at, take);
			at += take;
			a->left -= take;
			a->after_chunk = !a->left;
		} else {
			struct line line = next_line(data + at, len - at);

			if (!line.used)
				return len - at > DOCKER_HEAD_BYTES_MAX ? -E2BIG : (ssize_t)at;
			err = chunk_line(a, line);
			at += line.used;
		}
		if (err < 0)
			return err;
	}
	return (ssize_t)at;
}

ssize_t docker_answer_body(struct docker_answer *a, const char *data, size_t len, struct text *body)
{
	size_t take = len;
	int err;

	if (a->complete)
		return 0;
	if (a->chunked)
		return chunked_body(a, data, len, body);
	if (a->sized)
		take = (size_t)MIN((uint64_t)len, a->left);
	err = append(body, data, take);
	if (err < 0)
		return err;
	if (a->sized) {
		a->left -= take;
		a->complete = !a->left;
	}
	return (ssize_t)take;
}

int docker_answer_end(struct docker_answer *a)
{
	if (!a->status || (!a->complete && (a->chunked || a->sized)))
		return -ECONNRESET;
	a->complete = true;
	return 0;
}

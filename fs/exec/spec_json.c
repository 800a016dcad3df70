/*
 * cJSON 1.7 decides what the structure is. Before it, one pass over the text
 * refuses what it lets through: any control byte as white space, 01 and 1. as numbers,
 * \u with something else than hex digits (it becomes NUL), \u0000 (it ends the string).
 * After it, keys given twice.
 */
#include "spec_json.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* cJSON copies a number into a buffer of 64 bytes and takes what is beyond for the next token. */
#define NUMBER_BYTES_MAX 62
#define NAME_BYTES_SHOWN 64

struct scan {
	const char *start;
	const char *p;
	const char *end;
	struct text *why;
};

static int refuse(const struct scan *s, const char *reason)
{
	return text_fail(s->why, -EINVAL, "spec: not valid JSON at byte %zu: %s",
			 (size_t)(s->p - s->start) + 1, reason);
}

static const char *skip_digits(const char *p)
{
	while (isdigit((unsigned char)*p))
		p++;
	return p;
}

/* RFC 8259, section 6. The text ends with a NUL, so that looking one ahead is safe. */
static int scan_number(struct scan *s)
{
	const char *begin = s->p;
	const char *p = begin + (*begin == '-');
	const char *digits = p;

	p = skip_digits(p);
	if (p == digits || (*digits == '0' && p > digits + 1))
		return refuse(s, "a number begins with a digit, and with 0 only when that is all");
	if (*p == '.') {
		digits = ++p;
		p = skip_digits(p);
		if (p == digits)
			return refuse(s, "a number needs a digit after its point");
	}
	if (*p == 'e' || *p == 'E') {
		p++;
		p += *p == '+' || *p == '-';
		digits = p;
		p = skip_digits(p);
		if (p == digits)
			return refuse(s, "a number needs a digit in its exponent");
	}
	if (p - begin > NUMBER_BYTES_MAX)
		return refuse(s, "the number is too long");
	if (*p && strchr("+-.0123456789eE", *p))
		return refuse(s, "the number goes on after its end");
	s->p = p;
	return 0;
}

/* At the backslash of an escape. cJSON checks the rest, also that surrogates come in pairs. */
static int scan_escape(struct scan *s)
{
	const char *hex = s->p + 2;

	if (s->p[1] != 'u') {
		s->p += 2;
		return 0;
	}
	for (int i = 0; i < 4; i++)
		if (!isxdigit((unsigned char)hex[i]))
			return refuse(s, "\\u needs four hex digits");
	if (strncmp(hex, "0000", 4) == 0)
		return refuse(s, "a string cannot hold a NUL (\\u0000)");
	s->p += 6;
	return 0;
}

static int scan_string(struct scan *s)
{
	int err = 0;

	s->p++;
	while (s->p < s->end && *s->p != '"' && !err) {
		if (*s->p == '\\')
			err = scan_escape(s);
		else
			s->p++;
	}
	s->p++;
	return err;
}

static int scan(struct scan *s)
{
	int err = 0;

	while (s->p < s->end && !err) {
		char c = *s->p;

		if (c == '"')
			err = scan_string(s);
		else if (c == '-' || isdigit((unsigned char)c))
			err = scan_number(s);
		else if ((unsigned char)c < ' ' && !strchr("\t\n\r", c))
			err = refuse(s, "a control byte outside of a string");
		else
			s->p++;
	}
	return err;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, because a spec may hold 100 000 names and its author may be hostile. */
static int check_names(const cJSON *object, struct text *why)
{
	size_t count = (size_t)cJSON_GetArraySize(object);
	AUTO_FREE const char **names = NULL;
	AUTO_TEXT struct text name = {0};
	const cJSON *member;
	size_t n = 0;

	if (count < 2)
		return 0;
	names = calloc(count, sizeof(*names));
	if (!names)
		return text_fail(why, -ENOMEM, "spec: out of memory");
	cJSON_ArrayForEach (member, object)
		names[n++] = member->string;
	qsort(names, count, sizeof(*names), compare_names);
	for (size_t i = 1; i < count; i++) {
		if (strcmp(names[i - 1], names[i]) == 0) {
			json_quote(&name, names[i]);
			return text_fail(why, -EINVAL, "spec: key %s is given twice",
					 text_str(&name));
		}
	}
	return 0;
}

/* Recursive, as deep as the frame allows. */
static int check_objects(const cJSON *value, struct text *why)
{
	const cJSON *member;
	int err = cJSON_IsObject(value) ? check_names(value, why) : 0;

	cJSON_ArrayForEach (member, value) {
		if (err < 0)
			break;
		if (member->child)
			err = check_objects(member, why);
	}
	return err;
}

static int parse_text(const struct text *text, cJSON **ret, struct text *why)
{
	const char *stop = NULL;
	cJSON *value = cJSON_ParseWithLengthOpts(text->data, text->len + 1, &stop, true);

	if (!value)
		return text_fail(why, -EINVAL, "spec: not valid JSON at byte %zu",
				 stop ? (size_t)(stop - text->data) + 1 : text->len);
	*ret = value;
	return 0;
}

int json_parse(const char *data, size_t len, cJSON **ret, struct text *why)
{
	struct text copy = {0}; /* with the NUL that cJSON and the scan rely on */
	cJSON *value = NULL;
	int err = text_append(&copy, data, len);

	if (err < 0) {
		text_fail(why, err, "spec: out of memory");
	} else {
		struct scan s = {copy.data, copy.data, copy.data + copy.len, why};

		err = scan(&s);
		if (!err)
			err = parse_text(&copy, &value, why);
		if (!err)
			err = check_objects(value, why);
	}
	text_wipe(&copy);
	if (err < 0)
		json_free(value);
	else
		*ret = value;
	return err;
}

static void wipe(cJSON *value)
{
	cJSON *member;

	if (value->valuestring)
		explicit_bzero(value->valuestring, strlen(value->valuestring));
	cJSON_ArrayForEach (member, value)
		wipe(member);
}

void json_free(cJSON *value)
{
	if (value)
		wipe(value);
	cJSON_Delete(value);
}

const char *json_kind(const cJSON *value)
{
	switch (value->type & 0xff) {
	case cJSON_False:
		return "false";
	case cJSON_True:
		return "true";
	case cJSON_NULL:
		return "null";
	case cJSON_Number:
		return "a number";
	case cJSON_String:
		return "a string";
	case cJSON_Array:
		return "an array";
	default:
		return "an object";
	}
}

void json_quote(struct text *t, const char *name)
{
	size_t len = strlen(name);

	text_append(t, "\"", 1);
	text_append_printable(t, name, MIN(len, (size_t)NAME_BYTES_SHOWN));
	if (len > NAME_BYTES_SHOWN)
		text_append(t, "...", 3);
	text_append(t, "\"", 1);
}

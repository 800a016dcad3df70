/*
 * From the text of a spec to the command it describes. One function takes each
 * key; a table says which.
 */
#include "spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "spec_json.h"
#include "spec_limits.h"

/* Beyond 2^53 - 1 a double skips integers: what is read may not be what was written. */
#define INTEGER_LIMIT 9007199254740991.0

static int no_memory(struct text *why)
{
	return text_fail(why, -ENOMEM, "spec: out of memory");
}

static int wrong_type(const char *key, const char *wanted, const cJSON *value, struct text *why)
{
	return text_fail(why, -EINVAL, "spec: key \"%s\" must be %s, not %s", key, wanted,
			 json_kind(value));
}

/* Whether the value is an integer from low to high, both within INTEGER_LIMIT. */
static bool is_integer(const cJSON *value, double low, double high)
{
	double number = value->valuedouble;

	return cJSON_IsNumber(value) && number >= low && number <= high &&
	       (double)(int64_t)number == number;
}

/* ---- cmd ---- */

static int make_argv(struct spec *spec, size_t argc, struct text *why)
{
	spec->argv = calloc(argc + 1, sizeof(*spec->argv));
	return spec->argv ? 0 : no_memory(why);
}

static int add_argument(struct spec *spec, const char *data, size_t len, struct text *why)
{
	char *argument = strndup(data, len);

	if (!argument)
		return no_memory(why);
	spec->argv[spec->argc++] = argument;
	return 0;
}

static bool is_blank(const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr(" \t\n\r\v\f", data[i]))
			return false;
	return true;
}

static int take_shell(struct spec *spec, const char *data, size_t len, struct text *why)
{
	int err;

	if (is_blank(data, len))
		return text_fail(why, -EINVAL, "spec: key \"cmd\" is an empty command");
	spec->shell = true;
	err = make_argv(spec, 4, why);
	if (!err)
		err = add_argument(spec, "/bin/sh", strlen("/bin/sh"), why);
	if (!err)
		err = add_argument(spec, "-c", strlen("-c"), why);
	/* Else sh would take such a command for another of its options. */
	if (!err && (data[0] == '-' || data[0] == '+'))
		err = add_argument(spec, "--", strlen("--"), why);
	return err ? err : add_argument(spec, data, len, why);
}

static int take_array(struct spec *spec, const cJSON *array, struct text *why)
{
	const cJSON *item;
	int err = make_argv(spec, (size_t)cJSON_GetArraySize(array), why);

	cJSON_ArrayForEach (item, array) {
		if (err < 0)
			return err;
		if (!cJSON_IsString(item))
			return text_fail(why, -EINVAL,
					 "spec: key \"cmd\" must hold strings only, but item %zu "
					 "is %s",
					 spec->argc, json_kind(item));
		err = add_argument(spec, item->valuestring, strlen(item->valuestring), why);
	}
	if (err < 0)
		return err;
	if (!spec->argc || !*spec->argv[0])
		return text_fail(why, -EINVAL, "spec: key \"cmd\" names no program: %s",
				 spec->argc ? "its first string is empty" : "it is an empty array");
	return 0;
}

static int take_cmd(struct spec *spec, const cJSON *value, struct text *why)
{
	if (cJSON_IsArray(value))
		return take_array(spec, value, why);
	if (cJSON_IsString(value))
		return take_shell(spec, value->valuestring, strlen(value->valuestring), why);
	return wrong_type("cmd", "an array of strings or a string", value, why);
}

/* ---- env ---- */

static int check_variable_name(const char *name, struct text *why)
{
	AUTO_TEXT struct text quoted = {0};

	if (!*name)
		return text_fail(why, -EINVAL, "spec: key \"env\" has a variable without a name");
	if (!strchr(name, '='))
		return 0;
	json_quote(&quoted, name);
	return text_fail(why, -EINVAL, "spec: key \"env\": the name %s must not contain \"=\"",
			 text_str(&quoted));
}

static int bad_variable(const char *name, const char *reason, struct text *why)
{
	AUTO_TEXT struct text quoted = {0};

	json_quote(&quoted, name);
	return text_fail(why, -EINVAL, "spec: key \"env\": variable %s %s", text_str(&quoted),
			 reason);
}

/* *ret is NULL for a variable to unset. */
static int variable_value(const cJSON *v, char **ret, struct text *why)
{
	char *value;

	if (cJSON_IsNull(v) || cJSON_IsFalse(v)) {
		*ret = NULL;
		return 0;
	}
	if (cJSON_IsString(v)) {
		value = strdup(v->valuestring);
	} else if (cJSON_IsNumber(v)) {
		if (!is_integer(v, -INTEGER_LIMIT, INTEGER_LIMIT))
			return bad_variable(v->string,
					    "is a number that is not an exact integer: write it as "
					    "a string",
					    why);
		if (asprintf(&value, "%lld", (long long)v->valuedouble) < 0)
			value = NULL;
	} else {
		return bad_variable(v->string,
				    "must be a string or an integer, or false or null to unset it",
				    why);
	}
	if (!value)
		return no_memory(why);
	*ret = value;
	return 0;
}

static int take_env(struct spec *spec, const cJSON *object, struct text *why)
{
	const cJSON *item;

	if (!cJSON_IsObject(object))
		return wrong_type("env", "an object", object, why);
	spec->env = calloc((size_t)cJSON_GetArraySize(object) + 1, sizeof(*spec->env));
	if (!spec->env)
		return no_memory(why);
	cJSON_ArrayForEach (item, object) {
		struct spec_variable *v = &spec->env[spec->env_count];
		int err = check_variable_name(item->string, why);

		if (!err)
			err = variable_value(item, &v->value, why);
		if (err < 0)
			return err;
		spec->env_count++;
		v->name = strdup(item->string);
		if (!v->name)
			return no_memory(why);
	}
	return 0;
}

/* ---- The others ---- */

static int take_string(const char *key, const cJSON *value, char **ret, struct text *why)
{
	char *s;

	if (!cJSON_IsString(value))
		return wrong_type(key, "a string", value, why);
	if (!*value->valuestring)
		return text_fail(why, -EINVAL, "spec: key \"%s\" must not be empty", key);
	s = strdup(value->valuestring);
	if (!s)
		return no_memory(why);
	*ret = s;
	return 0;
}

static int take_cwd(struct spec *spec, const cJSON *value, struct text *why)
{
	return take_string("cwd", value, &spec->cwd, why);
}

static int take_user(struct spec *spec, const cJSON *value, struct text *why)
{
	return take_string("user", value, &spec->user, why);
}

static int take_sandbox(struct spec *spec, const cJSON *value, struct text *why)
{
	return take_string("sandbox", value, &spec->sandbox, why);
}

static bool is_word(const cJSON *value, const char *word)
{
	return cJSON_IsString(value) && strcmp(value->valuestring, word) == 0;
}

static int take_stderr(struct spec *spec, const cJSON *value, struct text *why)
{
	if (is_word(value, "passthrough"))
		spec->stderr_mode = SPEC_STDERR_PASSTHROUGH;
	else if (is_word(value, "merged"))
		spec->stderr_mode = SPEC_STDERR_MERGED;
	else
		return wrong_type("stderr", "\"passthrough\" or \"merged\"", value, why);
	return 0;
}

static int take_stdin(struct spec *spec, const cJSON *value, struct text *why)
{
	if (is_word(value, "auto"))
		spec->stdin_mode = SPEC_STDIN_AUTO;
	else if (is_word(value, "none"))
		spec->stdin_mode = SPEC_STDIN_NONE;
	else if (is_word(value, "open"))
		spec->stdin_mode = SPEC_STDIN_OPEN;
	else
		return wrong_type("stdin", "\"auto\", \"none\" or \"open\"", value, why);
	return 0;
}

static int take_pty(struct spec *spec, const cJSON *value, struct text *why)
{
	const cJSON *item;

	spec->pty = true;
	spec->pty_rows = PTY_ROWS_DEFAULT;
	spec->pty_cols = PTY_COLS_DEFAULT;
	if (cJSON_IsTrue(value))
		return 0;
	if (!cJSON_IsObject(value))
		return wrong_type("pty", "true or {\"rows\":R,\"cols\":C}", value, why);
	cJSON_ArrayForEach (item, value) {
		bool rows = strcmp(item->string, "rows") == 0;

		if (!rows && strcmp(item->string, "cols") != 0)
			return text_fail(why, -EINVAL,
					 "spec: key \"pty\" knows only \"rows\" and \"cols\"");
		if (!is_integer(item, 1, PTY_SIZE_MAX))
			return text_fail(why, -EINVAL,
					 "spec: key \"pty\": \"%s\" must be an integer from 1 to "
					 "%d",
					 item->string, PTY_SIZE_MAX);
		*(rows ? &spec->pty_rows : &spec->pty_cols) = (unsigned)item->valuedouble;
	}
	if (cJSON_GetArraySize(value) != 2)
		return text_fail(why, -EINVAL,
				 "spec: key \"pty\" needs both \"rows\" and \"cols\"");
	return 0;
}

static int take_timeout(struct spec *spec, const cJSON *value, struct text *why)
{
	double ms;

	if (!cJSON_IsNumber(value))
		return wrong_type("timeout", "a number of seconds", value, why);
	if (!(value->valuedouble > 0 && value->valuedouble <= TIMEOUT_SECONDS_MAX))
		return text_fail(why, -EINVAL,
				 "spec: key \"timeout\" must be more than 0 and at most %lld "
				 "seconds: leave it out for no limit",
				 (long long)TIMEOUT_SECONDS_MAX);
	ms = value->valuedouble * 1000;
	/* Rounded up: 0 would mean that there is none. */
	spec->timeout_ms = (uint64_t)ms + ((double)(uint64_t)ms < ms);
	return 0;
}

static int take_limits(struct spec *spec, const cJSON *value, struct text *why)
{
	return spec_limits_take(&spec->limits, value, why);
}

static int take_retain(struct spec *spec, const cJSON *value, struct text *why)
{
	uint64_t retain;

	if (is_integer(value, 0, (double)RETAIN_BYTES_MAX))
		retain = (uint64_t)value->valuedouble;
	else if (!cJSON_IsString(value) || size_parse(value->valuestring, &retain) < 0)
		return text_fail(why, -EINVAL,
				 "spec: key \"retain\" must be a number of bytes up to %llu or a "
				 "size such as \"16M\"",
				 (unsigned long long)RETAIN_BYTES_MAX);
	if (retain < RETAIN_BYTES_MIN || retain > RETAIN_BYTES_MAX)
		return text_fail(why, -EINVAL,
				 "spec: key \"retain\" must be from %llu to %llu bytes, not %llu",
				 (unsigned long long)RETAIN_BYTES_MIN,
				 (unsigned long long)RETAIN_BYTES_MAX, (unsigned long long)retain);
	spec->retain = retain;
	return 0;
}

/* ---- The whole ---- */

static const struct key {
	const char *name;
	enum spec_key key;
	int (*take)(struct spec *spec, const cJSON *value, struct text *why);
} keys[] = {
	{"cmd", SPEC_KEY_CMD, take_cmd},	  {"env", SPEC_KEY_ENV, take_env},
	{"cwd", SPEC_KEY_CWD, take_cwd},	  {"stderr", SPEC_KEY_STDERR, take_stderr},
	{"stdin", SPEC_KEY_STDIN, take_stdin},	  {"user", SPEC_KEY_USER, take_user},
	{"pty", SPEC_KEY_PTY, take_pty},	  {"timeout", SPEC_KEY_TIMEOUT, take_timeout},
	{"limits", SPEC_KEY_LIMITS, take_limits}, {"sandbox", SPEC_KEY_SANDBOX, take_sandbox},
	{"retain", SPEC_KEY_RETAIN, take_retain},
};

const char *spec_key_name(unsigned set)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (set & keys[i].key)
			return keys[i].name;
	return "";
}

static int unknown_key(const char *name, struct text *why)
{
	AUTO_TEXT struct text quoted = {0};
	AUTO_TEXT struct text known = {0};

	json_quote(&quoted, name);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		text_printf(&known, "%s%s", i ? ", " : "", keys[i].name);
	return text_fail(why, -EINVAL, "spec: unknown key %s: the keys are %s", text_str(&quoted),
			 text_str(&known));
}

static int take_member(struct spec *spec, const cJSON *value, struct text *why)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (strcmp(value->string, keys[i].name) == 0) {
			spec->keys |= keys[i].key;
			return keys[i].take(spec, value, why);
		}
	}
	return unknown_key(value->string, why);
}

static int take_object(struct spec *spec, const cJSON *object, struct text *why)
{
	const cJSON *member;

	cJSON_ArrayForEach (member, object) {
		int err = take_member(spec, member, why);

		if (err < 0)
			return err;
	}
	if (!(spec->keys & SPEC_KEY_CMD))
		return text_fail(why, -EINVAL, "spec: key \"cmd\" is missing: it says what to run");
	return 0;
}

static int parse_json(struct spec *spec, const char *data, size_t len, struct text *why)
{
	cJSON *value = NULL;
	int err = json_parse(data, len, &value, why);

	if (err < 0)
		return err;
	if (cJSON_IsArray(value)) {
		spec->keys = SPEC_KEY_CMD;
		err = take_array(spec, value, why);
	} else {
		err = take_object(spec, value, why);
	}
	json_free(value);
	return err;
}

static int parse_shell(struct spec *spec, const char *data, size_t len, struct text *why)
{
	spec->keys = SPEC_KEY_CMD;
	if (len && data[len - 1] == '\n')
		len--;
	return take_shell(spec, data, len, why);
}

int spec_parse(const char *data, size_t len, struct spec **ret, struct text *why)
{
	struct spec *spec = calloc(1, sizeof(*spec));
	struct frame frame = {0};
	int err;

	if (!spec)
		return no_memory(why);
	err = frame_feed(&frame, data, len, why);
	if (!err && frame.kind == FRAME_JSON && !frame.complete)
		err = text_fail(why, -EINVAL, "spec: the JSON ends before its last bracket");
	else if (!err && frame.kind == FRAME_JSON)
		err = parse_json(spec, data, len, why);
	else if (!err)
		err = parse_shell(spec, data, len, why);
	if (err < 0)
		spec_free(spec);
	else
		*ret = spec;
	return err;
}

static void variable_free(struct spec_variable *v)
{
	if (v->value)
		explicit_bzero(v->value, strlen(v->value));
	free(v->value);
	free(v->name);
}

void spec_free(struct spec *spec)
{
	if (!spec)
		return;
	for (size_t i = 0; i < spec->argc; i++)
		free(spec->argv[i]);
	free(spec->argv);
	for (size_t i = 0; i < spec->env_count; i++)
		variable_free(&spec->env[i]);
	free(spec->env);
	free(spec->cwd);
	free(spec->user);
	free(spec->sandbox);
	free(spec);
}

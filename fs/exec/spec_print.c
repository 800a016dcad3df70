/* A spec as its file shows it: what was accepted, without the values of env. */
#include <cjson/cJSON.h>
#include <errno.h>

#include "spec.h"
#include "spec_limits.h"

#define REDACTED "[REDACTED]"

/* Takes over item, also when it is NULL for want of memory. */
static bool put(cJSON *object, const char *name, cJSON *item)
{
	if (item && cJSON_AddItemToObjectCS(object, name, item))
		return true;
	cJSON_Delete(item);
	return false;
}

/* The strings of a spec outlive the tree: it refers to them. */
static bool put_string(cJSON *object, const char *name, const char *s)
{
	return put(object, name, cJSON_CreateStringReference(s));
}

static bool put_argv(cJSON *object, const struct spec *spec)
{
	cJSON *argv = cJSON_CreateArray();

	for (size_t i = 0; argv && i < spec->argc; i++) {
		cJSON *item = cJSON_CreateStringReference(spec->argv[i]);

		if (!item || !cJSON_AddItemToArray(argv, item)) {
			cJSON_Delete(item);
			cJSON_Delete(argv);
			return false;
		}
	}
	return put(object, "cmd", argv);
}

static bool put_env(cJSON *object, const struct spec *spec)
{
	cJSON *env = cJSON_CreateObject();

	for (size_t i = 0; env && i < spec->env_count; i++) {
		const struct spec_variable *v = &spec->env[i];
		cJSON *item = v->value ? cJSON_CreateStringReference(REDACTED) : cJSON_CreateNull();

		if (!put(env, v->name, item)) {
			cJSON_Delete(env);
			return false;
		}
	}
	return put(object, "env", env);
}

static bool put_pty(cJSON *object, const struct spec *spec)
{
	cJSON *pty = cJSON_CreateObject();

	return put(object, "pty", pty) && cJSON_AddNumberToObject(pty, "rows", spec->pty_rows) &&
	       cJSON_AddNumberToObject(pty, "cols", spec->pty_cols);
}

static const char *stdin_word(enum spec_stdin mode)
{
	switch (mode) {
	case SPEC_STDIN_NONE:
		return "none";
	case SPEC_STDIN_OPEN:
		return "open";
	case SPEC_STDIN_AUTO:
		break;
	}
	return "auto";
}

static bool put_all(cJSON *o, const struct spec *s)
{
	bool merged = s->stderr_mode == SPEC_STDERR_MERGED;

	/* The shell's command stands last in argv, whatever options come before it. */
	return (s->shell ? put_string(o, "cmd", s->argv[s->argc - 1]) : put_argv(o, s)) &&
	       (!(s->keys & SPEC_KEY_ENV) || put_env(o, s)) &&
	       (!s->cwd || put_string(o, "cwd", s->cwd)) &&
	       (!(s->keys & SPEC_KEY_STDERR) ||
		put_string(o, "stderr", merged ? "merged" : "passthrough")) &&
	       (!(s->keys & SPEC_KEY_STDIN) || put_string(o, "stdin", stdin_word(s->stdin_mode))) &&
	       (!s->user || put_string(o, "user", s->user)) && (!s->pty || put_pty(o, s)) &&
	       (!s->timeout_ms ||
		cJSON_AddNumberToObject(o, "timeout", (double)s->timeout_ms / 1000)) &&
	       (!(s->keys & SPEC_KEY_LIMITS) || spec_limits_put(&s->limits, o)) &&
	       (!s->sandbox || put_string(o, "sandbox", s->sandbox)) &&
	       (!(s->keys & SPEC_KEY_RETAIN) ||
		cJSON_AddNumberToObject(o, "retain", (double)s->retain));
}

int spec_print(const struct spec *spec, struct text *ret)
{
	cJSON *object = cJSON_CreateObject();
	AUTO_FREE char *printed = NULL;

	if (object && put_all(object, spec))
		printed = cJSON_PrintUnformatted(object);
	cJSON_Delete(object);
	return printed ? text_printf(ret, "%s\n", printed) : -ENOMEM;
}

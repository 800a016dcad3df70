#include "docker_body.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "docker.h"

static bool add_string(cJSON *array, const char *value)
{
	cJSON *item = cJSON_CreateString(value);

	if (!item || !cJSON_AddItemToArray(array, item)) {
		cJSON_Delete(item);
		return false;
	}
	return true;
}

static bool add_shell(cJSON *cmd)
{
	return add_string(cmd, "/bin/sh") && add_string(cmd, "-c") && add_string(cmd, DOCKER_READY);
}

static bool add_command(cJSON *cmd, const struct spec *spec)
{
	for (size_t i = 0; i < spec->argc; i++)
		if (!add_string(cmd, spec->argv[i]))
			return false;
	return true;
}

static int add_assignment(cJSON *env, const char *name, const char *value)
{
	AUTO_TEXT struct text entry = {0};
	int err = text_printf(&entry, "%s=%s", name, value);

	if (!err && !add_string(env, text_str(&entry)))
		err = -ENOMEM;
	text_wipe(&entry);
	return err;
}

/*
 * An entry without "=" unsets, in Docker; Podman takes such a variable from its own
 * environment, and any runtime puts HOME back.
 */
static int add_unset(const struct docker_command *c, cJSON *env, const char *name, struct text *why)
{
	if (c->docker->api.podman || strcmp(name, "HOME") == 0)
		return text_fail(why, -EOPNOTSUPP,
				 "spec: key \"env\": %s cannot be unset on the target %s", name,
				 c->base.backend->target);
	return add_string(env, name) ? 0 : -ENOMEM;
}

/* The shell sets what a shell can: then the values need not be UTF-8. */
static int add_variables(const struct docker_command *c, cJSON *env, struct text *why)
{
	const struct spec *spec = c->spec;
	int err = add_assignment(env, DOCKER_MARK, c->mark);

	for (size_t i = 0; i < spec->env_count && !err; i++) {
		const struct spec_variable *v = &spec->env[i];

		if (c->output.reports && far_can_set(v->name))
			continue;
		if (v->value)
			err = add_assignment(env, v->name, v->value);
		else
			err = add_unset(c, env, v->name, why);
	}
	return err;
}

/* cJSON keeps copies of env values: they are overwritten before they are freed. */
static void wipe(cJSON *array)
{
	cJSON *item;

	cJSON_ArrayForEach (item, array) {
		if (item->valuestring)
			explicit_bzero(item->valuestring, strlen(item->valuestring));
	}
}

static void delete (cJSON *json)
{
	wipe(cJSON_GetObjectItemCaseSensitive(json, "Env"));
	cJSON_Delete(json);
}

/* Prints and deletes. */
static int print(cJSON *json, struct text *ret)
{
	char *printed = cJSON_PrintUnformatted(json);
	int err = printed ? text_append(ret, printed, strlen(printed)) : -ENOMEM;

	if (printed)
		explicit_bzero(printed, strlen(printed));
	cJSON_free(printed);
	delete (json);
	return err;
}

/* What an exec and a container are told alike. */
static cJSON *attached(bool input)
{
	cJSON *json = cJSON_CreateObject();

	if (cJSON_AddBoolToObject(json, "AttachStdin", input) &&
	    cJSON_AddTrueToObject(json, "AttachStdout") &&
	    cJSON_AddTrueToObject(json, "AttachStderr") && cJSON_AddFalseToObject(json, "Tty"))
		return json;
	cJSON_Delete(json);
	return NULL;
}

int docker_shell_body(struct text *ret, const char *mark, const char *user, bool privileged)
{
	cJSON *json = attached(true);
	cJSON *cmd = cJSON_AddArrayToObject(json, "Cmd");
	cJSON *env = cJSON_AddArrayToObject(json, "Env");
	bool ok = json && cmd && env && add_shell(cmd) &&
		  add_assignment(env, DOCKER_MARK, mark) == 0 &&
		  cJSON_AddStringToObject(json, "WorkingDir", "/");

	if (ok && privileged)
		ok = cJSON_AddTrueToObject(json, "Privileged") &&
		     cJSON_AddStringToObject(json, "User", "0");
	else if (ok && user)
		ok = cJSON_AddStringToObject(json, "User", user);
	if (!ok) {
		delete (json);
		return -ENOMEM;
	}
	return print(json, ret);
}

static int fill(const struct docker_command *c, cJSON *json, struct text *why)
{
	const struct spec *spec = c->spec;
	cJSON *cmd = cJSON_AddArrayToObject(json, "Cmd");
	cJSON *env = cJSON_AddArrayToObject(json, "Env");
	bool shell = c->output.reports;

	if (!cmd || !env || !(shell ? add_shell(cmd) : add_command(cmd, spec)))
		return -ENOMEM;
	if (!shell && spec->cwd && !cJSON_AddStringToObject(json, "WorkingDir", spec->cwd))
		return -ENOMEM;
	if (spec->user && !cJSON_AddStringToObject(json, "User", spec->user))
		return -ENOMEM;
	return add_variables(c, env, why);
}

static bool needs_input(const struct docker_command *c)
{
	return c->output.reports || c->spec->stdin_mode != SPEC_STDIN_NONE;
}

int docker_exec_body(const struct docker_command *c, struct text *ret, struct text *why)
{
	cJSON *json = attached(needs_input(c));
	int err = json ? fill(c, json, why) : -ENOMEM;

	if (err < 0) {
		delete (json);
		return err;
	}
	return print(json, ret);
}

/* The image's own entrypoint would run instead, if the first word were not one. */
static bool make_entrypoint(cJSON *json)
{
	cJSON *entrypoint = cJSON_AddArrayToObject(json, "Entrypoint");
	cJSON *cmd = cJSON_GetObjectItemCaseSensitive(json, "Cmd");

	return entrypoint && cJSON_AddItemToArray(entrypoint, cJSON_DetachItemFromArray(cmd, 0));
}

/* own: processes in the container that are not the command's. */
static bool add_limits(const struct spec_limits *limits, unsigned own, cJSON *host)
{
	cJSON *item;

	if (limits->memory &&
	    !(cJSON_AddNumberToObject(host, "Memory", (double)limits->memory) &&
	      /* No swap on top: the limit is the limit. */
	      cJSON_AddNumberToObject(host, "MemorySwap", (double)limits->memory)))
		return false;
	if (limits->pids && !cJSON_AddNumberToObject(host, "PidsLimit", (double)limits->pids + own))
		return false;
	if (limits->cpu_milli &&
	    !cJSON_AddNumberToObject(host, "NanoCpus", (double)limits->cpu_milli * 1e6))
		return false;
	if (!limits->nofile)
		return true;
	item = cJSON_CreateObject();
	return cJSON_AddItemToArray(cJSON_AddArrayToObject(host, "Ulimits"), item) &&
	       cJSON_AddStringToObject(item, "Name", "nofile") &&
	       cJSON_AddNumberToObject(item, "Soft", (double)limits->nofile) &&
	       cJSON_AddNumberToObject(item, "Hard", (double)limits->nofile);
}

/* Nothing of it is kept: no log, no volume. */
static bool add_host_config(const struct docker_command *c, bool room, cJSON *json)
{
	cJSON *host = cJSON_AddObjectToObject(json, "HostConfig");
	cJSON *log = cJSON_AddObjectToObject(host, "LogConfig");

	/*
	 * An init reaps the orphans. Where the command is the first process, it would hide that the
	 * program is missing.
	 */
	return host && log && cJSON_AddStringToObject(log, "Type", "none") &&
	       cJSON_AddBoolToObject(host, "Init", room) &&
	       add_limits(&c->spec->limits, room ? DOCKER_ROOM_PROCESSES : 0, host) &&
	       (!c->docker->network ||
		cJSON_AddStringToObject(host, "NetworkMode", c->docker->network));
}

static bool add_labels(const struct docker_command *c, cJSON *json)
{
	cJSON *labels = cJSON_AddObjectToObject(json, "Labels");

	return labels && cJSON_AddStringToObject(labels, DOCKER_OWNER_LABEL, c->docker->owner) &&
	       cJSON_AddStringToObject(labels, DOCKER_EXEC_LABEL, c->mark);
}

static bool add_container(const struct docker_command *c, bool room, bool input, cJSON *json)
{
	return make_entrypoint(json) && cJSON_AddStringToObject(json, "Image", c->docker->image) &&
	       cJSON_AddBoolToObject(json, "OpenStdin", input) &&
	       cJSON_AddTrueToObject(json, "StdinOnce") && add_host_config(c, room, json) &&
	       add_labels(c, json);
}

int docker_run_body(const struct docker_command *c, struct text *ret, struct text *why)
{
	cJSON *json = attached(needs_input(c));
	int err = json ? fill(c, json, why) : -ENOMEM;

	if (!err && !add_container(c, false, needs_input(c), json))
		err = -ENOMEM;
	if (err < 0) {
		delete (json);
		return err;
	}
	return print(json, ret);
}

int docker_room_body(const struct docker_command *c, struct text *ret)
{
	cJSON *json = attached(true);
	cJSON *cmd = cJSON_AddArrayToObject(json, "Cmd");

	if (!json || !cmd || !add_string(cmd, "/bin/sh") || !add_string(cmd, "-c") ||
	    !add_string(cmd, FAR_READ "spawnfs_line") || !add_container(c, true, true, json)) {
		delete (json);
		return -ENOMEM;
	}
	return print(json, ret);
}

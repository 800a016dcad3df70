#include "docker_open.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "docker_body.h"
#include "docker_owner.h"
#include "log.h"

/* The API this was written for; an engine with another minimum or maximum is met there. */
#define API_MINOR 41

/* A call or a question, waited for. */
struct meeting {
	struct docker *docker;
	struct docker_call call;
	struct docker_ensure ensure;
	struct text *why;
	int err;
};

static void called(struct docker_call *call, int err)
{
	struct meeting *m = container_of(call, struct meeting, call);

	m->err = err;
	loop_stop(m->docker->base.loop);
}

static void ensured(struct docker_ensure *ensure, int err, const char *sentence)
{
	struct meeting *m = container_of(ensure, struct meeting, ensure);

	m->err = err;
	if (err < 0)
		text_printf(m->why, "%s", sentence);
	loop_stop(m->docker->base.loop);
}

/* Returns the answer's JSON when it is what was asked for, else NULL and *err with why. */
static cJSON *get(struct meeting *m, const char *path, int *err, struct text *why, const char *what)
{
	cJSON *json;

	docker_call_start(&m->call, &m->docker->api, "GET", path, NULL, DOCKER_CALL_MS, called);
	*err = loop_run(m->docker->base.loop);
	if (*err < 0)
		return NULL;
	json = m->err ? NULL : docker_call_json(&m->call);
	if (json && m->call.answer.status == 200)
		return json;
	cJSON_Delete(json);
	*err = docker_why(&m->docker->api, m->err, &m->call.answer, &m->call.body, why, what);
	return NULL;
}

/* The minor number of "1.41". */
static int minor(const cJSON *json, const char *key)
{
	const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
	int value;

	return version && sscanf(version, "1.%d", &value) == 1 ? value : API_MINOR;
}

static bool is_podman(const cJSON *version)
{
	const cJSON *part;

	cJSON_ArrayForEach (part, cJSON_GetObjectItemCaseSensitive(version, "Components")) {
		const char *name =
			cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(part, "Name"));

		if (name && strcasestr(name, "podman"))
			return true;
	}
	return false;
}

static int agree_on_version(struct meeting *m, struct text *why)
{
	struct docker_api *api = &m->docker->api;
	int err;
	cJSON *json = get(m, "/version", &err, why, "docker: cannot reach the engine");

	if (!json)
		return err;
	snprintf(api->version, sizeof(api->version), "1.%d",
		 MAX(minor(json, "MinAPIVersion"), MIN(minor(json, "ApiVersion"), API_MINOR)));
	api->podman = is_podman(json);
	cJSON_Delete(json);
	return 0;
}

static int find_container(struct meeting *m, struct text *why)
{
	struct docker *docker = m->docker;
	int err;

	docker_helper_init(&docker->helper, &docker->api, docker->container, NULL, docker->prefix);
	m->ensure.done = ensured;
	m->why = why;
	docker_helper_ensure(&docker->helper, &m->ensure);
	err = loop_run(docker->base.loop);
	if (docker->helper.no_shell)
		docker->base.caveat = "the container has no /bin/sh: signals and kills work only "
				      "where the engine is on this machine and spawnfs is root";
	return err ? err : m->err;
}

static int find_image(struct meeting *m, struct text *why)
{
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text what = {0};
	int err = text_printf(&path, "/images/%s/json", m->docker->image);
	cJSON *json;

	if (!err)
		err = text_printf(&what,
				  "docker: cannot use the image %s (docker pull makes it known)",
				  m->docker->image);
	if (err < 0)
		return err;
	json = get(m, text_str(&path), &err, why, text_str(&what));
	cJSON_Delete(json);
	return json ? 0 : err;
}

/* A call of which only the status matters. Returns it, or -errno. */
static int act(struct meeting *m, const char *method, const char *path, const struct text *body)
{
	int err;

	docker_call_start(&m->call, &m->docker->api, method, path, body, DOCKER_CALL_MS, called);
	err = loop_run(m->docker->base.loop);
	if (err < 0 || m->err < 0)
		return err < 0 ? err : m->err;
	return m->call.answer.status;
}

/* Whether an image has a /bin/sh: a container of it, never started, can be looked into. */
static int find_shell(struct meeting *m)
{
	AUTO_TEXT struct text body = {0};
	AUTO_TEXT struct text path = {0};
	AUTO_FREE char *id = NULL;
	int err = text_printf(
		&body, "{\"Image\":\"%s\",\"Entrypoint\":[\"/bin/sh\"],\"Labels\":{\"%s\":\"%s\"}}",
		m->docker->image, DOCKER_OWNER_LABEL, m->docker->owner);

	if (err < 0)
		return err;
	if (act(m, "POST", "/containers/create", &body) == 201)
		id = docker_call_string(&m->call, "Id");
	if (!id)
		return 0;
	err = text_printf(&path, "/containers/%s/archive?path=/bin/sh", id);
	if (err < 0)
		return err;
	m->docker->image_shell = act(m, "HEAD", text_str(&path), NULL) == 200;
	text_done(&path);
	err = text_printf(&path, "/containers/%s?force=1&v=1", id);
	return err ? err : MIN(act(m, "DELETE", text_str(&path), NULL), 0);
}

static const char *owner_of(const cJSON *container)
{
	const cJSON *labels = cJSON_GetObjectItemCaseSensitive(container, "Labels");

	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(labels, DOCKER_OWNER_LABEL));
}

/* Removes the containers that a daemon of this machine left when it was killed. */
static int remove_leftovers(struct meeting *m, struct text *why)
{
	int err;
	cJSON *list =
		get(m,
		    "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22" DOCKER_OWNER_LABEL
		    "%22%5D%7D",
		    &err, why, "docker: cannot look for what a dead mount left");
	const cJSON *container;

	if (!list)
		return err;
	cJSON_ArrayForEach (container, list) {
		const char *owner = owner_of(container);
		const char *id =
			cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(container, "Id"));
		AUTO_TEXT struct text path = {0};

		if (!owner || !id || !docker_owner_is_dead(owner) ||
		    text_printf(&path, "/containers/%s?force=1&v=1", id) < 0)
			continue;
		log_info("docker: removing the container %.12s, which a dead mount left", id);
		act(m, "DELETE", text_str(&path), NULL);
	}
	cJSON_Delete(list);
	return 0;
}

static int meet_image(struct meeting *m, struct text *why)
{
	AUTO_TEXT struct text owner = {0};
	int err = docker_owner_print(&owner);

	if (!err)
		err = find_image(m, why);
	if (!err)
		err = remove_leftovers(m, why);
	if (err < 0)
		return err;
	m->docker->owner = TAKE_PTR(owner.data);
	err = find_shell(m);
	if (m->docker->image_shell)
		m->docker->kind = &docker_room_kind;
	else
		m->docker->base.caveat =
			"the image has no /bin/sh: signals are refused, and exit says \"lost "
			"output_cut\" when the command's last output had to wait for a reader";
	return err;
}

int docker_meet(struct docker *docker, struct text *why)
{
	struct meeting m = {.docker = docker};
	int err = agree_on_version(&m, why);

	if (!err)
		err = docker->image ? meet_image(&m, why) : find_container(&m, why);
	docker_call_cancel(&m.call);
	docker_ensure_cancel(&m.ensure);
	return err;
}

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
static bool is_utf8(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	while (*p) {
		int more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;

		if (*p >= 0x80 && (*p < 0xc2 || *p > 0xf4))
			return false;
		if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
		    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
			return false;
		for (p++; more > 0; more--, p++)
			if ((*p & 0xc0) != 0x80)
				return false;
	}
	return true;
}

/* The engine takes JSON, which is UTF-8, and puts another character for what is not. */
static int check_text(const char *key, const char *value, struct text *why)
{
	if (!value || is_utf8(value))
		return 0;
	return text_fail(why, -EOPNOTSUPP,
			 "spec: key \"%s\": the engine takes UTF-8 only, and this is not", key);
}

int docker_check_text(const struct docker *docker, const struct spec *spec, struct text *why)
{
	int err = check_text("user", spec->user, why);

	if (docker->helper.shell || docker->image_shell)
		return err;
	if (!err)
		err = check_text("cwd", spec->cwd, why);
	for (size_t i = 0; i < spec->argc && !err; i++)
		err = check_text("cmd", spec->argv[i], why);
	for (size_t i = 0; i < spec->env_count && !err; i++) {
		err = check_text("env", spec->env[i].name, why);
		if (!err)
			err = check_text("env", spec->env[i].value, why);
	}
	return err;
}

int docker_check(struct docker *docker, const struct spec *spec, struct text *why)
{
	int err = far_check(spec, why);

	return err ? err : docker_check_text(docker, spec, why);
}

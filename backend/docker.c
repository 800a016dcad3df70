/*
 * The target "docker:": opening it, and the table of what it offers. docker.h says which
 * file does what.
 */
#include "docker.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docker_open.h"
#include "random_hex.h"

static struct docker_command *command_of(struct command *command)
{
	return docker_command_of(command);
}

struct docker_helper *docker_helper_of(struct docker *docker, const struct spec *spec)
{
	struct docker_user_helper *u;

	if (docker->helper.privileged || !spec->user)
		return &docker->helper;
	list_for_each (known, &docker->user_helpers, struct docker_user_helper, link)
		if (strcmp(known->user, spec->user) == 0)
			return &known->helper;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->user = strdup(spec->user);
	if (!u->user) {
		free(u);
		return NULL;
	}
	docker_helper_init(&u->helper, &docker->api, docker->container, u->user, docker->prefix);
	u->helper.privileged = false;
	list_append(&docker->user_helpers, &u->link);
	return &u->helper;
}

static void docker_close(struct backend *backend)
{
	struct docker *docker = docker_of(backend);

	docker_removals_done(&docker->removals);
	list_for_each_safe (u, &docker->user_helpers, struct docker_user_helper, link) {
		docker_helper_done(&u->helper);
		free(u->user);
		free(u);
	}
	docker_helper_done(&docker->helper);
	docker_host_done(&docker->api.host);
	free(docker->api.scratch);
	free(docker->container);
	free(docker->image);
	free(docker->network);
	free(docker->owner);
	free(docker->base.target);
	free(docker);
}

/* "CONTAINER" or "image=IMAGE". A container's name goes into a path, so it must be one. */
static int parse_address(struct docker *docker, const char *address, struct text *why)
{
	/* Of these, a container's name has no slash, colon or at sign. */
	static const char name_bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789_.-/:@";
	if (strncmp(address, "image=", 6) == 0) {
		address += 6;
		if (!*address || address[strspn(address, name_bytes)])
			return text_fail(why, -EINVAL, "docker: \"%s\" is not the name of an image",
					 address);
		docker->image = strdup(address);
		docker->kind = &docker_run_kind;
		return docker->image ? 0 : -ENOMEM;
	}
	if (!*address || address[strspn(address, name_bytes)] || strpbrk(address, "/:@"))
		return text_fail(why, -EINVAL,
				 "docker: \"%s\" is not the name of a container: write "
				 "docker:CONTAINER, or docker:image=IMAGE",
				 address);
	docker->container = strdup(address);
	docker->kind = &docker_exec_kind;
	return docker->container ? 0 : -ENOMEM;
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int take_option(struct docker *docker, struct docker_environment *env,
		       const struct backend_option *option, struct text *why)
{
	bool has_value = option->value && *option->value;

	if (strcmp(option->key, "docker_host") == 0 && has_value) {
		env->host = option->value;
		return 0;
	}
	if (strcmp(option->key, "docker_network") == 0 && has_value && docker->image) {
		free(docker->network);
		docker->network = strdup(option->value);
		return docker->network ? 0 : -ENOMEM;
	}
	return text_fail(why, -EINVAL,
			 "docker: unknown option %s, or without its value: there are "
			 "docker_host=URL and, with an image, docker_network=NAME",
			 option->key);
}

static int find_host(struct docker *docker, const struct backend_args *args, struct text *why)
{
	struct docker_environment env = {
		.host = variable("DOCKER_HOST"),
		.cert_path = variable("DOCKER_CERT_PATH"),
		.tls = variable("DOCKER_TLS"),
		.tls_verify = variable("DOCKER_TLS_VERIFY"),
		.home = variable("HOME"),
	};
	int err = 0;

	for (size_t i = 0; i < args->option_count && !err; i++)
		err = take_option(docker, &env, &args->options[i], why);
	return err ? err : docker_host_init(&docker->api.host, &env, why);
}

static int docker_open(const struct backend_args *args, struct backend **ret, struct text *why)
{
	struct docker *docker = calloc(1, sizeof(*docker));
	int err;

	if (!docker)
		return -ENOMEM;
	docker->base = (struct backend){
		.ops = &docker_backend,
		.loop = args->loop,
		.settings = args->settings,
		.keys = SPEC_KEYS_BASIC | SPEC_KEY_USER | SPEC_KEY_TIMEOUT,
		.target = strdup(args->target),
		.no_spin = true,
	};
	list_init(&docker->user_helpers);
	docker_removals_init(&docker->removals, &docker->api);
	docker->api.loop = args->loop;
	docker->api.scratch = malloc(DOCKER_SCRATCH_BYTES);
	err = docker->base.target && docker->api.scratch ? 0 : -ENOMEM;
	/* No other mount has this prefix, here or elsewhere. */
	if (!err)
		err = random_hex(docker->prefix, FAR_MARK_HEX - 8);
	if (!err)
		err = parse_address(docker, args->address, why);
	/* An exec has the limits of its container. */
	if (docker->image)
		docker->base.keys |= SPEC_KEY_LIMITS;
	if (!err)
		err = find_host(docker, args, why);
	if (!err)
		err = docker_meet(docker, why);
	if (err < 0) {
		docker_close(&docker->base);
		return err;
	}
	*ret = &docker->base;
	return 0;
}

static int check(struct backend *backend, const struct spec *spec, struct text *why)
{
	return docker_check(docker_of(backend), spec, why);
}

static int start(struct backend *backend, struct exec *exec, const struct spec *spec,
		 struct command **ret, struct text *why)
{
	struct docker_command *c = docker_command_new(docker_of(backend), exec, spec);
	int err = c ? c->kind->begin(c, why) : -ENOMEM;

	if (err < 0) {
		if (c)
			docker_command_free(c);
		return err;
	}
	*ret = &c->base;
	return 0;
}

static ssize_t write_input(struct command *command, const void *data, size_t len)
{
	return docker_stream_write(&command_of(command)->stream, data, len);
}

static bool can_write(struct command *command)
{
	return docker_stream_has_room(&command_of(command)->stream);
}

static void close_input(struct command *command)
{
	docker_stream_end_input(&command_of(command)->stream);
}

static void resume(struct command *command, enum stream_id stream)
{
	docker_command_resume(command_of(command));
}

static int send_signal(struct command *command, int signo, struct text *why)
{
	struct docker_command *c = command_of(command);

	return c->kind->signal(c, signo, why);
}

static void kill_command(struct command *command)
{
	struct docker_command *c = command_of(command);

	c->kind->kill(c);
}

static void release(struct command *command)
{
	struct docker_command *c = command_of(command);

	if (c->kind->release)
		c->kind->release(c);
	docker_command_free(c);
}

const struct backend_ops docker_backend = {
	.scheme = "docker",
	.summary = "in a container, by the Docker Engine API: docker:CONTAINER, docker:image=IMAGE",
	.options =
		"docker_host=URL      unix:///PATH or tcp://HOST:PORT; default: DOCKER_HOST, or\n"
		"                     unix:///var/run/docker.sock; TLS by DOCKER_TLS_VERIFY\n"
		"                     and DOCKER_CERT_PATH\n"
		"docker_network=NAME  with an image: the network of its containers\n",
	.open = docker_open,
	.close = docker_close,
	.check = check,
	.start = start,
	.write = write_input,
	.can_write = can_write,
	.close_input = close_input,
	.resume = resume,
	.signal = send_signal,
	.kill = kill_command,
	.release = release,
};

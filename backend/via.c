/* The target via:COMMAND PREFIX: opening, closing, and what it can do. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "via.h"
#include "via_words.h"

extern const struct backend_ops via_backend;

static void via_close(struct backend *backend)
{
	struct via *via = container_of(backend, struct via, base);

	if (via->keeper)
		lease_done(&via->lease);
	keeper_close(via->keeper);
	words_free(via->prefix);
	free(via->directory);
	free(via->base.target);
	free(via);
}

static int fill(struct via *via, const struct backend_args *args, struct text *why)
{
	struct inherited inherited;
	int err = words_split(args->address, &via->prefix, why);

	if (err < 0)
		return err;
	via->base.target = strdup(args->target);
	via->directory = getcwd(NULL, 0);
	/* It may have been removed. */
	if (!via->directory)
		via->directory = strdup("/");
	if (!via->base.target || !via->directory)
		return text_fail(why, -ENOMEM, "via: no memory");
	inherited.directory = via->directory;
	/* Before the daemon raises its own. */
	if (getrlimit(RLIMIT_NOFILE, &inherited.nofile) < 0 ||
	    getrlimit(RLIMIT_CORE, &inherited.core) < 0)
		return text_fail(why, -errno, "via: cannot read limits: %s", strerror(errno));
	return keeper_open(args->loop, KEEPER_TREE_AUTO, &inherited, &via->keeper, why);
}

static int take_option(const struct backend_option *option, unsigned *lease, struct text *why)
{
	char *end;
	unsigned long seconds;

	if (strcmp(option->key, "lease") != 0)
		return text_fail(why, -EINVAL, "via: unknown option %s: see --help", option->key);
	seconds = strtoul(option->value ? option->value : "", &end, 10);
	if (!option->value || !isdigit((unsigned char)*option->value) || *end ||
	    seconds > VIA_LEASE_S_MAX)
		return text_fail(why, -EINVAL,
				 "option lease: expected whole seconds, 0 to %u, not \"%s\"",
				 VIA_LEASE_S_MAX, option->value ? option->value : "");
	*lease = (unsigned)seconds;
	return 0;
}

static int via_open(const struct backend_args *args, struct backend **ret, struct text *why)
{
	unsigned lease = VIA_LEASE_S_DEFAULT;
	struct via *via;
	int err = 0;

	for (size_t i = 0; i < args->option_count && err == 0; i++)
		err = take_option(&args->options[i], &lease, why);
	if (err < 0)
		return err;
	via = calloc(1, sizeof(*via));
	if (!via)
		return text_fail(why, -ENOMEM, "via: no memory");
	via->base = (struct backend){
		.ops = &via_backend,
		.loop = args->loop,
		.settings = args->settings,
		.keys = SPEC_KEYS_BASIC | SPEC_KEY_TIMEOUT,
		.no_spin = true,
	};
	err = lease_init(&via->lease, lease);
	if (err < 0)
		text_fail(why, err, "via: no random numbers: %s", strerror(-err));
	else
		err = fill(via, args, why);
	if (err < 0) {
		via_close(&via->base);
		return err;
	}
	*ret = &via->base;
	return 0;
}

/* What a POSIX shell cannot put into an environment is refused, not left out. */
static int via_check(struct backend *backend, const struct spec *spec, struct text *why)
{
	int err = far_check(spec, why);

	for (size_t i = 0; i < spec->env_count && !err; i++) {
		const char *name = spec->env[i].name;

		if (spec->env[i].value && !far_can_set(name))
			return text_fail(why, -EOPNOTSUPP,
					 "spec: key \"env\": the shell on the target cannot set a "
					 "variable named \"%s\": letters, digits and _ only",
					 name);
	}
	return err;
}

static ssize_t via_write(struct command *command, const void *data, size_t len)
{
	return call_write(&container_of(command, struct via_command, base)->call, data, len);
}

static bool via_can_write(struct command *command)
{
	return call_can_write(&container_of(command, struct via_command, base)->call);
}

static void via_close_input(struct command *command)
{
	call_close_input(&container_of(command, struct via_command, base)->call);
}

static void via_resume(struct command *command, enum stream_id stream)
{
	call_resume(&container_of(command, struct via_command, base)->call, stream);
}

const struct backend_ops via_backend = {
	.scheme = "via",
	.summary = "through any program that carries three streams: via:COMMAND PREFIX",
	.options = "lease=SECONDS  how long commands elsewhere live on when this side is gone\n"
		   "               without a word (60); 0: for ever\n",
	.open = via_open,
	.close = via_close,
	.check = via_check,
	.start = via_start,
	.write = via_write,
	.can_write = via_can_write,
	.close_input = via_close_input,
	.resume = via_resume,
	.close_output = via_close_output,
	.signal = via_signal,
	.kill = via_kill,
	.release = via_release,
};

/* The backend ssh: opening it, and what its commands can do. */
#include "ssh.h"

#include <errno.h>
#include <string.h>

#include "exec.h"
#include "log.h"
#include "ssh_client.h"

/* The first connection: the one that may ask at the terminal. */
static int connect_first(struct ssh *ssh, struct text *why)
{
	int err;

	ssh->opening = true;
	err = ssh_pool_connect(ssh, why);
	if (err < 0)
		return err;
	err = loop_run(ssh->backend.loop);
	ssh->opening = false;
	if (err < 0)
		return text_fail(why, err, "the event loop failed: %s", strerror(-err));
	if (!ssh_pool_up(ssh))
		return text_fail(why, ssh->failure_err,
				 "%s: no connection: %s; `ssh %s` must work before a mount can",
				 ssh->backend.target, text_str(&ssh->failure), ssh->options.host);
	return 0;
}

void ssh_note_blind(struct ssh *ssh)
{
	if (ssh->backend.caveat)
		return;
	ssh->backend.caveat = "the host has no readable /proc of its own: rmdir and kill end a "
			      "command's process group, and what is left of it cannot be known";
	log_warning("ssh: %s: %s", ssh->options.host, ssh->backend.caveat);
}

static void ssh_close(struct backend *backend)
{
	struct ssh *ssh = container_of(backend, struct ssh, backend);

	ssh_pool_close(ssh);
	ssh_options_done(&ssh->options);
	text_done(&ssh->failure);
	free(backend->target);
	free(ssh);
}

static int prepare(struct ssh *ssh, const struct backend_args *args, struct text *why)
{
	AUTO_TEXT struct text resolved = {0};
	AUTO_TEXT struct text plain = {0};
	AUTO_TEXT struct text unknown = {0};
	int err = ssh_options_parse(args, &ssh->options, why);

	err = err ? err : ssh_client_resolve(&ssh->options, SSH_RESOLVE, &resolved, why);
	if (!err && ssh_client_resolve(&ssh->options, SSH_RESOLVE_PLAIN, &plain, &unknown) < 0) {
		log_debug("ssh: its own defaults are not known");
		plain.len = 0;
	}
	err = err ? err
		  : ssh_options_defaults(&ssh->options, text_str(&resolved), text_str(&plain));
	return err ? err : connect_first(ssh, why);
}

static int ssh_open(const struct backend_args *args, struct backend **ret, struct text *why)
{
	struct ssh *ssh = calloc(1, sizeof(*ssh));
	int err;

	if (!ssh)
		return text_fail(why, -ENOMEM, "no memory");
	ssh->backend = (struct backend){
		.ops = &ssh_backend,
		.loop = args->loop,
		.settings = args->settings,
		.keys = SPEC_KEYS_BASIC | SPEC_KEY_TIMEOUT,
		.target = strdup(args->target),
		.no_spin = true,
	};
	ssh_pool_init(ssh);
	err = ssh->backend.target ? prepare(ssh, args, why) : text_fail(why, -ENOMEM, "no memory");
	if (err < 0) {
		ssh_close(&ssh->backend);
		return err;
	}
	*ret = &ssh->backend;
	return 0;
}

/* A shell on the host sets the variables, and can only set those it could name. */
static int ssh_check(struct backend *backend, const struct spec *spec, struct text *why)
{
	int err = far_check(spec, why);

	for (size_t i = 0; i < spec->env_count && !err; i++) {
		const struct spec_variable *v = &spec->env[i];
		AUTO_TEXT struct text name = {0};

		if (!v->value || far_can_set(v->name))
			continue;
		text_append_printable(&name, v->name, strlen(v->name));
		return text_fail(
			why, -EOPNOTSUPP,
			"spec: key \"env\": \"%s\" is no name that a shell can set, and on "
			"%s one has to",
			text_str(&name), backend->target);
	}
	return err;
}

const struct backend_ops ssh_backend = {
	.scheme = "ssh",
	.summary = "over your own OpenSSH: ssh:[user@]host[:port]",
	.options = "ssh_config=FILE  the configuration of ssh (-F FILE)\n"
		   "port=PORT        the port (-p PORT)\n"
		   "ssh_command=CMD  run this instead of ssh\n"
		   "Xyz=VALUE        any option of ssh_config(5), as -o IdentityFile=FILE\n",
	.open = ssh_open,
	.close = ssh_close,
	.check = ssh_check,
	.start = ssh_command_start,
	.write = ssh_command_write,
	.can_write = ssh_command_can_write,
	.close_input = ssh_command_close_input,
	.resume = ssh_command_resume,
	.close_output = ssh_command_close_output,
	.signal = ssh_command_signal,
	.kill = ssh_command_kill,
	.release = ssh_command_release,
};

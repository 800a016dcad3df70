/*
 * spawnfs: options, then the backend, then the mount, then the loop.
 *
 * Until the mount is up every failure ends the program with a sentence on stderr;
 * after that nothing does but the end of the mount.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend.h"
#include "background.h"
#include "log.h"
#include "mount.h"
#include "options.h"
#include "text.h"
#include "util.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif

/* Specs are in this memory, and so are their secrets. */
static void forbid_core_dumps(void)
{
#ifndef SANITIZED /* the leak checker attaches to its own process */
	prctl(PR_SET_DUMPABLE, 0);
#endif
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

/* Three descriptors an exec: as many as we may have. Commands get what we were started with. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* One that is closed would be given to a socket of ours, and whoever prints would write to it. */
static void open_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static int open_backend(const struct options *o, struct loop *loop, struct backend **ret,
			struct text *why)
{
	AUTO_TEXT struct text shown = {0};
	struct backend_args args = {
		.loop = loop,
		.settings = &o->settings,
		.options = o->backend_options,
		.option_count = o->backend_option_count,
	};
	const struct backend_ops *ops = backend_find(o->target, &args.address);
	int err;

	if (!ops)
		return text_fail(why, -EINVAL,
				 "\"%s\" is not a target: it begins with one of the words that "
				 "spawnfs --help lists, and a colon",
				 o->target);
	/* It stands in JSON, in log lines and in the list of mounts. */
	err = text_append_printable(&shown, o->target, strlen(o->target));
	if (err < 0)
		return text_fail(why, err, "no memory");
	args.target = text_str(&shown);
	return ops->open(&args, ret, why);
}

/* From here on the caller knows that the mount answers. */
static void announce(const struct options *o, struct background *bg)
{
	if (o->foreground)
		return;
	log_open(LOG_SINK_SYSLOG, o->log_level);
	background_ready(bg);
}

static int serve(struct options *o, struct loop *loop, const char *mountpoint,
		 struct background *bg, struct text *why)
{
	struct mount m = {
		.mountpoint = mountpoint,
		.settings = o->settings,
		.allow_other = o->allow_other,
		.loop = loop,
	};
	int err = open_backend(o, loop, &m.backend, why);

	if (err < 0)
		return err;
	forbid_core_dumps();
	raise_descriptors();
	err = mount_open(&m, why);
	if (!err) {
		announce(o, bg);
		err = mount_serve(&m);
		if (err < 0)
			text_fail(why, err, "the event loop failed: %s", strerror(-err));
	}
	mount_close(&m);
	m.backend->ops->close(m.backend);
	return err;
}

static int run(struct options *o, struct background *bg, struct text *why)
{
	AUTO_FREE char *mountpoint = realpath(o->mountpoint, NULL);
	AUTO_FREE char *spool_dir = realpath(o->settings.spool_dir, NULL);
	struct loop *loop;
	int err;

	/* One that does not exist, or is dead, is for mountpoint_check() to explain. */
	if (!mountpoint)
		mountpoint = strdup(o->mountpoint);
	if (!mountpoint)
		return text_fail(why, -ENOMEM, "no memory");
	/* In the background the working directory will be another. */
	if (spool_dir)
		o->settings.spool_dir = spool_dir;
	err = loop_new(&loop);
	if (err < 0)
		return text_fail(why, err, "cannot make an event loop: %s", strerror(-err));
	err = serve(o, loop, mountpoint, bg, why);
	loop_free(loop);
	return err;
}

static int mount_command(struct options *o, struct text *why)
{
	struct background bg = BACKGROUND_NONE;
	int err = 0;

	log_open(LOG_SINK_STDERR, o->log_level);
	signal(SIGPIPE, SIG_IGN);
	/* A spool's file at the limit on file sizes is an error like a full disk. */
	signal(SIGXFSZ, SIG_IGN);
	if (!o->foreground)
		err = background_enter(&bg, why);
	/* The parent waits for the child's word and has nothing more to do. */
	if (err > 0)
		exit(background_wait(&bg));
	if (!err)
		err = run(o, &bg, why);
	return err;
}

int main(int argc, char **argv)
{
	AUTO_TEXT struct text why = {0};
	struct options o;
	int err;

	open_standard_descriptors();
	err = options_parse(argc, argv, &o, &why);
	if (!err && o.command == COMMAND_HELP)
		options_print_help();
	else if (!err && o.command == COMMAND_VERSION)
		printf("spawnfs %s\n", SPAWNFS_VERSION);
	else if (!err)
		err = mount_command(&o, &why);
	if (!err && fflush(stdout))
		err = text_fail(&why, -errno, "cannot write to standard output: %s",
				strerror(errno));
	if (err < 0)
		log_error("%s", text_str(&why));
	options_done(&o);
	return err < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

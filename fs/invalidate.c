/* The thread that invalidates names. Names come through a pipe, NUL-terminated. */
#include "invalidate.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuse.h"
#include "log.h"
#include "node.h"
#include "util.h"

struct invalidator {
	struct fuse_session *session;
	pthread_t thread;
	int read_end;
	int write_end;
};

static void *serve(void *data)
{
	struct invalidator *inv = data;
	FILE *names = fdopen(inv->read_end, "r");
	char *name = NULL;
	size_t size = 0;

	while (names && getdelim(&name, &size, '\0', names) > 0)
		fuse_lowlevel_notify_inval_entry(inv->session, NODE_ROOT, name, strlen(name));
	free(name);
	if (names)
		fclose(names);
	return NULL;
}

/* The thread takes no signal: they are the loop's. */
static int start_thread(struct invalidator *inv)
{
	sigset_t all;
	sigset_t before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&inv->thread, NULL, serve, inv);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

int invalidator_new(struct fuse_session *session, struct invalidator **ret)
{
	struct invalidator *inv = malloc(sizeof(*inv));
	int ends[2];
	int err;

	if (!inv)
		return -ENOMEM;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		err = -errno;
		free(inv);
		return err;
	}
	inv->session = session;
	inv->read_end = ends[0];
	inv->write_end = ends[1];
	/* The loop never waits for the thread. */
	fcntl(inv->write_end, F_SETFL, O_NONBLOCK);
	err = start_thread(inv);
	if (err < 0) {
		close(ends[0]);
		close(ends[1]);
		free(inv);
		return err;
	}
	*ret = inv;
	return 0;
}

void invalidator_free(struct invalidator *inv)
{
	if (!inv)
		return;
	close(inv->write_end);
	pthread_join(inv->thread, NULL);
	free(inv);
}

void invalidate_name(struct invalidator *inv, const char *name)
{
	/* Up to PIPE_BUF bytes are written whole or not at all (pipe(7)). */
	if (write(inv->write_end, name, strlen(name) + 1) < 0)
		log_warning("the kernel may show \"%s\" for up to an hour: %s", name,
			    strerror(errno));
}

/*
 * The thread that invalidates names. Names come through a pipe, NUL-terminated; what it has no
 * room for waits here, since the loop never waits for the thread.
 */
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
#include "loop.h"
#include "node.h"
#include "text.h"
#include "util.h"

struct invalidator {
	struct fuse_session *session;
	struct loop *loop;
	pthread_t thread;
	int read_end;
	struct source source; /* the other end; watched while names wait */
	struct text waiting;  /* names, the first perhaps in part */
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

/* Passes on what the pipe takes. What is left goes when it has room again. */
static void pass_on(struct invalidator *inv)
{
	struct text *names = &inv->waiting;
	ssize_t n = names->len ? write(inv->source.fd, names->data, names->len) : 0;

	if (n > 0) {
		names->len -= (size_t)n;
		memmove(names->data, names->data + n, names->len);
	}
	if (!names->len) {
		loop_unwatch(&inv->source);
		text_done(names);
	} else if (!inv->source.loop) {
		loop_watch(inv->loop, &inv->source, EPOLLOUT);
	}
}

static void on_room(struct source *source, uint32_t events)
{
	pass_on(container_of(source, struct invalidator, source));
}

int invalidator_new(struct fuse_session *session, struct loop *loop, struct invalidator **ret)
{
	struct invalidator *inv = calloc(1, sizeof(*inv));
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
	inv->loop = loop;
	inv->read_end = ends[0];
	inv->source.fd = ends[1];
	inv->source.ready = on_room;
	fcntl(inv->source.fd, F_SETFL, O_NONBLOCK);
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
	loop_unwatch(&inv->source);
	close(inv->source.fd);
	pthread_join(inv->thread, NULL);
	text_done(&inv->waiting);
	free(inv);
}

void invalidate_name(struct invalidator *inv, const char *name)
{
	int err = text_append(&inv->waiting, name, strlen(name) + 1);

	if (err < 0)
		log_warning("the kernel may show \"%s\" for up to an hour: %s", name,
			    strerror(-err));
	pass_on(inv);
}

/* Orders to the keeper, and those that wait for room in its socket. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "keeper_private.h"
#include "keeper_wire.h"

/* An order that waits, with descriptors of its own. */
struct order {
	struct list link;
	int fds[FD_COUNT];
	size_t fd_count;
	size_t len;
	char packet[];
};

static int send_packet(int socket, const void *packet, size_t len, const int *fds, size_t fd_count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FD_COUNT * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)packet, len};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd_count) {
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, fd_count * sizeof(int));
	}
	return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void order_free(struct order *order)
{
	list_remove(&order->link);
	for (size_t i = 0; i < order->fd_count; i++)
		close(order->fds[i]);
	/* It holds the values of env. */
	explicit_bzero(order->packet, order->len);
	free(order);
}

/* Whether it may work later: no room, or too many descriptors on their way (unix(7)). */
static bool passing(int err)
{
	return err == -EAGAIN || err == -EINTR || err == -ETOOMANYREFS || err == -ENOBUFS ||
	       err == -ENOMEM;
}

static void wait_for_room(struct keeper *k, int err)
{
	if (err == -EAGAIN)
		loop_rewatch(&k->socket, EPOLLIN | EPOLLOUT);
	else
		timer_arm(k->loop, &k->retry, KEEPER_SWEEP_MS);
}

static int enqueue(struct keeper *k, const void *packet, size_t len, const int *fds,
		   size_t fd_count)
{
	struct order *order = calloc(1, sizeof(*order) + len);

	if (!order)
		return -ENOMEM;
	list_init(&order->link);
	memcpy(order->packet, packet, len);
	order->len = len;
	for (; order->fd_count < fd_count; order->fd_count++) {
		int fd = fcntl(fds[order->fd_count], F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			int err = -errno;

			order_free(order);
			return err;
		}
		order->fds[order->fd_count] = fd;
	}
	list_append(&k->orders, &order->link);
	return 0;
}

static int give_order(struct keeper *k, const void *packet, size_t len, const int *fds,
		      size_t fd_count)
{
	int err = -EAGAIN;

	if (k->socket.fd < 0)
		return -ESRCH;
	if (list_empty(&k->orders)) {
		err = send_packet(k->socket.fd, packet, len, fds, fd_count);
		if (!passing(err))
			return err;
		wait_for_room(k, err);
	}
	return enqueue(k, packet, len, fds, fd_count);
}

static int give_short_order(struct kept *kept, enum keeper_order what, int value)
{
	struct keeper_message message = {.order = what, .slot = kept->slot, .value = value};

	return kept->keeper ? give_order(kept->keeper, &message, sizeof(message), NULL, 0) : 0;
}

/* These must not be lost for want of memory: what is due needs none. */
static void give_for_certain(struct kept *kept, enum keeper_order what)
{
	int err = give_short_order(kept, what, 0);

	if (err == 0 || err == -ESRCH)
		return;
	kept->due |= 1U << what;
	timer_arm(kept->keeper->loop, &kept->keeper->retry, KEEPER_SWEEP_MS);
}

static void give_due(struct kept *kept)
{
	unsigned due = kept->due;

	kept->due = 0;
	for (enum keeper_order what = 0; due >> what; what++)
		if (due >> what & 1)
			give_for_certain(kept, what);
}

void keeper_send_orders(struct keeper *k)
{
	list_for_each_safe (order, &k->orders, struct order, link) {
		int err = send_packet(k->socket.fd, order->packet, order->len, order->fds,
				      order->fd_count);

		if (passing(err)) {
			wait_for_room(k, err);
			return;
		}
		order_free(order);
	}
	loop_rewatch(&k->socket, EPOLLIN);
	for (uint32_t i = 0; i < k->capacity; i++)
		if (k->slots[i])
			give_due(k->slots[i]);
}

void keeper_drop_orders(struct keeper *k)
{
	list_for_each_safe (order, &k->orders, struct order, link)
		order_free(order);
}

void keeper_signal(struct kept *kept, int signo)
{
	give_short_order(kept, KEEPER_SIGNAL, signo);
}

void keeper_kill(struct kept *kept)
{
	/* The tree is gone; its last output may still be waited for. */
	if (!kept->keeper)
		return;
	/* Whoever has stopped the keeper did not mean the commands to outlive their kill. */
	if (kept->keeper->pid > 1)
		kill(kept->keeper->pid, SIGCONT);
	give_for_certain(kept, KEEPER_KILL);
}

void keeper_close_input(struct kept *kept)
{
	if (kept->keeper)
		give_for_certain(kept, KEEPER_CLOSE_INPUT);
}

void keeper_grant_farewell(struct kept *kept)
{
	if (kept->keeper)
		give_for_certain(kept, KEEPER_WILL_SAY);
}

/* ---- The start ---- */

static int add_string(struct text *t, const char *s)
{
	return text_append(t, s, strlen(s) + 1);
}

static int add_variable(struct text *t, const struct spec_variable *v)
{
	int err = text_append(t, v->name, strlen(v->name));

	if (err == 0)
		err = text_append(t, "=", 1);
	return err < 0 ? err : add_string(t, v->value);
}

/* Appends the strings in the order of struct spawn_counts. */
static int add_spec(struct text *t, const struct spec *spec, struct spawn_counts *counts)
{
	int err = spec->cwd ? add_string(t, spec->cwd) : 0;

	*counts = (struct spawn_counts){.cwd = spec->cwd ? 1 : 0, .argc = (uint32_t)spec->argc};
	for (size_t i = 0; err == 0 && i < spec->argc; i++)
		err = add_string(t, spec->argv[i]);
	for (size_t i = 0; err == 0 && i < spec->env_count; i++) {
		if (!spec->env[i].value)
			continue;
		err = add_variable(t, &spec->env[i]);
		counts->set++;
	}
	for (size_t i = 0; err == 0 && i < spec->env_count; i++) {
		if (spec->env[i].value)
			continue;
		err = add_string(t, spec->env[i].name);
		counts->unset++;
	}
	return err;
}

static int text_to_memfd(const char *data, size_t len)
{
	AUTO_CLOSE int fd = memfd_create("spawnfs-spec", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return take_fd(&fd);
}

static int give_start(struct keeper *k, struct kept *kept, const struct keeper_start *start)
{
	struct keeper_message message = {.order = KEEPER_START, .slot = kept->slot};
	int fds[FD_COUNT] = {
		[FD_STATUS] = start->status,	       [FD_INPUT] = start->input,
		[FD_OUTPUT] = start->output,	       [FD_ERROR] = start->error,
		[FD_INPUT_WRITE] = start->input_write,
	};
	struct text packet = {0};
	AUTO_CLOSE int memfd = -1;
	int err = text_append(&packet, &message, sizeof(message));

	if (err == 0)
		err = add_spec(&packet, start->spec, &message.counts);
	if (err == 0) {
		message.text_len = packet.len - sizeof(message);
		if (message.text_len > KEEPER_INLINE_BYTES) {
			memfd = text_to_memfd(packet.data + sizeof(message), message.text_len);
			err = MIN(memfd, 0);
			fds[FD_MEMFD] = memfd;
			message.text_in_memfd = 1;
		}
	}
	if (err == 0) {
		size_t len = memfd < 0 ? packet.len : sizeof(message);

		memcpy(packet.data, &message, sizeof(message));
		err = give_order(k, packet.data, len, fds, memfd < 0 ? FD_MEMFD : FD_COUNT);
	}
	text_wipe(&packet);
	return err;
}

int keeper_start(struct keeper *k, struct kept *kept, const struct keeper_start *start,
		 struct text *why)
{
	int err;

	if (k->socket.fd < 0)
		return text_fail(
			why, -EIO,
			"cannot start %s: the keeper of the commands was killed: mount again",
			start->spec->argv[0]);
	err = keeper_take_slot(k, kept);
	if (err == 0) {
		err = give_start(k, kept, start);
		if (err < 0) {
			keeper_free_slot(k, kept->slot);
			kept->keeper = NULL;
		}
	}
	if (err < 0)
		return text_fail(why, err, "cannot start %s: cannot pass it to the keeper: %s",
				 start->spec->argv[0], strerror(-err));
	return 0;
}

/*
 * Reads a file to its end the way its first argument says and writes what it
 * got to stdout. Modes: read, small, pread, stdio, poll, epoll, edge, select.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

static char buf[1 << 17];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void put(const char *data, size_t len)
{
	if (fwrite(data, 1, len, stdout) != len)
		die("stdout");
}

static void read_plain(int fd, size_t size)
{
	ssize_t n;

	while ((n = read(fd, buf, size)) > 0)
		put(buf, (size_t)n);
	if (n < 0)
		die("read");
}

static void read_at(int fd)
{
	off_t off = 0;
	ssize_t n;

	while ((n = pread(fd, buf, 1000, off)) > 0) {
		put(buf, (size_t)n);
		off += n;
	}
	if (n < 0)
		die("pread");
}

static void read_stdio(const char *path)
{
	FILE *f = fopen(path, "r");
	int c;

	if (!f)
		die(path);
	while ((c = getc(f)) != EOF)
		putchar(c);
	if (ferror(f))
		die("getc");
	fclose(f);
}

static void wait_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (poll(&p, 1, -1) < 0)
		die("poll");
}

static void wait_select(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (select(fd + 1, &set, NULL, NULL, NULL) < 0)
		die("select");
}

/* Reads until EAGAIN, then waits: what an edge-triggered program must do. */
static void read_ready(int fd, const char *mode)
{
	struct epoll_event event = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	ssize_t n;

	if (!strcmp(mode, "edge"))
		event.events |= EPOLLET;
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) < 0)
		die("epoll");
	while ((n = read(fd, buf, sizeof(buf))) != 0) {
		if (n > 0)
			put(buf, (size_t)n);
		else if (errno != EAGAIN)
			die("read");
		else if (!strcmp(mode, "poll"))
			wait_poll(fd);
		else if (!strcmp(mode, "select"))
			wait_select(fd);
		else if (epoll_wait(ep, &event, 1, -1) < 0)
			die("epoll_wait");
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;

	const char *mode = argv[1];
	int blocking = !strcmp(mode, "read") || !strcmp(mode, "small") || !strcmp(mode, "pread");
	int fd = open(argv[2], O_RDONLY | O_CLOEXEC | (blocking ? 0 : O_NONBLOCK));

	if (fd < 0)
		die(argv[2]);
	if (!strcmp(mode, "read"))
		read_plain(fd, sizeof(buf));
	else if (!strcmp(mode, "small"))
		read_plain(fd, 7);
	else if (!strcmp(mode, "pread"))
		read_at(fd);
	else if (!strcmp(mode, "stdio"))
		read_stdio(argv[2]);
	else
		read_ready(fd, mode);
	return fclose(stdout) ? 1 : 0;
}

/*
 * The work that scripts/bench measures, each twice: over plain pipes and
 * posix_spawn(3), and through a mount. Every command prints one number.
 *
 *   bench pipe-stdout BYTES READ [PREFIX...]   fs-stdout MOUNT BYTES READ   MB/s
 *   bench pipe-stdin BYTES WRITE               fs-stdin MOUNT BYTES WRITE   MB/s
 *   bench pipe-exec ROUNDS [PREFIX...]         fs-exec MOUNT ROUNDS         median microseconds
 *   bench pipe-many COUNT [PREFIX...]          fs-many MOUNT COUNT          milliseconds for all
 *   bench pipe-echo ROUNDS                     fs-echo MOUNT ROUNDS         median microseconds
 *   bench fs-block MOUNT READERS               prints "ready", waits for a line on stdin
 *   bench produce BYTES, consume               what runs at the other end
 *
 * A PREFIX (ssh HOST, docker exec C) is a program that runs the command appended to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (64 << 10)
#define WORDS_MAX 64

static char self[4096];

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_median(double *seconds, int n)
{
	qsort(seconds, (size_t)n, sizeof(*seconds), compare);
	printf("%.1f\n", seconds[n / 2] * 1e6);
}

static void print_rate(uint64_t bytes, double seconds)
{
	printf("%.1f\n", (double)bytes / seconds / 1e6);
}

/* ---- The other end ---- */

static int produce(uint64_t bytes)
{
	static char block[BLOCK];

	memset(block, 'x', sizeof(block));
	for (uint64_t left = bytes; left;) {
		ssize_t n = write(1, block, left < BLOCK ? (size_t)left : BLOCK);

		if (n < 0)
			die("produce");
		left -= (uint64_t)n;
	}
	return 0;
}

static int consume(void)
{
	static char block[128 << 10];
	ssize_t n;

	while ((n = read(0, block, sizeof(block))) > 0)
		;
	return n < 0;
}

/* ---- Plain pipes ---- */

struct child {
	pid_t pid;
	int in;
	int out;
	int err;
};

static struct child spawn(const char *const argv[])
{
	posix_spawn_file_actions_t actions;
	struct child c;
	int pipes[3][2];
	int err;

	for (int i = 0; i < 3; i++)
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			die("pipe2");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipes[0][0], 0);
	posix_spawn_file_actions_adddup2(&actions, pipes[1][1], 1);
	posix_spawn_file_actions_adddup2(&actions, pipes[2][1], 2);
	err = posix_spawnp(&c.pid, argv[0], &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err) {
		errno = err;
		die("posix_spawn %s", argv[0]);
	}
	close(pipes[0][0]);
	close(pipes[1][1]);
	close(pipes[2][1]);
	c.in = pipes[0][1];
	c.out = pipes[1][0];
	c.err = pipes[2][0];
	return c;
}

static void finish(struct child *c)
{
	int status;

	close(c->in);
	close(c->out);
	close(c->err);
	if (waitpid(c->pid, &status, 0) < 0 || status != 0)
		die("a command ended with the wait status %#x", (unsigned)status);
}

/* The words of a prefix, then those of a command. */
static void prefixed(char **prefix, const char *const words[], const char *ret[])
{
	size_t n = 0;

	while (*prefix && n < WORDS_MAX - 4)
		ret[n++] = *prefix++;
	while (*words)
		ret[n++] = *words++;
	ret[n] = NULL;
}

static uint64_t read_all(int fd, size_t size)
{
	char *buf = malloc(size);
	uint64_t total = 0;
	ssize_t n;

	while ((n = read(fd, buf, size)) > 0)
		total += (uint64_t)n;
	if (n < 0)
		die("read");
	free(buf);
	return total;
}

static void write_all(int fd, uint64_t bytes, size_t size)
{
	char *buf = calloc(1, size);

	while (bytes) {
		ssize_t n = write(fd, buf, bytes < size ? (size_t)bytes : size);

		if (n < 0)
			die("write");
		bytes -= (uint64_t)n;
	}
	free(buf);
}

static void pipe_stdout(const char *bytes, size_t size, char **prefix)
{
	const char *words[] = {self, "produce", bytes, NULL};
	const char *argv[WORDS_MAX];
	double start = now();
	struct child c;
	uint64_t n;

	prefixed(prefix, words, argv);
	c = spawn(argv);
	n = read_all(c.out, size);
	if (n != strtoull(bytes, NULL, 10))
		die("%llu bytes of %s", (unsigned long long)n, bytes);
	print_rate(n, now() - start);
	finish(&c);
}

static void pipe_stdin(uint64_t bytes, size_t size)
{
	const char *argv[] = {self, "consume", NULL};
	double start = now();
	struct child c = spawn(argv);

	write_all(c.in, bytes, size);
	close(c.in);
	read_all(c.out, 4096);
	print_rate(bytes, now() - start);
	c.in = -1;
	finish(&c);
}

static void pipe_exec(int rounds, char **prefix)
{
	const char *argv[WORDS_MAX];
	double *t = calloc((size_t)rounds, sizeof(*t));

	prefixed(prefix, (const char *[]){"/bin/true", NULL}, argv);
	for (int i = 0; i < rounds; i++) {
		double start = now();
		struct child c = spawn(argv);

		read_all(c.out, 4096);
		finish(&c);
		t[i] = now() - start;
	}
	print_median(t, rounds);
	free(t);
}

static void pipe_many(int count, char **prefix)
{
	const char *argv[WORDS_MAX];
	struct child *children = calloc((size_t)count, sizeof(*children));
	double start = now();

	prefixed(prefix, (const char *[]){"/bin/true", NULL}, argv);
	for (int i = 0; i < count; i++)
		children[i] = spawn(argv);
	for (int i = 0; i < count; i++) {
		read_all(children[i].out, 4096);
		finish(&children[i]);
	}
	printf("%.1f\n", (now() - start) * 1e3);
	free(children);
}

static void echo_lines(int in, int out, int rounds)
{
	double *t = calloc((size_t)rounds, sizeof(*t));
	char line[64];

	for (int i = 0; i < rounds; i++) {
		double start = now();

		if (write(in, "hello\n", 6) != 6 || read(out, line, sizeof(line)) != 6)
			die("echo");
		t[i] = now() - start;
	}
	print_median(t, rounds);
	free(t);
}

static void pipe_echo(int rounds)
{
	const char *argv[] = {"/bin/cat", NULL};
	struct child c = spawn(argv);

	echo_lines(c.in, c.out, rounds);
	finish(&c);
}

/* ---- Through a mount ---- */

static int open_file(const char *dir, const char *name, int flags)
{
	char path[8192];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0)
		die("open %s", path);
	return fd;
}

static void make_exec(const char *mount, const char *name, const char *spec, char *dir, size_t size)
{
	int fd;

	snprintf(dir, size, "%s/%s", mount, name);
	if (mkdir(dir, 0700) < 0)
		die("mkdir %s", dir);
	fd = open_file(dir, "spec", O_WRONLY | O_TRUNC);
	if (write(fd, spec, strlen(spec)) != (ssize_t)strlen(spec))
		die("write %s/spec", dir);
	close(fd);
}

static void end_exec(const char *dir)
{
	char line[64];
	int fd = open_file(dir, "exit", O_RDONLY);
	ssize_t n = read(fd, line, sizeof(line));

	if (n != 2 || memcmp(line, "0\n", 2) != 0) {
		fprintf(stderr, "exit says %.*s\n", (int)n, line);
		exit(1);
	}
	close(fd);
	if (rmdir(dir) < 0)
		die("rmdir %s", dir);
}

static void fs_stdout(const char *mount, const char *bytes, size_t size)
{
	char spec[8192];
	char dir[4096];
	double start = now();
	uint64_t n;
	int fd;

	snprintf(spec, sizeof(spec), "[\"%s\",\"produce\",\"%s\"]", self, bytes);
	make_exec(mount, "bench", spec, dir, sizeof(dir));
	fd = open_file(dir, "stdout", O_RDONLY);
	n = read_all(fd, size);
	print_rate(n, now() - start);
	close(fd);
	end_exec(dir);
}

static void fs_stdin(const char *mount, uint64_t bytes, size_t size)
{
	char spec[8192];
	char dir[4096];
	double start = now();
	int fd;

	snprintf(spec, sizeof(spec), "[\"%s\",\"consume\"]", self);
	make_exec(mount, "bench", spec, dir, sizeof(dir));
	fd = open_file(dir, "stdin", O_WRONLY);
	write_all(fd, bytes, size);
	close(fd);
	fd = open_file(dir, "stdout", O_RDONLY);
	read_all(fd, 4096);
	print_rate(bytes, now() - start);
	close(fd);
	end_exec(dir);
}

static void fs_exec(const char *mount, int rounds)
{
	double *t = calloc((size_t)rounds, sizeof(*t));
	char name[64];
	char dir[4096];

	for (int i = 0; i < rounds; i++) {
		double start = now();
		int fd;

		snprintf(name, sizeof(name), "cycle-%d-%d", (int)getpid(), i);
		make_exec(mount, name, "[\"/bin/true\"]", dir, sizeof(dir));
		fd = open_file(dir, "stdout", O_RDONLY);
		read_all(fd, 4096);
		close(fd);
		end_exec(dir);
		t[i] = now() - start;
	}
	print_median(t, rounds);
	free(t);
}

static void *start_exec(void *dir)
{
	char *name = strrchr(dir, '/');
	char path[4096];

	*name = '\0';
	make_exec(dir, name + 1, "[\"/bin/true\"]", path, sizeof(path));
	*name = '/';
	return NULL;
}

/* A thread for each: the write of a spec returns when the command has started. */
static void fs_many(const char *mount, int count)
{
	pthread_t *threads = calloc((size_t)count, sizeof(*threads));
	char(*dirs)[256] = calloc((size_t)count, sizeof(*dirs));
	double start = now();

	for (int i = 0; i < count; i++) {
		snprintf(dirs[i], sizeof(dirs[i]), "%s/many-%d-%d", mount, (int)getpid(), i);
		errno = pthread_create(&threads[i], NULL, start_exec, dirs[i]);
		if (errno)
			die("thread %d", i);
	}
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		end_exec(dirs[i]);
	}
	printf("%.1f\n", (now() - start) * 1e3);
}

static void fs_echo(const char *mount, int rounds)
{
	char dir[4096];
	int in;
	int out;

	make_exec(mount, "echo", "[\"/bin/cat\"]", dir, sizeof(dir));
	in = open_file(dir, "stdin", O_WRONLY);
	out = open_file(dir, "stdout", O_RDONLY);
	echo_lines(in, out, rounds);
	close(in);
	close(out);
	end_exec(dir);
}

static void *block(void *path)
{
	char byte;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, &byte, 1) < 0)
		die("read %s", (char *)path);
	close(fd);
	return NULL;
}

static void fs_block(const char *mount, int readers)
{
	char path[4096];
	char line[8];
	pthread_attr_t attr;
	pthread_t thread;

	snprintf(path, sizeof(path), "%s/block", mount);
	if (mkdir(path, 0700) < 0)
		die("mkdir %s", path);
	strcat(path, "/stdout");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	for (int i = 0; i < readers; i++) {
		errno = pthread_create(&thread, &attr, block, path);
		if (errno)
			die("thread %d", i);
	}
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *a = argc > 2 ? argv[2] : "";
	const char *b = argc > 3 ? argv[3] : "";
	const char *c = argc > 4 ? argv[4] : "";
	char **prefix = argv + (argc < 3 ? argc : 3);
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		die("/proc/self/exe");
	if (strcmp(what, "produce") == 0)
		return produce(strtoull(a, NULL, 10));
	if (strcmp(what, "consume") == 0)
		return consume();
	if (strcmp(what, "pipe-stdout") == 0)
		pipe_stdout(a, strtoul(b, NULL, 10), prefix + !!*prefix);
	else if (strcmp(what, "pipe-stdin") == 0)
		pipe_stdin(strtoull(a, NULL, 10), strtoul(b, NULL, 10));
	else if (strcmp(what, "pipe-exec") == 0)
		pipe_exec(atoi(a), prefix);
	else if (strcmp(what, "pipe-many") == 0)
		pipe_many(atoi(a), prefix);
	else if (strcmp(what, "pipe-echo") == 0)
		pipe_echo(atoi(a));
	else if (strcmp(what, "fs-stdout") == 0)
		fs_stdout(a, b, strtoul(c, NULL, 10));
	else if (strcmp(what, "fs-stdin") == 0)
		fs_stdin(a, strtoull(b, NULL, 10), strtoul(c, NULL, 10));
	else if (strcmp(what, "fs-exec") == 0)
		fs_exec(a, atoi(b));
	else if (strcmp(what, "fs-many") == 0)
		fs_many(a, atoi(b));
	else if (strcmp(what, "fs-echo") == 0)
		fs_echo(a, atoi(b));
	else if (strcmp(what, "fs-block") == 0)
		fs_block(a, atoi(b));
	else
		return 2;
	return 0;
}

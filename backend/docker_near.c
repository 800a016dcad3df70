#include "docker_near.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "bounds.h"
#include "docker_body.h"
#include "proc_stat.h"
#include "text.h"
#include "util.h"

struct process {
	int64_t pid;
	struct proc_stat stat;
	bool marked;
	bool ours;
};

struct table {
	struct process *all;
	size_t count;
	size_t capacity;
};

static void cleanup_table(struct table *table)
{
	free(table->all);
}

#define AUTO_TABLE __attribute__((cleanup(cleanup_table)))

/* A whole file of /proc/PID, NULs and all. Returns 0 or -errno. */
static int read_proc(int64_t pid, const char *name, struct text *ret)
{
	char path[64];
	AUTO_CLOSE int fd = -1;
	char buf[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%" PRId64 "/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (text_append(ret, buf, (size_t)n) < 0)
			return -ENOMEM;
	return n < 0 ? -errno : 0;
}

static bool has_ended(int err)
{
	return err == -ENOENT || err == -ESRCH;
}

/* Returns 1, 0, or -errno: nobody knows. */
static int is_in_container(int64_t pid, const char *container)
{
	AUTO_TEXT struct text cgroups = {0};
	int err = read_proc(pid, "cgroup", &cgroups);

	if (err < 0)
		return has_ended(err) ? 0 : err;
	return strlen(container) >= DOCKER_ID_HEX && strstr(text_str(&cgroups), container);
}

/* Returns 0; -ESRCH: it has ended; or another -errno. */
static int read_living(int64_t pid, struct proc_stat *ret)
{
	int err = proc_stat_read(pid, ret);

	if (err < 0)
		return err;
	/* A dead leader may have living threads. */
	return ret->state == 'X' || (ret->state == 'Z' && ret->threads <= 1) ? -ESRCH : 0;
}

/* A /proc of another pid namespace has other numbers than our calls. */
static bool proc_is_ours(void)
{
	char self[24];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	if (n < 0)
		return false;
	self[n] = '\0';
	return strtoll(self, NULL, 10) == getpid();
}

uint64_t docker_near_ticks(const char *container, int64_t pid)
{
	struct proc_stat stat;

	return pid > 1 && proc_is_ours() && is_in_container(pid, container) == 1 &&
			       read_living(pid, &stat) == 0
		       ? stat.ticks
		       : 0;
}

/* Whether its environment has the mark, to its NUL. Returns 1, 0, or -errno: nobody knows. */
static int has_mark(int64_t pid, const char *mark)
{
	AUTO_TEXT struct text environment = {0};
	AUTO_TEXT struct text entry = {0};
	int err = read_proc(pid, "environ", &environment);
	int found;

	if (!err)
		err = text_printf(&entry, DOCKER_MARK "=%s", mark);
	if (err < 0 && !has_ended(err))
		return err;
	found = !err && environment.len &&
		memmem(environment.data, environment.len, entry.data, entry.len + 1);
	text_wipe(&environment);
	return found;
}

static int add(struct table *table, int64_t pid, const struct docker_near *near)
{
	struct process p = {.pid = pid};
	int ret = is_in_container(pid, near->container);

	if (ret <= 0)
		return ret;
	ret = read_living(pid, &p.stat);
	if (ret < 0)
		return ret == -ESRCH ? 0 : ret;
	ret = has_mark(pid, near->mark);
	if (ret < 0)
		return ret;
	p.marked = ret;
	if (table->count == table->capacity) {
		size_t capacity = table->capacity ? 2 * table->capacity : 64;
		struct process *all = realloc(table->all, capacity * sizeof(*all));

		if (!all)
			return -ENOMEM;
		table->all = all;
		table->capacity = capacity;
	}
	table->all[table->count++] = p;
	return 0;
}

/* A number that now is another process's says nothing. */
static bool leader_is_reused(const struct table *table, const struct docker_near *near)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->all[i].pid == near->leader)
			return table->all[i].stat.ticks != near->ticks;
	return false;
}

static bool is_child_of_ours(const struct table *table, const struct process *p)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->all[i].ours && table->all[i].pid == p->stat.parent)
			return true;
	return false;
}

/* Returns how many there are. */
static int choose(struct table *table, const struct docker_near *near)
{
	int64_t leader = leader_is_reused(table, near) ? 0 : near->leader;
	int count = 0;
	int before;

	for (size_t i = 0; i < table->count; i++) {
		struct process *p = &table->all[i];

		p->ours = p->marked ||
			  (leader > 1 && (p->pid == leader || p->stat.session == leader ||
					  p->stat.group == leader));
		count += p->ours;
	}
	do {
		before = count;
		for (size_t i = 0; i < table->count; i++) {
			struct process *p = &table->all[i];

			if (!p->ours && is_child_of_ours(table, p)) {
				p->ours = true;
				count++;
			}
		}
	} while (count > before);
	return count;
}

/* Fills an empty table with the container's processes. Returns how many are the command's. */
static int look(struct table *table, const struct docker_near *near)
{
	struct dirent *entry;
	int err = 0;
	DIR *proc;

	/* Without privileges, /proc may hide what it has (hidepid). */
	if (geteuid() != 0)
		return -EPERM;
	if (!docker_near_ticks(near->container, near->init))
		return -EXDEV;
	proc = opendir("/proc");
	if (!proc)
		return -errno;
	while (!err && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			err = add(table, strtoll(entry->d_name, NULL, 10), near);
	closedir(proc);
	return err < 0 ? err : choose(table, near);
}

/* A process within execve(2) has no environment for a moment: one look that misses it is none. */
int docker_near_check(const struct docker_near *near)
{
	int found = 0;

	for (int round = 0; found == 0 && round < DOCKER_NEAR_ROUNDS; round++) {
		AUTO_TABLE struct table table = {0};

		found = look(&table, near);
	}
	return MIN(found, 1);
}

/* The pidfd keeps the number from being given out again between the look and the signal. */
static void send_signal(const struct process *p, int signo)
{
	AUTO_CLOSE int fd = p->pid > 1 ? pidfd_open((pid_t)p->pid, 0) : -1;
	struct proc_stat now;

	if (fd >= 0 && read_living(p->pid, &now) == 0 && now.ticks == p->stat.ticks)
		pidfd_send_signal(fd, signo, NULL, 0);
}

int docker_near_kill(const struct docker_near *near)
{
	int found = 1;

	/* A fork that was under way leaves a child: it is found in the next round. */
	for (int round = 0; found > 0 && round < DOCKER_NEAR_ROUNDS; round++) {
		AUTO_TABLE struct table table = {0};

		found = look(&table, near);
		for (size_t i = 0; found > 0 && i < table.count; i++)
			if (table.all[i].ours)
				send_signal(&table.all[i], SIGKILL);
	}
	return found ? MIN(found, 1) : docker_near_check(near);
}

int docker_near_signal(const struct docker_near *near, int signo)
{
	struct docker_near self = *near;
	AUTO_TABLE struct table table = {0};
	int err;

	if (!near->leader || !near->ticks)
		return -EXDEV;
	if (docker_near_ticks(near->container, near->leader) != near->ticks)
		return -ESRCH;
	self.init = near->leader;
	err = look(&table, &self);
	for (size_t i = 0; err > 0 && i < table.count; i++)
		if (table.all[i].stat.group == near->leader)
			send_signal(&table.all[i], signo);
	return MIN(err, 0);
}

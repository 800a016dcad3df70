#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bounds.h"

#define NAME_PREFIX "spawnfs-"

/* How deep a command may nest groups before their removal is left to whoever made them. */
#define NESTING_MAX 32

/* ---- Small files ---- */

static int write_at(int dir, const char *path, const char *content)
{
	AUTO_CLOSE int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, content, strlen(content)) < 0)
		return -errno;
	return 0;
}

static ssize_t read_at(int dir, const char *path, char *buf, size_t size)
{
	AUTO_CLOSE int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return n;
}

/* ---- Removal ---- */

static bool populated(int dir, const char *name)
{
	char path[NAME_BYTES_MAX + 16];
	char events[256];

	snprintf(path, sizeof(path), "%s/cgroup.events", name);
	if (read_at(dir, path, events, sizeof(events)) < 0)
		return false;
	return strstr(events, "populated 1");
}

static int remove_tree(int dir, const char *name, int depth);

static void remove_children(int fd, int depth)
{
	DIR *listing = fdopendir(fd);
	struct dirent *entry;

	if (!listing) {
		close(fd);
		return;
	}
	while ((entry = readdir(listing)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			remove_tree(dirfd(listing), entry->d_name, depth - 1);
	closedir(listing);
}

/* A command can have made groups of its own, below; they are removed with it. */
static int remove_tree(int dir, const char *name, int depth)
{
	int fd;

	if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY || !depth)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		remove_children(fd, depth);
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	return -errno;
}

static int remove_group(int dir, const char *name)
{
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY)
		return -errno;
	if (populated(dir, name))
		return -EBUSY;
	return remove_tree(dir, name, NESTING_MAX) < 0 ? -EAGAIN : 0;
}

/* ---- Where groups can be made ---- */

/* Reads this process's own path in the v2 hierarchy, from "0::/path" in proc(5). */
static int own_path(char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	int err = -ENOENT;
	AUTO_FREE char *line = NULL;
	size_t capacity = 0;

	if (!f)
		return -errno;
	while (getline(&line, &capacity, f) > 0) {
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		/* Outside the root of the cgroup namespace (cgroup_namespaces(7)). */
		err = strncmp(line + 3, "/..", 3) == 0 ? -EXDEV
		      : strlen(line + 3) >= size       ? -ENAMETOOLONG
						       : 0;
		if (!err)
			memcpy(ret, line + 3, strlen(line + 3) + 1);
		break;
	}
	fclose(f);
	return err;
}

/* Appends where own is, if this line of mountinfo (proc(5)) is a cgroup2 mount that shows it. */
static bool mount_shows(const char *line, const char *own, struct text *ret)
{
	char root[1024];
	char point[1024];
	size_t len;

	if (!strstr(line, " - cgroup2 ") ||
	    sscanf(line, "%*s %*s %*s %1023s %1023s", root, point) != 2)
		return false;
	len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(own, root, len) != 0 || (own[len] && own[len] != '/'))
		return false;
	return text_printf(ret, "%s%s", point, strcmp(own + len, "/") == 0 ? "" : own + len) == 0;
}

static int find_parent(struct text *ret, struct text *why)
{
	char own[4096] = "";
	AUTO_FREE char *line = NULL;
	size_t capacity = 0;
	bool found = false;
	int err = own_path(own, sizeof(own));
	FILE *f;

	if (err < 0)
		return text_fail(why, err, "no cgroup v2 of this process in /proc/self/cgroup: %s",
				 strerror(-err));
	f = fopen("/proc/self/mountinfo", "re");
	if (!f)
		return text_fail(why, -errno, "cannot read /proc/self/mountinfo: %s",
				 strerror(errno));
	while (!found && getline(&line, &capacity, f) > 0)
		found = mount_shows(line, own, ret);
	fclose(f);
	if (!found)
		return text_fail(why, -ENOENT, "no cgroup2 file system shows the group %s", own);
	return 0;
}

/* ---- Groups left behind ---- */

static void remove_if_stale(int parent, const char *name)
{
	AUTO_CLOSE int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	write_at(fd, "cgroup.kill", "1");
	/* What is still dying is left for the next mount. */
	for (int i = 0; i < 100 && populated(parent, name); i++)
		usleep(1000);
	remove_group(parent, name);
}

static void remove_stale(int parent)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!listing) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(listing)))
		if (strncmp(entry->d_name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0)
			remove_if_stale(parent, entry->d_name);
	closedir(listing);
}

/* ---- The mount's group ---- */

/* Opens and locks a new group. Returns 0, -EAGAIN when somebody took it for a stale one, or -errno.
 */
static int lock_new(struct cgroup *c)
{
	c->fd = openat(c->parent, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->fd < 0 || flock(c->fd, LOCK_EX | LOCK_NB) < 0)
		return -EAGAIN;
	if (faccessat(c->fd, "cgroup.kill", W_OK, 0) == 0)
		return 0;
	/* Removed in the meantime, or older than Linux 5.14, which brought cgroup.kill. */
	return faccessat(c->fd, "cgroup.procs", F_OK, 0) < 0 ? -EAGAIN : -ENOSYS;
}

static int make_locked(struct cgroup *c)
{
	int err = -EAGAIN;

	for (int tries = 0; tries < 8 && err == -EAGAIN; tries++) {
		unsigned random = 0;

		if (getrandom(&random, sizeof(random), 0) < 0)
			return -errno;
		snprintf(c->name, sizeof(c->name), NAME_PREFIX "%d-%08x", getpid(), random);
		if (mkdirat(c->parent, c->name, 0755) < 0)
			return -errno;
		err = lock_new(c);
		if (err < 0) {
			close_fd(&c->fd);
			unlinkat(c->parent, c->name, AT_REMOVEDIR);
		}
	}
	return err;
}

/* A start into the group and a kill: rights and seccomp filters show only when tried. */
static int probe(const struct cgroup *c)
{
	AUTO_CLOSE int group = cgroup_slot_make(c, 0);
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)group,
	};
	int err = 0;
	pid_t pid;

	if (group < 0)
		return group;
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		for (;;)
			pause();
	if (pid < 0) {
		err = -errno;
	} else {
		err = cgroup_slot_kill(c, 0);
		if (err < 0)
			kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	for (int i = 0; i < 100 && cgroup_slot_remove(c, 0) == -EBUSY; i++)
		usleep(1000);
	return err;
}

int cgroup_open(struct cgroup *ret, struct text *path, struct text *why)
{
	struct cgroup c = {.fd = -1, .parent = -1};
	int err = find_parent(path, why);

	if (err < 0)
		return err;
	c.parent = open(text_str(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c.parent < 0)
		return text_fail(why, -errno, "cannot open the cgroup %s: %s", text_str(path),
				 strerror(errno));
	remove_stale(c.parent);
	err = make_locked(&c);
	if (err == 0) {
		err = probe(&c);
		if (err < 0)
			cgroup_remove(&c);
	}
	if (err == 0)
		err = text_printf(path, "/%s", c.name);
	if (err < 0) {
		cgroup_done(&c);
		return text_fail(why, err, "cannot make and use a cgroup below %s: %s",
				 text_str(path), strerror(-err));
	}
	*ret = c;
	return 0;
}

void cgroup_done(struct cgroup *c)
{
	close_fd(&c->fd);
	close_fd(&c->parent);
}

int cgroup_remove(const struct cgroup *c)
{
	return remove_group(c->parent, c->name);
}

int cgroup_kill_all(const struct cgroup *c)
{
	return write_at(c->fd, "cgroup.kill", "1");
}

/* ---- The groups of commands ---- */

int cgroup_slot_make(const struct cgroup *c, unsigned slot)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "%u", slot);
	if (mkdirat(c->fd, name, 0755) < 0)
		return -errno;
	fd = openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		int err = -errno;

		unlinkat(c->fd, name, AT_REMOVEDIR);
		return err;
	}
	return fd;
}

int cgroup_slot_remove(const struct cgroup *c, unsigned slot)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", slot);
	return remove_group(c->fd, name);
}

int cgroup_slot_kill(const struct cgroup *c, unsigned slot)
{
	char path[32];

	snprintf(path, sizeof(path), "%u/cgroup.kill", slot);
	return write_at(c->fd, path, "1");
}

int cgroup_slot_watch(const struct cgroup *c, unsigned slot)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "%u/cgroup.events", slot);
	fd = openat(c->fd, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool cgroup_slot_has(const struct cgroup *c, unsigned slot, int pid)
{
	char path[64];
	char line[4096];
	char group[128];
	char *at;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	if (read_at(AT_FDCWD, path, line, sizeof(line)) < 0)
		return false;
	/* The paths in there are relative to a cgroup namespace: the random name says it all. */
	snprintf(group, sizeof(group), "/%s/%u", c->name, slot);
	at = strstr(line, group);
	return at && strchr("/\n", at[strlen(group)]);
}

#include "mount_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bounds.h"

/* O_PATH: the walk ends at the mount's root without a request to the file system. */
static int mount_id_of(const char *path)
{
	AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
	char name[64];
	char line[128];
	FILE *info;
	int id = -ENOENT;

	if (fd < 0)
		return -errno;
	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	info = fopen(name, "re");
	if (!info)
		return -errno;
	while (fgets(line, sizeof(line), info))
		sscanf(line, "mnt_id: %d", &id);
	fclose(info);
	return id;
}

static int read_all(int fd, struct text *ret)
{
	char buf[4096];
	ssize_t n;
	int err = 0;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	while (!err && (n = read(fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			err = text_append(ret, buf, (size_t)n);
	}
	return err;
}

/*
 * A line of mountinfo begins with the mount's id, its parent's, the device, the part of it that is
 * mounted, and the mountpoint (proc(5)).
 */
struct mount_line {
	int id;
	dev_t device;
	int path_at;
};

static bool parse_line(const char *line, struct mount_line *ret)
{
	unsigned major_number;
	unsigned minor_number;

	if (sscanf(line, "%d %*d %u:%u %*s %n", &ret->id, &major_number, &minor_number,
		   &ret->path_at) != 3)
		return false;
	ret->device = makedev(major_number, minor_number);
	return true;
}

static const char *next_line(const char *line)
{
	line = strchr(line, '\n');
	return line ? line + 1 : NULL;
}

/* Finds the device of a mount (id), or any mount of a device (id -1). Returns 0 or -errno. */
static int find(int fd, int id, dev_t *device)
{
	AUTO_TEXT struct text mounts = {0};
	int err = read_all(fd, &mounts);

	if (err < 0)
		return err;
	for (const char *line = text_str(&mounts); line && *line; line = next_line(line)) {
		struct mount_line found;

		if (parse_line(line, &found) &&
		    (id < 0 ? found.device == *device : found.id == id)) {
			*device = found.device;
			return 0;
		}
	}
	return -ENOENT;
}

/* A list that changes while it is read may lack a line: two must say that it is not there. */
static void look(struct timer *timer)
{
	struct mount_watch *w = container_of(timer, struct mount_watch, timer);

	if (find(w->source.fd, -1, &w->device) != -ENOENT) {
		w->misses = 0;
		return;
	}
	if (w->misses++ == 0) {
		timer_arm(w->loop, timer, MOUNT_LOOK_MS);
		return;
	}
	loop_unwatch(&w->source);
	w->gone(w);
}

/* The list has changed. Many changes in a row are looked at once. */
static void on_change(struct source *source, uint32_t events)
{
	struct mount_watch *w = container_of(source, struct mount_watch, source);

	if (!timer_armed(&w->timer))
		timer_arm(w->loop, &w->timer, MOUNT_LOOK_MS);
}

int mount_watch_open(struct mount_watch *w, struct loop *loop, const char *path)
{
	int id = mount_id_of(path);
	int err;

	w->loop = loop;
	w->timer.fire = look;
	w->source.ready = on_change;
	w->source.fd = id < 0 ? id : open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (w->source.fd < 0)
		return id < 0 ? id : -errno;
	err = find(w->source.fd, id, &w->device);
	/* proc(5): a change is an exceptional condition. */
	if (!err)
		err = loop_watch(loop, &w->source, EPOLLPRI);
	if (err < 0)
		mount_watch_close(w);
	return err;
}

static bool is_octal(const char *s)
{
	for (int i = 0; i < 3; i++)
		if (s[i] < '0' || s[i] > '7')
			return false;
	return true;
}

/* Blanks and backslashes of a name stand there as three octal digits (proc(5)). */
static int append_name(struct text *ret, const char *name)
{
	int err = 0;

	while (!err && *name && *name != ' ') {
		char byte = *name++;

		if (byte == '\\' && is_octal(name)) {
			byte = (char)(((name[0] - '0') << 6) | ((name[1] - '0') << 3) |
				      (name[2] - '0'));
			name += 3;
		}
		err = text_append(ret, &byte, 1);
	}
	return err;
}

static int look_for_path(const struct mount_watch *w, struct text *ret)
{
	AUTO_TEXT struct text mounts = {0};
	int err = read_all(w->source.fd, &mounts);
	int none = -ENOENT;

	for (const char *line = text_str(&mounts); !err && line && *line; line = next_line(line)) {
		AUTO_TEXT struct text path = {0};
		struct mount_line found;

		if (!parse_line(line, &found) || found.device != w->device)
			continue;
		err = append_name(&path, line + found.path_at);
		if (!err && mount_id_of(text_str(&path)) == found.id)
			return text_append(ret, path.data, path.len);
		none = -EBUSY;
	}
	return err ? err : none;
}

int mount_watch_path(const struct mount_watch *w, struct text *ret)
{
	int err = w->source.fd < 0 ? -EOPNOTSUPP : look_for_path(w, ret);

	return err == -ENOENT ? look_for_path(w, ret) : err;
}

void mount_watch_close(struct mount_watch *w)
{
	loop_unwatch(&w->source);
	timer_cancel(&w->timer);
	close_fd(&w->source.fd);
}

/*
 * Prefixes like bwrap and unshare make a new PID name space for each call, which no
 * second call can look into. But it lies below this machine's own, so its processes can be
 * seen from here (pid_namespaces(7)), and the kernel kills all of them with its init.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "via.h"

/* Returns the length, cut off at the size of the buffer, or -errno. */
static ssize_t read_file(const char *path, char *buf, size_t size)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return n;
}

/* A boot id is random (random(4)): the same one is the same running kernel. */
static bool on_this_kernel(const struct script_place *place)
{
	char boot[64];

	if (!place->boot[0] || !place->space[0])
		return false;
	if (read_file("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) <= 0)
		return false;
	boot[strcspn(boot, "\n")] = '\0';
	return strcmp(boot, place->boot) == 0;
}

static bool in_space(pid_t pid, const struct script_place *place)
{
	char path[64];
	char link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return false;
	link[n] = '\0';
	return strcmp(link, place->space) == 0;
}

/* The line of /proc/PID/status (proc(5)) that begins with key, without it. NULL: none. */
static const char *status_line(pid_t pid, const char *key, char *buf, size_t size)
{
	char path[64];
	char *line;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (read_file(path, buf, size) <= 0)
		return NULL;
	line = strstr(buf, key);
	if (!line)
		return NULL;
	line += strlen(key);
	line[strcspn(line, "\n")] = '\0';
	return line;
}

/* Its pid in the innermost name space that it is in. */
static pid_t inner_pid(pid_t pid)
{
	char status[4096];
	const char *line = status_line(pid, "\nNSpid:", status, sizeof(status));
	const char *last = line ? strrchr(line, '\t') : NULL;

	return last ? (pid_t)strtol(last + 1, NULL, 10) : 0;
}

/* One that nobody has reaped yet still has its name space, and does nothing in it. */
static bool alive(pid_t pid)
{
	char status[4096];
	const char *state = status_line(pid, "\nState:\t", status, sizeof(status));

	return state && *state != 'Z' && *state != 'X';
}

/* The first living process of the name space that has the inner pid; any, when that is 0. */
static pid_t find(const struct script_place *place, pid_t inner)
{
	DIR *proc = on_this_kernel(place) ? opendir("/proc") : NULL;
	struct dirent *entry;
	pid_t found = 0;

	while (proc && !found && (entry = readdir(proc))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 1 && in_space(pid, place) && (!inner || inner_pid(pid) == inner) &&
		    alive(pid))
			found = pid;
	}
	if (proc)
		closedir(proc);
	return found;
}

/* Looks for a process of the name space among pid and its descendants. Returns it, or 0. */
static pid_t below(const struct script_place *place, pid_t inner, pid_t pid, unsigned depth)
{
	char path[64];
	char children[4096];
	char *rest = children;
	pid_t found = 0;

	if (inner_pid(pid) == inner && in_space(pid, place))
		return pid;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (!depth || read_file(path, children, sizeof(children)) <= 0)
		return 0;
	while (!found) {
		pid_t child = (pid_t)strtol(rest, &rest, 10);

		if (child <= 1)
			break;
		found = below(place, inner, child, depth - 1);
	}
	return found;
}

bool via_space_ends_with(const struct script_place *place, pid_t prefix)
{
	return prefix > 1 && on_this_kernel(place) && !in_space(getpid(), place) &&
	       below(place, 1, prefix, VIA_WRAPPERS_MAX);
}

bool via_dies_with(const struct script_place *place, pid_t shell, pid_t prefix)
{
	pid_t pid;

	if (prefix <= 1 || shell < 1 || !on_this_kernel(place))
		return false;
	if (!in_space(getpid(), place))
		return via_space_ends_with(place, prefix);
	pid = below(place, shell, prefix, VIA_WRAPPERS_MAX);
	return pid > 1 && kill(pid, 0) == 0;
}

bool via_space_is_inhabited(const struct script_place *place)
{
	return find(place, 0);
}

pid_t via_leader_here(const struct script_place *place)
{
	return place->pid > 1 ? find(place, (pid_t)place->pid) : 0;
}

#include "docker_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where a pid means something: this boot, this PID name space. */
static int print_place(struct text *ret)
{
	char boot[64] = "";
	AUTO_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	struct stat ns;

	if (fd < 0 || read(fd, boot, sizeof(boot) - 1) < 0 || stat("/proc/self/ns/pid", &ns) < 0)
		return -errno;
	boot[strcspn(boot, "\n")] = '\0';
	return text_printf(ret, "%s %llu", boot, (unsigned long long)ns.st_ino);
}

/* starttime of proc(5): with the pid, it names a process for good. 0: there is none. */
static unsigned long long start_of(pid_t pid)
{
	char path[32];
	char stat[1024] = "";
	unsigned long long start = 0;
	const char *at;
	AUTO_CLOSE int fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, stat, sizeof(stat) - 1) <= 0)
		return 0;
	at = strrchr(stat, ')');
	/* Fields 3 to 21 stand between the name and it. */
	if (at)
		sscanf(at + 1,
		       " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		       "%*s "
		       "%llu",
		       &start);
	return start;
}

int docker_owner_print(struct text *ret)
{
	int err = print_place(ret);

	return err ? err : text_printf(ret, " %d %llu", (int)getpid(), start_of(getpid()));
}

bool docker_owner_is_dead(const char *owner)
{
	AUTO_TEXT struct text place = {0};
	unsigned long long start;
	int pid;

	if (print_place(&place) < 0 || strncmp(owner, text_str(&place), place.len) != 0 ||
	    sscanf(owner + place.len, " %d %llu", &pid, &start) != 2 || pid <= 0 || !start)
		return false;
	return start_of(pid) != start;
}

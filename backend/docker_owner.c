#include "docker_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc_stat.h"

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

/* 0: there is no such process. */
static unsigned long long start_of(pid_t pid)
{
	struct proc_stat stat;

	return proc_stat_read(pid, &stat) == 0 ? stat.ticks : 0;
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

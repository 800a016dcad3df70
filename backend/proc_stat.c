#include "proc_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

int proc_stat_read(int64_t pid, struct proc_stat *ret)
{
	char path[40];
	char line[1024] = "";
	AUTO_CLOSE int fd = -1;
	struct proc_stat s;
	const char *rest;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, line, sizeof(line) - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ESRCH;
	/* The name, field 2, may hold anything; fields 9 to 19 and 21 are passed over. */
	rest = strrchr(line, ')');
	if (!rest || sscanf(rest,
			    ") %c %" SCNd64 " %" SCNd64 " %" SCNd64
			    " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %" SCNu64,
			    &s.state, &s.parent, &s.group, &s.session, &s.threads, &s.ticks) != 6)
		return -ESRCH;
	*ret = s;
	return 0;
}

/* Before the mount, and after it: this may block, since nothing is served. */
#include "mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "util.h"

#define FUSE_DEVICE "/dev/fuse"

static int check_device(struct text *why)
{
	AUTO_CLOSE int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	/* libfuse does not get as far as fusermount3, which opens it as the user, too. */
	if (errno == EACCES)
		return text_fail(why, -errno,
				 "cannot open " FUSE_DEVICE
				 ": %s: allow it to all with chmod 666 " FUSE_DEVICE
				 ", or mount as root",
				 strerror(errno));
	if (errno == EPERM)
		return text_fail(why, -errno,
				 "cannot open " FUSE_DEVICE ": %s: start the container with "
				 "--device " FUSE_DEVICE " --cap-add SYS_ADMIN",
				 strerror(errno));
	if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		return text_fail(
			why, -errno,
			"there is no " FUSE_DEVICE ": load the module with modprobe fuse, or "
			"start the container with --device " FUSE_DEVICE " --cap-add SYS_ADMIN");
	return text_fail(why, -errno, "cannot open " FUSE_DEVICE ": %s", strerror(errno));
}

int mountpoint_detach(const char *path)
{
	const char *const argv[] = {"fusermount3", "-uqz", "--", path, NULL};
	pid_t pid;
	int status;

	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ) == 0 &&
	    waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return -EPERM;
}

/* What a daemon that was killed leaves: everything on it fails with ENOTCONN. */
static int take_dead_mount_away(const char *path, struct text *why)
{
	log_info("taking away the dead mount on %s", path);
	if (mountpoint_detach(path) == 0)
		return 0;
	return text_fail(why, -ENOTCONN,
			 "%s holds a dead mount that cannot be taken away: try fusermount3 -uz %s",
			 path, path);
}

/* Another mount of ours there would be hidden, with its commands running on unseen. */
static int check_not_mounted(const char *path, struct text *why)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	char buf[4096];
	struct mntent entry;
	bool found = false;

	if (!mounts)
		return 0;
	while (getmntent_r(mounts, &entry, buf, sizeof(buf)))
		if (strcmp(entry.mnt_dir, path) == 0)
			found = strcmp(entry.mnt_type, "fuse.spawnfs") == 0;
	endmntent(mounts);
	if (found)
		return text_fail(
			why, -EBUSY,
			"a spawnfs is mounted on %s already: end it first with fusermount3 -u %s",
			path, path);
	return 0;
}

int mountpoint_check(const char *path, struct text *why)
{
	struct statfs fs;
	struct stat st;
	int err;

	/* Not stat(2): the kernel may remember what it said. */
	if (statfs(path, &fs) < 0 && errno == ENOTCONN) {
		err = take_dead_mount_away(path, why);
		if (err < 0)
			return err;
	}
	if (stat(path, &st) < 0) {
		err = -errno;
		if (err == -ENOENT)
			return text_fail(
				why, err,
				"the mountpoint %s does not exist: make it with mkdir -p %s", path,
				path);
		return text_fail(why, err, "cannot use the mountpoint %s: %s", path,
				 strerror(-err));
	}
	if (!S_ISDIR(st.st_mode))
		return text_fail(why, -ENOTDIR, "the mountpoint %s is not a directory: give one",
				 path);
	err = check_not_mounted(path, why);
	return err < 0 ? err : check_device(why);
}

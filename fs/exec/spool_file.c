/* The file behind a spool: opened late, unlinked at once, a ring. */
#include "spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "text.h"

/* For file systems without O_TMPFILE (open(2)). */
static int open_and_unlink(const char *dir)
{
	AUTO_TEXT struct text path = {0};
	int err = text_printf(&path, "%s/.spawnfs-spool-XXXXXX", dir);
	int fd;

	if (err < 0)
		return err;
	fd = mkostemp(path.data, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path.data);
	return fd;
}

static int open_file(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);

	if (fd >= 0)
		return fd;
	/* EISDIR: a kernel, EOPNOTSUPP: a file system, that does not know the flag. */
	if (errno == EISDIR || errno == EOPNOTSUPP)
		return open_and_unlink(dir);
	return -errno;
}

ssize_t spool_file_write(struct spool *s, uint64_t off, const void *data, size_t len)
{
	uint64_t at = off % s->file_size;
	ssize_t n;

	if (s->file < 0) {
		int fd = open_file(s->dir);

		if (fd < 0)
			return fd;
		s->file = fd;
	}
	do
		n = pwrite(s->file, data, MIN(len, s->file_size - at), (off_t)at);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ENOSPC;
	return n < 0 ? -errno : n;
}

ssize_t spool_file_read(const struct spool *s, uint64_t off, void *data, size_t len)
{
	uint64_t at = off % s->file_size;
	ssize_t n;

	do
		n = pread(s->file, data, MIN(len, s->file_size - at), (off_t)at);
	while (n < 0 && errno == EINTR);
	/* The end of the file before the end of what was written: it is damaged. */
	if (n == 0)
		return -EIO;
	return n < 0 ? -errno : n;
}

void spool_file_clear(struct spool *s)
{
	if (s->file >= 0 && ftruncate(s->file, 0) < 0)
		return;
}

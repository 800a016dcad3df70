#include "spool_stream.h"

#include <errno.h>
#include <sys/resource.h>

#include "check.h"

/* No short period, so that bytes of a wrong place show. */
static unsigned char byte_at(uint64_t off)
{
	uint64_t x = (off >> 3) * 0x9e3779b97f4a7c15u;

	return (unsigned char)(x >> (8 * (off & 7)));
}

static void fill(unsigned char *p, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = byte_at(off + i);
}

static void check_bytes(const unsigned char *p, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		CHECK_INT(p[i], byte_at(off + i));
}

/* Reads and checks what there is at off. Returns what spool_peek() does. */
ssize_t stream_read(struct spool *s, uint64_t off, size_t len)
{
	unsigned char *bounce = malloc(len);
	struct spool_slice slice;
	ssize_t n = spool_peek(s, off, len, bounce, &slice);
	size_t total = 0;

	CHECK(bounce);
	for (int i = 0; i < slice.count; i++) {
		CHECK(slice.iov[i].iov_len > 0);
		check_bytes(slice.iov[i].iov_base, off + total, slice.iov[i].iov_len);
		total += slice.iov[i].iov_len;
	}
	if (n > 0)
		CHECK_INT(total, n);
	else
		CHECK_INT(slice.count, 0);
	CHECK(n <= (ssize_t)len);
	free(bounce);
	return n;
}

void stream_check(struct spool *s)
{
	uint64_t off = s->first;

	while (off < s->next) {
		ssize_t n = stream_read(s, off, 1 << 20);

		CHECK(n > 0);
		off += (uint64_t)n;
	}
	CHECK_INT(stream_read(s, s->next, 100), s->ended ? 0 : -EAGAIN);
	if (s->first)
		CHECK_INT(stream_read(s, s->first - 1, 100), -ENODATA);
}

/* Adds len bytes. Returns 0 or -EAGAIN. */
int stream_append(struct spool *s, size_t len)
{
	unsigned char *p = malloc(len + 1);
	int err;

	CHECK(p);
	fill(p, s->next, len);
	err = spool_append(s, p, len);
	free(p);
	return err;
}

/* Fills at most len bytes of a reservation. Returns the bytes filled. */
size_t stream_fill(struct spool *s, size_t len)
{
	void *p;
	ssize_t room = spool_reserve(s, &p);

	CHECK(room >= 0);
	if ((size_t)room < len)
		len = (size_t)room;
	fill(p, s->next, len);
	spool_commit(s, len);
	return len;
}

void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = bytes;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

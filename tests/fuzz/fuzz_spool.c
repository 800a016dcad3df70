/*
 * Any sequence of calls on a spool: each pair of bytes is a call and its size. What is readable
 * is what was put in at that offset, and nothing goes that a reader still needs.
 */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "bounds.h"
#include "fuzz.h"
#include "spool.h"

#define READERS 3
#define BYTES_MAX ((size_t)128 * KIB)

static char block[2 * BYTES_MAX];
static char bounce[BYTES_MAX];

/* Byte o of a stream is byte o modulo a prime of this block. */
#define PERIOD 65521
static void make_block(void)
{
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)((i % PERIOD * 2654435761u) >> 13);
}

static void limit_file(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	setrlimit(RLIMIT_FSIZE, &limit);
}

static size_t read_at(struct spool *s, uint64_t off, size_t len)
{
	struct spool_slice slice;
	ssize_t n = spool_peek(s, off, len, bounce, &slice);
	size_t done = 0;

	for (int i = 0; i < slice.count; i++) {
		const struct iovec *v = &slice.iov[i];

		for (size_t at = 0; at < v->iov_len;) {
			size_t from = (off + done + at) % PERIOD;
			size_t part = MIN(v->iov_len - at, sizeof(block) - from);

			require(memcmp((char *)v->iov_base + at, block + from, part) == 0,
				"the bytes that were put in");
			at += part;
		}
		done += v->iov_len;
	}
	if (off >= s->first && off < s->next)
		require(n > 0 && (size_t)n == done && done <= len,
			"a byte that is held is readable");
	else
		require(n <= 0 && !done, "no other byte is");
	return done;
}

static void add(struct spool *s, size_t len, bool append)
{
	void *p;
	ssize_t room;

	if (append) {
		spool_append(s, block + s->next % PERIOD, MIN(len, BYTES_MAX));
		return;
	}
	room = spool_reserve(s, &p);
	if (room <= 0)
		return;
	len = MIN(len, (size_t)room);
	memcpy(p, block + s->next % PERIOD, MIN(len, BYTES_MAX));
	spool_commit(s, MIN(len, BYTES_MAX));
}

static void call(struct spool *s, struct spool_reader *readers, unsigned what, size_t len)
{
	struct spool_reader *r = &readers[what / 8 % READERS];

	switch (what % 8) {
	case 0:
	case 1:
	case 2:
		add(s, len, what % 8);
		break;
	case 3:
	case 4:
		if (r->spool)
			spool_reader_move(r, r->pos + read_at(s, r->pos, len));
		break;
	case 5:
		if (!r->spool)
			spool_reader_open(s, r);
		else if (what & 128)
			spool_reader_close(r);
		break;
	case 6:
		read_at(s, s->first + (s->next - s->first) * (what / 8) / 32, len);
		break;
	default:
		if (what & 128)
			limit_file(len & 1 ? RLIM_INFINITY : len * 4);
		else if (what & 64)
			spool_overdraw(s, len);
		else if (what & 32)
			spool_end(s);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct spool_reader readers[READERS] = {0};
	struct spool s;

	if (!block[1]) {
		make_block();
		signal(SIGXFSZ, SIG_IGN);
	}
	if (size < 2)
		return 0;
	spool_init(&s, 16 * KIB << data[0] % 4, 16 * KIB << data[1] % 5, "/tmp");
	for (size_t i = 2; i + 1 < size; i += 2) {
		uint64_t first = s.first;

		call(&s, readers, data[i], (size_t)1 + data[i + 1] * data[i + 1]);
		for (int r = 0; r < READERS; r++)
			require(!readers[r].spool || s.first == first || s.first <= readers[r].pos,
				"nothing goes that a reader needs");
	}
	limit_file(RLIM_INFINITY);
	for (uint64_t off = s.first; off < s.next;)
		off += read_at(&s, off, BYTES_MAX);
	spool_done(&s);
	return 0;
}

/*
 * The spool under random calls, with several readers and a disk that is full now and then, against
 * the rules in spool.h.
 *
 * test_spool_model [SEED [STEPS]] runs one seed; without arguments, a few fixed ones.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "bounds.h"
#include "check.h"
#include "spool.h"
#include "spool_stream.h"

static char directory[] = "/tmp/spool-model-XXXXXX";

#define READERS 4

static uint64_t random_state;

/* xorshift64 (Marsaglia, 2003): the same everywhere for one seed. */
static uint64_t random_below(uint64_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % bound;
}

/* Small sizes are as frequent as large ones. */
static size_t random_size(void)
{
	return 1 + random_below((uint64_t)1 << (1 + random_below(19)));
}

struct model {
	struct spool s;
	struct spool_reader readers[READERS];
	bool file_trouble; /* there was some: memory may have been given up */
	size_t largest;	   /* of the appends, each of which may pass the bound */
};

static uint64_t slowest(struct model *m, bool *any)
{
	uint64_t pos = m->s.next;

	*any = false;
	for (int i = 0; i < READERS; i++) {
		if (!m->readers[i].spool)
			continue;
		*any = true;
		if (m->readers[i].pos < pos)
			pos = m->readers[i].pos;
	}
	return pos;
}

/* What must hold after each step. before: of the spool. */
static void check_rules(struct model *m, uint64_t first_before, uint64_t next_before)
{
	struct spool *s = &m->s;
	bool any;
	uint64_t pos = slowest(m, &any);

	CHECK(s->first >= first_before);
	CHECK(s->next >= next_before);
	if (s->first > first_before) {
		CHECK(any);
		CHECK(s->first <= pos);
		if (!m->file_trouble)
			CHECK(s->next - s->first == s->retain ||
			      (s->next - s->first > s->retain && s->first == pos));
	}
	CHECK(s->next - (any && pos > s->first ? pos : s->first) <=
	      s->retain + s->overdraft + m->largest);
	if (s->retain <= s->memory_max)
		CHECK_INT(s->file, -1);
}

static void add_some(struct model *m)
{
	struct spool *s = &m->s;
	size_t len = random_size();
	bool room = spool_has_room(s);
	uint64_t before = s->next;

	if (random_below(2)) {
		int err = stream_append(s, len);

		CHECK_INT(err, room ? 0 : -EAGAIN);
		CHECK_INT(s->next, before + (room ? len : 0));
		if (room && len > m->largest)
			m->largest = len;
	} else {
		size_t n = stream_fill(s, len);

		CHECK_INT(n > 0, room);
	}
}

static void read_some(struct model *m, struct spool_reader *r)
{
	ssize_t n = stream_read(&m->s, r->pos, random_size());

	if (r->pos == m->s.next)
		CHECK_INT(n, -EAGAIN);
	else
		CHECK(n > 0);
	if (n > 0)
		spool_reader_move(r, r->pos + (uint64_t)n);
}

static void step(struct model *m)
{
	struct spool *s = &m->s;
	struct spool_reader *r = &m->readers[random_below(READERS)];
	uint64_t what = random_below(100);

	if (what < 45) {
		add_some(m);
	} else if (what < 85) {
		if (r->spool)
			read_some(m, r);
	} else if (what < 88) {
		if (!r->spool)
			spool_reader_open(s, r);
	} else if (what < 90) {
		spool_reader_close(r);
	} else if (what < 98) {
		if (s->next > s->first) {
			uint64_t off = s->first + random_below(s->next - s->first);

			CHECK(stream_read(s, off, random_size()) > 0);
		}
	} else if (what < 99) {
		bool bad = random_below(2);

		m->file_trouble |= bad;
		limit_file_size(bad ? random_below(2 * s->retain) : RLIM_INFINITY);
	} else if (random_below(20) == 0) {
		spool_overdraw(s, random_below(DRAIN_ALLOWANCE));
	}
}

static void run_model(uint64_t seed, int steps)
{
	struct model m = {0};
	size_t memory;
	uint64_t retain;

	printf("model: seed %llu, %d steps\n", (unsigned long long)seed, steps);
	fflush(stdout);
	random_state = seed * 2654435761u + 88172645463325252u;
	memory = 64 * KIB << random_below(4);
	retain = 64 * KIB + random_below((uint64_t)64 * KIB << random_below(6));
	spool_init(&m.s, memory, retain, directory);
	for (int i = 0; i < steps; i++) {
		uint64_t first = m.s.first;
		uint64_t next = m.s.next;

		step(&m);
		check_rules(&m, first, next);
		if (i % 512 == 0)
			stream_check(&m.s);
	}
	limit_file_size(RLIM_INFINITY);
	spool_end(&m.s);
	stream_check(&m.s);
	spool_done(&m.s);
}

int main(int argc, char **argv)
{
	signal(SIGXFSZ, SIG_IGN);
	CHECK(mkdtemp(directory));
	if (argc > 1)
		run_model(strtoull(argv[1], NULL, 10), argc > 2 ? atoi(argv[2]) : 100000);
	for (uint64_t seed = 1; argc == 1 && seed <= 20; seed++)
		run_model(seed, 4000);
	return rmdir(directory);
}

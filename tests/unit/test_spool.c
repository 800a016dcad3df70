/*
 * The spool against the plainest model there is: byte o of the stream is
 * byte_at(o), and what must be readable follows from the rules in spool.h.
 *
 * test_spool [SEED [STEPS]] runs the random part once; without arguments, a few fixed seeds.
 */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bounds.h"
#include "check.h"

static char directory[] = "/tmp/spool-test-XXXXXX";

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
static ssize_t read_at(struct spool *s, uint64_t off, size_t len)
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

static void check_all(struct spool *s)
{
	uint64_t off = s->first;

	while (off < s->next) {
		ssize_t n = read_at(s, off, 1 << 20);

		CHECK(n > 0);
		off += (uint64_t)n;
	}
	CHECK_INT(read_at(s, s->next, 100), s->ended ? 0 : -EAGAIN);
	if (s->first)
		CHECK_INT(read_at(s, s->first - 1, 100), -ENODATA);
}

/* Adds len bytes. Returns 0 or -EAGAIN. */
static int append(struct spool *s, size_t len)
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
static size_t reserve(struct spool *s, size_t len)
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

/* Adds what it takes until there is no room. Returns the bytes added. */
static uint64_t fill_up(struct spool *s)
{
	uint64_t before = s->next;

	while (reserve(s, 256 * KIB))
		;
	return s->next - before;
}

/* ---- One thing at a time ---- */

static void test_idle_costs_nothing(void)
{
	struct spool s;

	spool_init(&s, MIB, 64 * MIB, "/nonexistent");
	CHECK(spool_has_room(&s));
	CHECK_INT(s.memory_used, 0);
	CHECK_INT(read_at(&s, 0, 10), -EAGAIN);
	spool_end(&s);
	CHECK(!spool_has_room(&s));
	CHECK_INT(append(&s, 1), -EAGAIN);
	CHECK_INT(read_at(&s, 0, 10), 0);
	CHECK_INT(read_at(&s, 10, 10), 0);
	CHECK_INT(s.memory_used, 0);
	spool_done(&s);
}

static void test_small_output_costs_little(void)
{
	struct spool s;
	void *p;

	spool_init(&s, MIB, 64 * MIB, "/nonexistent");
	CHECK_INT(append(&s, 100), 0);
	CHECK_INT(s.memory_used, 4 * KIB);
	spool_end(&s);
	CHECK_INT(s.memory_used, 100);
	check_all(&s);
	spool_done(&s);

	spool_init(&s, MIB, 64 * MIB, "/nonexistent");
	CHECK(spool_reserve(&s, &p) > 0);
	spool_end(&s);
	CHECK_INT(s.memory_used, 0);
	spool_done(&s);
}

static void test_room_grows(void)
{
	struct spool s;
	void *p;

	spool_init(&s, MIB, 64 * MIB, directory);
	CHECK_INT(spool_reserve(&s, &p), 4 * KIB);
	CHECK_INT(reserve(&s, 4 * KIB), 4 * KIB);
	CHECK_INT(reserve(&s, MIB), 16 * KIB);
	CHECK_INT(reserve(&s, MIB), 64 * KIB);
	CHECK_INT(reserve(&s, MIB), 256 * KIB);
	CHECK_INT(reserve(&s, MIB), 256 * KIB);
	CHECK_INT(s.file, -1);
	check_all(&s);
	spool_done(&s);
}

static void test_holds_exactly_retain_without_reader(void)
{
	struct spool s;

	for (int memory = 1; memory <= 16; memory *= 4) {
		spool_init(&s, (size_t)memory * 64 * KIB, 300001, directory);
		CHECK_INT(append(&s, 7), 0);
		CHECK_INT(fill_up(&s), 300001 - 7);
		CHECK(!spool_has_room(&s));
		CHECK_INT(append(&s, 1), -EAGAIN);
		CHECK_INT(s.first, 0);
		CHECK_INT(s.file_error, 0);
		CHECK_INT(s.file >= 0, s.memory_max < 300001);
		check_all(&s);
		spool_done(&s);
	}
}

static void test_append_takes_all_or_none(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, 128 * KIB, directory);
	CHECK_INT(append(&s, 128 * KIB - 1), 0);
	CHECK_INT(append(&s, 5 * MIB), 0);
	CHECK_INT(append(&s, 1), -EAGAIN);
	CHECK_INT(s.next, 128 * KIB - 1 + 5 * MIB);
	check_all(&s);
	spool_done(&s);
}

static void test_reader_makes_room(void)
{
	struct spool s;
	struct spool_reader r;

	spool_init(&s, 64 * KIB, 256 * KIB, directory);
	fill_up(&s);
	spool_reader_open(&s, &r);
	CHECK(!spool_has_room(&s));
	spool_reader_move(&r, 100);
	CHECK(!spool_has_room(&s)); /* too little to wake the source for */
	spool_reader_move(&r, 10000);
	CHECK(spool_has_room(&s));
	CHECK_INT(s.first, 0); /* nothing goes before it must */
	CHECK_INT(append(&s, 3), 0);
	CHECK_INT(s.first, 3);
	CHECK_INT(fill_up(&s), 10000 - 3);
	CHECK_INT(s.first, 10000);
	check_all(&s);
	/* A reader that has gone passes nothing any more. */
	spool_reader_move(&r, 20000);
	spool_reader_close(&r);
	spool_reader_close(&r);
	CHECK(!spool_has_room(&s));
	CHECK_INT(s.first, 10000);
	spool_done(&s);
}

static void test_slowest_reader_counts(void)
{
	struct spool s;
	struct spool_reader fast;
	struct spool_reader slow;

	spool_init(&s, 64 * KIB, 256 * KIB, directory);
	spool_reader_open(&s, &fast);
	spool_reader_open(&s, &slow);
	fill_up(&s);
	spool_reader_move(&fast, s.next);
	CHECK(!spool_has_room(&s));
	spool_reader_move(&slow, 50000);
	CHECK_INT(fill_up(&s), 50000);
	spool_reader_close(&slow);
	CHECK_INT(fill_up(&s), 256 * KIB - 50000);
	CHECK_INT(s.first, s.next - 256 * KIB);
	check_all(&s);
	spool_done(&s);
}

static void test_overdraw(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, 128 * KIB, directory);
	fill_up(&s);
	spool_overdraw(&s, 1000);
	CHECK_INT(fill_up(&s), 1000);
	spool_overdraw(&s, 100 * DRAIN_ALLOWANCE);
	CHECK_INT(fill_up(&s), DRAIN_ALLOWANCE - 1000);
	check_all(&s);
	spool_done(&s);
}

static void test_steady_stream_allocates_nothing(void)
{
	struct spool s;
	struct spool_reader r;
	void *seen[4] = {0};
	int places = 0;

	spool_init(&s, MIB, 4 * MIB, directory);
	spool_reader_open(&s, &r);
	for (int i = 0; i < 400; i++) {
		void *p;

		CHECK(reserve(&s, 64 * KIB) > 0);
		spool_reader_move(&r, s.next);
		CHECK(s.memory_used <= MIB);
		if (i < 100 || spool_reserve(&s, &p) != 256 * KIB)
			continue;
		for (int j = 0; j < places; j++)
			if (seen[j] == p)
				p = NULL;
		if (p) {
			CHECK(places < 4);
			seen[places++] = p;
		}
	}
	CHECK_INT(places, 4);
	check_all(&s);
	spool_done(&s);
}

/* ---- The file refuses ---- */

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = bytes;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void test_no_directory_holds_back_until_there_is_one(void)
{
	struct spool s;
	char path[64];

	snprintf(path, sizeof(path), "%s/later", directory);
	spool_init(&s, 64 * KIB, MIB, path);
	CHECK(fill_up(&s) >= 48 * KIB);
	CHECK_INT(s.file_error, -ENOENT);
	CHECK(!spool_has_room(&s));
	CHECK_INT(append(&s, 1), -EAGAIN);
	check_all(&s);
	CHECK(mkdir(path, 0700) == 0);
	CHECK(spool_has_room(&s));
	CHECK_INT(s.file_error, 0);
	fill_up(&s);
	CHECK_INT(s.next, MIB);
	check_all(&s);
	spool_done(&s);
	CHECK(rmdir(path) == 0); /* nothing was left in it */
}

static void test_full_disk_drops_only_what_was_passed(void)
{
	struct spool s;
	struct spool_reader r;
	uint64_t before;

	limit_file_size(100000);
	spool_init(&s, 64 * KIB, MIB, directory);
	spool_reader_open(&s, &r);
	fill_up(&s);
	CHECK_INT(s.file_error, -EFBIG);
	CHECK_INT(s.first, 0);
	check_all(&s);
	before = s.next;
	spool_reader_move(&r, before - 1);
	CHECK(fill_up(&s) > 0);
	CHECK(s.first > 0 && s.first < before);
	check_all(&s);
	limit_file_size(RLIM_INFINITY);
	CHECK(fill_up(&s) > 0);
	CHECK_INT(s.file_error, 0);
	CHECK_INT(s.next - r.pos, MIB);
	check_all(&s);
	spool_done(&s);
}

static void test_full_disk_leaves_the_last_bytes_their_allowance(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, MIB, "/nonexistent");
	fill_up(&s);
	spool_overdraw(&s, 64 * KIB);
	for (size_t done = 0; done < 64 * KIB;) {
		size_t n = reserve(&s, 64 * KIB - done);

		CHECK(n > 0);
		done += n;
	}
	check_all(&s);
	spool_done(&s);
}

static void test_append_does_not_grow_on_a_full_disk(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, MIB, "/nonexistent");
	while (append(&s, 16 * KIB - 1) == 0)
		CHECK(s.memory_used <= 96 * KIB);
	CHECK(s.next >= 48 * KIB);
	check_all(&s);
	spool_done(&s);
}

/* ---- Everything at once ---- */

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
	bool overdrawn;
	size_t largest; /* of the appends, each of which may pass the bound */
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
		int err = append(s, len);

		CHECK_INT(err, room ? 0 : -EAGAIN);
		CHECK_INT(s->next, before + (room ? len : 0));
		if (room && len > m->largest)
			m->largest = len;
	} else {
		size_t n = reserve(s, len);

		CHECK_INT(n > 0, room);
	}
}

static void read_some(struct model *m, struct spool_reader *r)
{
	ssize_t n = read_at(&m->s, r->pos, random_size());

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

			CHECK(read_at(s, off, random_size()) > 0);
		}
	} else if (what < 99) {
		bool bad = random_below(2);

		m->file_trouble |= bad;
		limit_file_size(bad ? random_below(2 * s->retain) : RLIM_INFINITY);
	} else if (random_below(20) == 0) {
		spool_overdraw(s, random_below(DRAIN_ALLOWANCE));
		m->overdrawn = true;
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
			check_all(&m.s);
	}
	limit_file_size(RLIM_INFINITY);
	spool_end(&m.s);
	check_all(&m.s);
	spool_done(&m.s);
}

int main(int argc, char **argv)
{
	signal(SIGXFSZ, SIG_IGN);
	CHECK(mkdtemp(directory));
	if (argc > 1) {
		run_model(strtoull(argv[1], NULL, 10), argc > 2 ? atoi(argv[2]) : 100000);
		return rmdir(directory);
	}
	RUN(test_idle_costs_nothing);
	RUN(test_small_output_costs_little);
	RUN(test_room_grows);
	RUN(test_holds_exactly_retain_without_reader);
	RUN(test_append_takes_all_or_none);
	RUN(test_reader_makes_room);
	RUN(test_slowest_reader_counts);
	RUN(test_overdraw);
	RUN(test_steady_stream_allocates_nothing);
	RUN(test_no_directory_holds_back_until_there_is_one);
	RUN(test_full_disk_drops_only_what_was_passed);
	RUN(test_full_disk_leaves_the_last_bytes_their_allowance);
	RUN(test_append_does_not_grow_on_a_full_disk);
	for (uint64_t seed = 1; seed <= 20; seed++)
		run_model(seed, 4000);
	return rmdir(directory);
}

/* The spool, one property at a time; test_spool_model.c tests them all at once. */
#include "spool.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bounds.h"
#include "check.h"
#include "spool_stream.h"

static char directory[] = "/tmp/spool-test-XXXXXX";

/* Adds what it takes until there is no room. Returns the bytes added. */
static uint64_t fill_up(struct spool *s)
{
	uint64_t before = s->next;

	while (stream_fill(s, 256 * KIB))
		CHECK(s->next - before < s->retain + 2 * DRAIN_ALLOWANCE);
	return s->next - before;
}

/* ---- One thing at a time ---- */

static void test_idle_costs_nothing(void)
{
	struct spool s;

	spool_init(&s, MIB, 64 * MIB, "/nonexistent");
	CHECK(spool_has_room(&s));
	CHECK_INT(s.memory_used, 0);
	CHECK_INT(stream_read(&s, 0, 10), -EAGAIN);
	spool_end(&s);
	CHECK(!spool_has_room(&s));
	CHECK_INT(stream_append(&s, 1), -EAGAIN);
	CHECK_INT(stream_read(&s, 0, 10), 0);
	CHECK_INT(stream_read(&s, 10, 10), 0);
	CHECK_INT(s.memory_used, 0);
	spool_done(&s);
}

static void test_small_output_costs_little(void)
{
	struct spool s;
	void *p;

	spool_init(&s, MIB, 64 * MIB, "/nonexistent");
	CHECK_INT(stream_append(&s, 100), 0);
	CHECK_INT(s.memory_used, 4 * KIB);
	spool_end(&s);
	CHECK_INT(s.memory_used, 100);
	stream_check(&s);
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
	CHECK_INT(stream_fill(&s, 4 * KIB), 4 * KIB);
	CHECK_INT(stream_fill(&s, MIB), 16 * KIB);
	CHECK_INT(stream_fill(&s, MIB), 64 * KIB);
	CHECK_INT(stream_fill(&s, MIB), 256 * KIB);
	CHECK_INT(stream_fill(&s, MIB), 256 * KIB);
	CHECK_INT(s.file, -1);
	stream_check(&s);
	spool_done(&s);
}

static void test_holds_exactly_retain_without_reader(void)
{
	struct spool s;

	for (int memory = 1; memory <= 16; memory *= 4) {
		spool_init(&s, (size_t)memory * 64 * KIB, 300001, directory);
		CHECK_INT(stream_append(&s, 7), 0);
		CHECK_INT(fill_up(&s), 300001 - 7);
		CHECK(!spool_has_room(&s));
		CHECK_INT(stream_append(&s, 1), -EAGAIN);
		CHECK_INT(s.first, 0);
		CHECK_INT(s.file_error, 0);
		CHECK_INT(s.file >= 0, s.memory_max < 300001);
		stream_check(&s);
		spool_done(&s);
	}
}

static void test_append_takes_all_or_none(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, 128 * KIB, directory);
	CHECK_INT(stream_append(&s, 128 * KIB - 1), 0);
	CHECK_INT(stream_append(&s, 5 * MIB), 0);
	CHECK_INT(stream_append(&s, 1), -EAGAIN);
	CHECK_INT(s.next, 128 * KIB - 1 + 5 * MIB);
	stream_check(&s);
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
	CHECK_INT(stream_append(&s, 3), 0);
	CHECK_INT(s.first, 3);
	CHECK_INT(fill_up(&s), 10000 - 3);
	CHECK_INT(s.first, 10000);
	stream_check(&s);
	/* One that looks back has passed what it had passed. */
	spool_reader_move(&r, s.next);
	spool_reader_move(&r, 0);
	CHECK(spool_has_room(&s));
	CHECK_INT(fill_up(&s), 256 * KIB);
	CHECK_INT(s.first, 10000 + 256 * KIB);
	/* A reader that has gone passes nothing any more. */
	spool_reader_move(&r, s.next);
	spool_reader_close(&r);
	spool_reader_close(&r);
	CHECK(!spool_has_room(&s));
	CHECK_INT(s.first, 10000 + 256 * KIB);
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
	stream_check(&s);
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
	stream_check(&s);
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

		CHECK(stream_fill(&s, 64 * KIB) > 0);
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
	stream_check(&s);
	spool_done(&s);
}

/* ---- The file refuses ---- */

static void test_no_directory_holds_back_until_there_is_one(void)
{
	struct spool s;
	char path[64];

	snprintf(path, sizeof(path), "%s/later", directory);
	spool_init(&s, 64 * KIB, MIB, path);
	CHECK(fill_up(&s) >= 48 * KIB);
	CHECK_INT(s.file_error, -ENOENT);
	CHECK(!spool_has_room(&s));
	CHECK_INT(stream_append(&s, 1), -EAGAIN);
	stream_check(&s);
	CHECK(mkdir(path, 0700) == 0);
	CHECK(spool_has_room(&s));
	CHECK_INT(s.file_error, 0);
	fill_up(&s);
	CHECK_INT(s.next, MIB);
	stream_check(&s);
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
	stream_check(&s);
	before = s.next;
	spool_reader_move(&r, before - 1);
	CHECK(fill_up(&s) > 0);
	CHECK(s.first > 0 && s.first < before);
	stream_check(&s);
	limit_file_size(RLIM_INFINITY);
	CHECK(fill_up(&s) > 0);
	CHECK_INT(s.file_error, 0);
	CHECK_INT(s.next - r.pos, MIB);
	stream_check(&s);
	spool_done(&s);
}

static void test_full_disk_leaves_the_last_bytes_their_allowance(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, MIB, "/nonexistent");
	fill_up(&s);
	spool_overdraw(&s, 64 * KIB);
	for (size_t done = 0; done < 64 * KIB;) {
		size_t n = stream_fill(&s, 64 * KIB - done);

		CHECK(n > 0);
		done += n;
	}
	stream_check(&s);
	spool_done(&s);
}

static void test_append_does_not_grow_on_a_full_disk(void)
{
	struct spool s;

	spool_init(&s, 64 * KIB, MIB, "/nonexistent");
	while (stream_append(&s, 16 * KIB - 1) == 0)
		CHECK(s.memory_used <= 96 * KIB);
	CHECK(s.next >= 48 * KIB);
	stream_check(&s);
	spool_done(&s);
}

int main(void)
{
	signal(SIGXFSZ, SIG_IGN);
	CHECK(mkdtemp(directory));
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
	return rmdir(directory);
}

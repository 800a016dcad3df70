/* Binary messages of a Start stream: the short way for output gives what protobuf-c's own gives. */
#include "e2b_codec.h"

#include <errno.h>

#include "check.h"

#define MESSAGE_BYTES_MAX 400

struct message {
	char data[MESSAGE_BYTES_MAX];
	size_t len;
};

/* Puts a head for a field of that number before what there is. */
static void wrap(struct message *m, unsigned field)
{
	char head[4];
	size_t count = 0;
	size_t len = m->len;

	head[count++] = (char)(field << 3 | 2);
	for (; len > 127; len >>= 7)
		head[count++] = (char)(len | 0x80);
	head[count++] = (char)len;
	memmove(m->data + count, m->data, m->len);
	memcpy(m->data, head, count);
	m->len += count;
}

static void add(struct message *m, const char *data, size_t len)
{
	memcpy(m->data + m->len, data, len);
	m->len += len;
}

/* StartResponse{event{data{field: `len` bytes}}}, with something unknown at one level. */
static void make(struct message *m, unsigned field, size_t len, int unknown_at)
{
	m->len = 0;
	for (size_t i = 0; i < len; i++)
		m->data[m->len++] = (char)(i * 7);
	for (int level = 0; level < 3; level++) {
		wrap(m, level == 0 ? field : level == 1 ? 2 : 1);
		if (unknown_at == level)
			add(m, "\x7a\x01x", 3);
	}
}

static void check_output(const struct message *m, enum e2b_event_kind kind, size_t len, bool copied)
{
	struct e2b_event event;
	char got[MESSAGE_BYTES_MAX];

	CHECK_INT(e2b_proto.decode(m->data, m->len, &event), 0);
	CHECK_INT(event.kind, kind);
	CHECK_INT(event.payload.len, len);
	CHECK_INT(event.message != NULL, copied);
	CHECK_INT(payload_read(&event.payload, got, sizeof(got)), len);
	for (size_t i = 0; i < len; i++)
		CHECK(got[i] == (char)(i * 7));
	e2b_proto.release(&event);
}

static void test_both_ways(void)
{
	static const size_t sizes[] = {0,   1,	 100, 120, 121, 122, 123,
				       124, 125, 126, 127, 128, 129, 300};
	struct message m;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (int unknown_at = -1; unknown_at < 3; unknown_at++) {
			make(&m, 1, sizes[i], unknown_at);
			check_output(&m, E2B_EVENT_STDOUT, sizes[i], unknown_at >= 0);
			make(&m, 2, sizes[i], unknown_at);
			check_output(&m, E2B_EVENT_STDERR, sizes[i], unknown_at >= 0);
		}
}

/* A terminal's output, and a member of the future, are neither stdout nor stderr. */
static void test_other_members(void)
{
	struct e2b_event event;
	struct message m;

	for (unsigned field = 3; field < 6; field++) {
		make(&m, field, 10, -1);
		CHECK_INT(e2b_proto.decode(m.data, m.len, &event), 0);
		CHECK_INT(event.kind, E2B_EVENT_OTHER);
		CHECK_INT(event.payload.len, 0);
		e2b_proto.release(&event);
	}
}

/* protobuf: the last member of a oneof that is there counts. */
static void test_the_last_counts(void)
{
	struct message m = {0};

	add(&m, "\x0a\x01y\x12\x01\0", 6);
	wrap(&m, 2);
	wrap(&m, 1);
	check_output(&m, E2B_EVENT_STDERR, 1, true);
}

/* Cut anywhere, or longer than it says, it is refused or has no output: never fewer bytes. */
static void test_a_message_cut_short(void)
{
	struct e2b_event event;
	struct message m;

	make(&m, 1, 200, -1);
	for (size_t len = 1; len < m.len; len++)
		CHECK_INT(e2b_proto.decode(m.data, len, &event), -EPROTO);
	for (size_t i = 0; i < 9; i++) {
		make(&m, 1, 200, -1);
		m.data[i]++;
		if (e2b_proto.decode(m.data, m.len, &event) < 0)
			continue;
		CHECK(event.kind == E2B_EVENT_OTHER || event.payload.len == 200);
		e2b_proto.release(&event);
	}
}

int main(void)
{
	RUN(test_both_ways);
	RUN(test_other_members);
	RUN(test_the_last_counts);
	RUN(test_a_message_cut_short);
	return 0;
}

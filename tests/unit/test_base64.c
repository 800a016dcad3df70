/* Base64 on its way to a reader: the same bytes whatever room each read has. */
#include "base64.h"

#include <errno.h>

#include "check.h"

#define BYTES_MAX 64

static void fill(char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (char)(i * 37 + 200);
}

/* Reads it all with rooms of these sizes in turn. */
static void read_with(const char *text, size_t text_len, const char *wanted, size_t len,
		      size_t first, size_t second)
{
	struct payload p = {.data = text, .len = text_len, .base64 = true};
	char got[BYTES_MAX + 8];
	size_t done = 0;
	size_t rooms[2] = {first, second};

	for (int turn = 0; p.len; turn = !turn) {
		ssize_t n = payload_read(&p, got + done, MIN(rooms[turn], sizeof(got) - done));

		CHECK(n > 0);
		done += (size_t)n;
		CHECK(done <= len);
		CHECK(done == len || (size_t)n == rooms[turn]);
	}
	CHECK_INT(done, len);
	CHECK(memcmp(got, wanted, len) == 0);
	CHECK_INT(payload_read(&p, got, sizeof(got)), 0);
}

static void test_any_room(void)
{
	char data[BYTES_MAX];

	for (size_t len = 0; len <= BYTES_MAX; len++) {
		AUTO_TEXT struct text text = {0};
		size_t unpadded;

		fill(data, len);
		CHECK_INT(base64_append(&text, data, len), 0);
		CHECK_INT(text.len, (len + 2) / 3 * 4);
		unpadded = strcspn(text_str(&text), "=");
		for (size_t first = 1; first <= 8; first++)
			for (size_t second = 1; second <= 8; second++) {
				read_with(text_str(&text), text.len, data, len, first, second);
				read_with(text_str(&text), unpadded, data, len, first, second);
			}
	}
}

static void test_both_alphabets(void)
{
	read_with("+/+/-_-_", 8, "\xfb\xff\xbf\xfb\xff\xbf", 6, 8, 8);
}

static void test_what_is_not_base64(void)
{
	static const char *const texts[] = {"A", "AAAAA", "A*AA",  "AA=A",
					    "=", "====",  "AAA\n", "\xff\xff"};
	char got[16];

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct payload p = {.data = texts[i], .len = strlen(texts[i]), .base64 = true};

		CHECK_INT(payload_read(&p, got, sizeof(got)), -EPROTO);
	}
}

int main(void)
{
	RUN(test_any_room);
	RUN(test_both_alphabets);
	RUN(test_what_is_not_base64);
	return 0;
}

/*
 * The bytes of a Connect stream: cut anywhere, they give the same envelopes; and whatever is in
 * them, both codecs read it or refuse it, and base64 comes out the same through any room.
 * The first byte of the input decides where it is cut.
 */
#include <errno.h>
#include <string.h>

#include "base64.h"
#include "connect_envelope.h"
#include "e2b_codec.h"
#include "fuzz.h"

/* Appends what a payload gives through rooms of `room` bytes. Returns 0 or -EPROTO. */
static int read_all(struct payload payload, size_t room, struct text *ret)
{
	char buf[4096];
	ssize_t n;

	while ((n = payload_read(&payload, buf, room)) > 0)
		require(text_append(ret, buf, (size_t)n) == 0, "there is memory");
	require(n < 0 || payload.len == 0, "a payload is read to its end");
	return (int)n;
}

static void check_payload(const struct payload *payload)
{
	AUTO_TEXT struct text wide = {0};

	if (read_all(*payload, 4096, &wide) < 0)
		return;
	for (size_t room = 1; room < 6; room++) {
		AUTO_TEXT struct text narrow = {0};

		require(read_all(*payload, room, &narrow) == 0, "the room does not decide");
		require(narrow.len == wide.len &&
				memcmp(text_str(&narrow), text_str(&wide), wide.len) == 0,
			"the bytes do not depend on the room");
	}
}

static void check_event(const struct e2b_codec *codec, const char *data, size_t len)
{
	struct e2b_event event;

	if (codec->decode(data, len, &event) < 0)
		return;
	if (event.kind == E2B_EVENT_STDOUT || event.kind == E2B_EVENT_STDERR)
		check_payload(&event.payload);
	if (event.kind == E2B_EVENT_END)
		e2b_event_signal(&event);
	codec->release(&event);
}

static void check_envelope(const struct envelope *envelope)
{
	struct e2b_error error;

	if (envelope->flags & ENVELOPE_END) {
		e2b_error_parse(envelope->data, envelope->len, &error);
		e2b_list_find(envelope->data, envelope->len, "tag");
		return;
	}
	check_event(&e2b_json, envelope->data, envelope->len);
	check_event(&e2b_proto, envelope->data, envelope->len);
}

/* Appends each envelope as it came. Returns 0, or the error that ended it. */
static int split(const char *data, size_t size, size_t step, struct text *ret)
{
	struct envelope_reader reader = {0};
	struct envelope envelope;
	int r = 0;

	while (size && r >= 0) {
		size_t part = MIN(step, size);
		const char *at = data;

		data += part;
		size -= part;
		while ((r = envelope_next(&reader, &at, &part, &envelope)) > 0) {
			require(text_append(ret, &envelope.flags, sizeof(envelope.flags)) == 0 &&
					text_append(ret, envelope.data, envelope.len) == 0,
				"there is memory");
			check_envelope(&envelope);
		}
	}
	envelope_reader_done(&reader);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_TEXT struct text whole = {0};
	AUTO_TEXT struct text pieces = {0};
	size_t step = size ? data[0] % 16 + 1u : 1;
	int r;

	if (!size)
		return 0;
	r = split((const char *)data + 1, size - 1, size, &whole);
	require(split((const char *)data + 1, size - 1, step, &pieces) == r,
		"where it is cut does not decide whether it can be read");
	require(whole.len == pieces.len &&
			memcmp(text_str(&whole), text_str(&pieces), whole.len) == 0,
		"where it is cut does not decide what is read");
	return 0;
}

#include "connect_envelope.h"

#include <errno.h>
#include <string.h>

#include "bounds.h"

static size_t payload_len(const struct envelope_reader *r)
{
	const uint8_t *h = r->header;

	return (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
}

static void take(const char **data, size_t *len, size_t count)
{
	*data += count;
	*len -= count;
}

static int check_header(const struct envelope_reader *r)
{
	if (r->header[0] & ~(unsigned)ENVELOPE_END)
		return -EPROTO;
	return payload_len(r) > ENVELOPE_BYTES_MAX ? -E2BIG : 0;
}

/* Returns 1 when the header is complete and good, 0 when it needs more, or an error. */
static int read_header(struct envelope_reader *r, const char **data, size_t *len)
{
	size_t part = MIN(*len, ENVELOPE_HEADER_BYTES - r->header_len);
	int err;

	if (r->ended && *len)
		return -EPROTO;
	if (r->header_len == ENVELOPE_HEADER_BYTES)
		return 1;
	memcpy(r->header + r->header_len, *data, part);
	r->header_len += part;
	take(data, len, part);
	if (r->header_len < ENVELOPE_HEADER_BYTES)
		return 0;
	/* Left over from the envelope before, which has been used by now. */
	r->payload.len = 0;
	err = check_header(r);
	return err < 0 ? err : 1;
}

static int complete(struct envelope_reader *r, const char *payload, struct envelope *ret)
{
	ret->flags = r->header[0];
	ret->data = payload;
	ret->len = payload_len(r);
	r->header_len = 0;
	r->ended = ret->flags & ENVELOPE_END;
	return 1;
}

int envelope_next(struct envelope_reader *r, const char **data, size_t *len, struct envelope *ret)
{
	const char *payload;
	size_t need;
	size_t part;
	int err;

	err = *len ? read_header(r, data, len) : 0;
	if (err <= 0)
		return err;
	need = payload_len(r) - r->payload.len;
	payload = *data;
	if (r->payload.len == 0 && *len >= need) {
		take(data, len, need);
		return complete(r, need ? payload : "", ret);
	}
	part = MIN(*len, need);
	err = text_append(&r->payload, payload, part);
	if (err < 0)
		return err;
	take(data, len, part);
	return part == need ? complete(r, r->payload.data, ret) : 0;
}

bool envelope_at_border(const struct envelope_reader *r)
{
	return r->header_len == 0;
}

void envelope_header(uint8_t header[ENVELOPE_HEADER_BYTES], unsigned flags, size_t len)
{
	header[0] = (uint8_t)flags;
	header[1] = (uint8_t)(len >> 24);
	header[2] = (uint8_t)(len >> 16);
	header[3] = (uint8_t)(len >> 8);
	header[4] = (uint8_t)len;
}

void envelope_reader_done(struct envelope_reader *r)
{
	text_done(&r->payload);
	*r = (struct envelope_reader){0};
}

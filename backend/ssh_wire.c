#include "ssh_wire.h"

#include <errno.h>
#include <string.h>

#include "bounds.h"

/* PROTOCOL.mux, 11. */
#define MUX_MSG_HELLO 0x00000001
#define MUX_C_PROXY 0x1000000f
#define MUX_S_PROXY 0x8000000f
#define MUX_S_PERMISSION_DENIED 0x80000002
#define MUX_S_FAILURE 0x80000003
#define MUX_VERSION 4
#define MUX_PROXY_REQUEST_ID 1

/* ---- Reading ---- */

/* What is left of a packet. A read past its end gives nothing and is remembered. */
struct cursor {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static uint32_t big_endian(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static const uint8_t *take(struct cursor *c, size_t len)
{
	const uint8_t *p = c->at;

	if (c->bad || c->left < len) {
		c->bad = true;
		return NULL;
	}
	c->at += len;
	c->left -= len;
	return p;
}

static uint8_t take_u8(struct cursor *c)
{
	const uint8_t *p = take(c, 1);

	return p ? *p : 0;
}

static uint32_t take_u32(struct cursor *c)
{
	const uint8_t *p = take(c, 4);

	return p ? big_endian(p) : 0;
}

static struct ssh_string take_string(struct cursor *c)
{
	uint32_t len = take_u32(c);
	const uint8_t *p = take(c, len);

	return p ? (struct ssh_string){(const char *)p, len} : (struct ssh_string){"", 0};
}

bool ssh_string_is(const struct ssh_string *s, const char *word)
{
	return s->len == strlen(word) && memcmp(s->data, word, s->len) == 0;
}

/* A frame: its length, then so many bytes. Returns as ssh_packet_read(). */
static ssize_t take_frame(const void *data, size_t len, struct cursor *ret)
{
	const uint8_t *p = data;
	uint32_t need;

	if (len < 4)
		return 0;
	need = big_endian(p);
	if (need > SSH_FRAME_MAX)
		return -EPROTO;
	if (len - 4 < need)
		return 0;
	*ret = (struct cursor){.at = p + 4, .left = need};
	return (ssize_t)need + 4;
}

static void read_request(struct cursor *c, struct ssh_packet *p)
{
	p->name = take_string(c);
	p->want_reply = take_u8(c);
	if (ssh_string_is(&p->name, "exit-status"))
		p->code = take_u32(c);
	else if (ssh_string_is(&p->name, "exit-signal"))
		p->data = take_string(c);
}

static void read_confirmation(struct cursor *c, struct ssh_packet *p)
{
	p->sender = take_u32(c);
	p->window = take_u32(c);
	p->packet_max = take_u32(c);
}

static void read_body(struct cursor *c, struct ssh_packet *p)
{
	switch (p->type) {
	case SSH_CHANNEL_OPEN_CONFIRMATION:
		read_confirmation(c, p);
		break;
	case SSH_CHANNEL_OPEN_FAILURE:
		p->code = take_u32(c);
		p->data = take_string(c);
		break;
	case SSH_CHANNEL_WINDOW_ADJUST:
		p->window = take_u32(c);
		break;
	case SSH_CHANNEL_EXTENDED_DATA:
		p->code = take_u32(c);
		p->data = take_string(c);
		break;
	case SSH_CHANNEL_DATA:
		p->data = take_string(c);
		break;
	case SSH_CHANNEL_REQUEST:
		read_request(c, p);
		break;
	default:
		break;
	}
}

ssize_t ssh_packet_read(const void *data, size_t len, struct ssh_packet *ret)
{
	struct cursor c;
	struct ssh_packet p = {0};
	ssize_t n = take_frame(data, len, &c);

	if (n <= 0)
		return n;
	take_u8(&c); /* the padding's length; there is none */
	p.type = take_u8(&c);
	/* An opening names a kind of channel where the others have a number: not for us. */
	if (p.type > SSH_CHANNEL_OPEN && p.type <= SSH_CHANNEL_FAILURE) {
		p.channel = take_u32(&c);
		read_body(&c, &p);
	}
	if (c.bad)
		return -EPROTO;
	*ret = p;
	return n;
}

ssize_t ssh_mux_read(const void *data, size_t len, enum mux_reply *ret, struct ssh_string *why)
{
	struct cursor c;
	enum mux_reply reply;
	ssize_t n = take_frame(data, len, &c);

	if (n <= 0)
		return n;
	*why = (struct ssh_string){"", 0};
	switch (take_u32(&c)) {
	case MUX_MSG_HELLO:
		reply = take_u32(&c) == MUX_VERSION ? MUX_HELLO : MUX_REFUSED;
		break;
	case MUX_S_PROXY:
		reply = MUX_PROXY;
		break;
	case MUX_S_PERMISSION_DENIED:
	case MUX_S_FAILURE:
		take_u32(&c);
		*why = take_string(&c);
		reply = MUX_REFUSED;
		break;
	default:
		return -EPROTO;
	}
	if (c.bad)
		return -EPROTO;
	*ret = reply;
	return n;
}

/* ---- Writing ---- */

static void store(uint8_t *p, uint32_t n)
{
	p[0] = (uint8_t)(n >> 24);
	p[1] = (uint8_t)(n >> 16);
	p[2] = (uint8_t)(n >> 8);
	p[3] = (uint8_t)n;
}

/*
 * A packet is small but for the data it ends with: its head is put together here, and the
 * whole is appended or nothing.
 */
struct head {
	uint8_t bytes[160];
	size_t len;
};

static void put_u8(struct head *h, uint8_t n)
{
	h->bytes[h->len++] = n;
}

static void put_u32(struct head *h, uint32_t n)
{
	store(h->bytes + h->len, n);
	h->len += 4;
}

static void put_word(struct head *h, const char *word)
{
	size_t len = strlen(word);

	put_u32(h, (uint32_t)len);
	memcpy(h->bytes + h->len, word, len);
	h->len += len;
}

/* Begins a packet; the length is filled in by finish(). */
static struct head begin(enum ssh_type type)
{
	struct head h = {.len = 4};

	put_u8(&h, 0);
	put_u8(&h, (uint8_t)type);
	return h;
}

static struct head begin_for(enum ssh_type type, uint32_t peer)
{
	struct head h = begin(type);

	put_u32(&h, peer);
	return h;
}

static int finish(struct text *out, struct head *h, const void *data, size_t len)
{
	size_t before = out->len;
	int err;

	store(h->bytes, (uint32_t)(h->len - 4 + len));
	err = text_append(out, h->bytes, h->len);
	if (!err && len)
		err = text_append(out, data, len);
	if (err)
		out->len = before;
	return err;
}

int ssh_put_greeting(struct text *out)
{
	struct head h = {0};

	put_u32(&h, 8);
	put_u32(&h, MUX_MSG_HELLO);
	put_u32(&h, MUX_VERSION);
	put_u32(&h, 8);
	put_u32(&h, MUX_C_PROXY);
	put_u32(&h, MUX_PROXY_REQUEST_ID);
	return text_append(out, h.bytes, h.len);
}

int ssh_put_open(struct text *out, uint32_t channel, uint32_t window, uint32_t packet_max)
{
	struct head h = begin(SSH_CHANNEL_OPEN);

	put_word(&h, "session");
	put_u32(&h, channel);
	put_u32(&h, window);
	put_u32(&h, packet_max);
	return finish(out, &h, NULL, 0);
}

int ssh_put_exec(struct text *out, uint32_t peer, const char *command)
{
	struct head h = begin_for(SSH_CHANNEL_REQUEST, peer);
	size_t len = strlen(command);

	put_word(&h, "exec");
	put_u8(&h, true);
	put_u32(&h, (uint32_t)len);
	return finish(out, &h, command, len);
}

int ssh_put_ping(struct text *out, uint32_t peer)
{
	struct head h = begin_for(SSH_CHANNEL_REQUEST, peer);

	put_word(&h, "ping@spawnfs");
	put_u8(&h, true);
	return finish(out, &h, NULL, 0);
}

int ssh_put_data(struct text *out, uint32_t peer, const void *data, size_t len)
{
	struct head h = begin_for(SSH_CHANNEL_DATA, peer);

	put_u32(&h, (uint32_t)len);
	return finish(out, &h, data, len);
}

int ssh_put_window(struct text *out, uint32_t peer, uint32_t bytes)
{
	struct head h = begin_for(SSH_CHANNEL_WINDOW_ADJUST, peer);

	put_u32(&h, bytes);
	return finish(out, &h, NULL, 0);
}

int ssh_put_eof(struct text *out, uint32_t peer)
{
	struct head h = begin_for(SSH_CHANNEL_EOF, peer);

	return finish(out, &h, NULL, 0);
}

int ssh_put_close(struct text *out, uint32_t peer)
{
	struct head h = begin_for(SSH_CHANNEL_CLOSE, peer);

	return finish(out, &h, NULL, 0);
}

int ssh_put_failure(struct text *out, uint32_t peer)
{
	struct head h = begin_for(SSH_CHANNEL_FAILURE, peer);

	return finish(out, &h, NULL, 0);
}

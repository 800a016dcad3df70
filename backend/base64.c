#include "base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Value of a digit plus 1, so that 0 is "not a digit". */
static const uint8_t digits[256] = {
	['A'] = 1,  ['B'] = 2,	['C'] = 3,  ['D'] = 4,	['E'] = 5,  ['F'] = 6,	['G'] = 7,
	['H'] = 8,  ['I'] = 9,	['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14,
	['O'] = 15, ['P'] = 16, ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21,
	['V'] = 22, ['W'] = 23, ['X'] = 24, ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28,
	['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32, ['g'] = 33, ['h'] = 34, ['i'] = 35,
	['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40, ['o'] = 41, ['p'] = 42,
	['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48, ['w'] = 49,
	['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
	['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63,
	['/'] = 64, ['-'] = 63, ['_'] = 64,
};

int base64_append(struct text *t, const void *data, size_t len)
{
	const uint8_t *in = data;
	char block[4 * 256];

	while (len) {
		size_t out = 0;

		for (; len >= 3 && out < sizeof(block); in += 3, len -= 3) {
			uint32_t bits = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

			block[out++] = alphabet[bits >> 18];
			block[out++] = alphabet[bits >> 12 & 63];
			block[out++] = alphabet[bits >> 6 & 63];
			block[out++] = alphabet[bits & 63];
		}
		if (len && len < 3 && out < sizeof(block)) {
			uint32_t bits =
				(uint32_t)in[0] << 16 | (len == 2 ? (uint32_t)in[1] << 8 : 0);

			block[out++] = alphabet[bits >> 18];
			block[out++] = alphabet[bits >> 12 & 63];
			block[out++] = len == 2 ? alphabet[bits >> 6 & 63] : '=';
			block[out++] = '=';
			len = 0;
		}
		if (text_append(t, block, out) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* The last two or three digits of a text without its padding: one byte or two. */
static ssize_t decode_tail(struct payload *p, uint8_t *out)
{
	const uint8_t *in = (const uint8_t *)p->data;
	size_t len = p->len;
	uint32_t bits = 0;

	for (size_t i = 0; i < len; i++) {
		if (!digits[in[i]])
			return -EPROTO;
		bits |= (uint32_t)(digits[in[i]] - 1) << (18 - 6 * i);
	}
	if (len == 1)
		return -EPROTO;
	p->data += len;
	p->len = 0;
	out[0] = (uint8_t)(bits >> 16);
	if (len == 3)
		out[1] = (uint8_t)(bits >> 8);
	return (ssize_t)len - 1;
}

/* Whole blocks, as far as there are and fit. Returns the bytes written. */
static ssize_t decode_blocks(struct payload *p, uint8_t *out, size_t size)
{
	const uint8_t *in = (const uint8_t *)p->data;
	size_t blocks = MIN(p->len / 4, size / 3);

	for (size_t i = 0; i < blocks; i++, in += 4, out += 3) {
		unsigned a = digits[in[0]], b = digits[in[1]];
		unsigned c = digits[in[2]], d = digits[in[3]];
		uint32_t bits = (a - 1) << 18 | (b - 1) << 12 | (c - 1) << 6 | (d - 1);

		if (!a || !b || !c || !d)
			return -EPROTO;
		out[0] = (uint8_t)(bits >> 16);
		out[1] = (uint8_t)(bits >> 8);
		out[2] = (uint8_t)bits;
	}
	p->data += blocks * 4;
	p->len -= blocks * 4;
	return (ssize_t)(blocks * 3);
}

/*
 * What is left of the first block, or of the tail, as far as it fits. The block stays in the
 * payload until its last byte was given.
 */
static ssize_t decode_part(struct payload *p, uint8_t *out, size_t size)
{
	struct payload block = {.data = p->data, .len = MIN(p->len, (size_t)4)};
	size_t digit_count = block.len;
	uint8_t bytes[3];
	ssize_t n = block.len == 4 ? decode_blocks(&block, bytes, sizeof(bytes))
				   : decode_tail(&block, bytes);
	size_t part;

	if (n < 0)
		return n;
	part = MIN((size_t)n - p->given, size);
	memcpy(out, bytes + p->given, part);
	p->given += part;
	if (p->given == (size_t)n) {
		p->data += digit_count;
		p->len -= digit_count;
		p->given = 0;
	}
	return (ssize_t)part;
}

static void drop_padding(struct payload *p)
{
	if (p->len % 4 == 0)
		for (int i = 0; i < 2 && p->len && p->data[p->len - 1] == '='; i++)
			p->len--;
}

static ssize_t decode(struct payload *p, uint8_t *out, size_t size)
{
	size_t done = 0;

	drop_padding(p);
	while (p->len && done < size) {
		bool whole = !p->given && p->len >= 4 && size - done >= 3;
		ssize_t n = whole ? decode_blocks(p, out + done, size - done)
				  : decode_part(p, out + done, size - done);

		if (n < 0)
			return n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t payload_read(struct payload *p, void *buf, size_t size)
{
	size_t part;

	if (p->base64)
		return decode(p, buf, size);
	/* protobuf-c has no data for a field that is empty. */
	if (!p->len)
		return 0;
	part = MIN(p->len, size);
	memcpy(buf, p->data, part);
	p->data += part;
	p->len -= part;
	return (ssize_t)part;
}

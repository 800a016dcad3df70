/*
 * The bytes on the control socket of an ssh master, in proxy mode.
 *
 * First the multiplexing protocol greets (PROTOCOL.mux, 1 and 9); from the answer to MUX_C_PROXY
 * on, each packet is one of the SSH connection protocol (RFC 4254), in a frame: its
 * length, a zero (the padding), its type. All integers are big-endian. Pure
 * functions; what is read comes from another machine and is not trusted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "text.h"

/* RFC 4254, section 9. */
enum ssh_type {
	SSH_GLOBAL_REQUEST = 80,
	SSH_CHANNEL_OPEN = 90,
	SSH_CHANNEL_OPEN_CONFIRMATION = 91,
	SSH_CHANNEL_OPEN_FAILURE = 92,
	SSH_CHANNEL_WINDOW_ADJUST = 93,
	SSH_CHANNEL_DATA = 94,
	SSH_CHANNEL_EXTENDED_DATA = 95,
	SSH_CHANNEL_EOF = 96,
	SSH_CHANNEL_CLOSE = 97,
	SSH_CHANNEL_REQUEST = 98,
	SSH_CHANNEL_SUCCESS = 99,
	SSH_CHANNEL_FAILURE = 100,
};

/* The only kind of extended data: stderr (RFC 4254, 5.2). */
#define SSH_EXTENDED_DATA_STDERR 1

/* A string within a packet; not NUL-terminated, valid as long as the packet. */
struct ssh_string {
	const char *data;
	size_t len;
};

/* A packet, taken apart. Which of the fields are set follows from the type. */
struct ssh_packet {
	uint8_t type;	     /* one of enum ssh_type, or another that says nothing to us */
	uint32_t channel;    /* ours; all but GLOBAL_REQUEST */
	uint32_t sender;     /* OPEN_CONFIRMATION: theirs */
	uint32_t window;     /* OPEN_CONFIRMATION, WINDOW_ADJUST: bytes */
	uint32_t packet_max; /* OPEN_CONFIRMATION: bytes of data in one packet */
	uint32_t code;	     /* OPEN_FAILURE: reason; EXTENDED_DATA: kind; REQUEST: exit-status */
	bool want_reply;     /* REQUEST */
	struct ssh_string name; /* REQUEST: its name */
	struct ssh_string data; /* DATA, EXTENDED_DATA; OPEN_FAILURE: why; REQUEST: signal name */
};

bool ssh_string_is(const struct ssh_string *s, const char *word);

/*
 * Takes one packet from the len bytes at data. Returns the bytes it has, 0 when it is not there as
 * a whole yet, or -EPROTO: what is there cannot be a packet.
 */
ssize_t ssh_packet_read(const void *data, size_t len, struct ssh_packet *ret);

/* What the master says before that. */
enum mux_reply { MUX_HELLO, MUX_PROXY, MUX_REFUSED };

/* As ssh_packet_read(). why: MUX_REFUSED: the reason, may be empty. */
ssize_t ssh_mux_read(const void *data, size_t len, enum mux_reply *ret, struct ssh_string *why);

/* Writers: each appends one packet. They return 0, -ENOMEM or -E2BIG. */

/* Our hello and the request for proxy mode. */
int ssh_put_greeting(struct text *out);
int ssh_put_open(struct text *out, uint32_t channel, uint32_t window, uint32_t packet_max);
int ssh_put_exec(struct text *out, uint32_t peer, const char *command);
/* A request that no server knows: its answer, a failure, comes after what it has sent by then. */
int ssh_put_ping(struct text *out, uint32_t peer);
int ssh_put_data(struct text *out, uint32_t peer, const void *data, size_t len);
int ssh_put_window(struct text *out, uint32_t peer, uint32_t bytes);
int ssh_put_eof(struct text *out, uint32_t peer);
int ssh_put_close(struct text *out, uint32_t peer);
/* The answer to a request that wants one and that we do not know. */
int ssh_put_failure(struct text *out, uint32_t peer);

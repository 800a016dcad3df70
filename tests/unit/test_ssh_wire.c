/* The bytes of the control socket: what we write is what PROTOCOL.mux and RFC 4254 say; what we
 * read. */
#include "ssh_wire.h"

#include <errno.h>

#include "bounds.h"
#include "check.h"

static void check_bytes(const struct text *t, const char *wanted, size_t len)
{
	CHECK_INT(t->len, len);
	CHECK(memcmp(t->data, wanted, len) == 0);
}

#define CHECK_BYTES(t, literal) check_bytes(t, literal, sizeof(literal) - 1)

static void test_written(void)
{
	AUTO_TEXT struct text t = {0};

	CHECK_INT(ssh_put_greeting(&t), 0);
	CHECK_BYTES(&t, "\0\0\0\10\0\0\0\1\0\0\0\4"
			"\0\0\0\10\20\0\0\17\0\0\0\1");
	t.len = 0;
	CHECK_INT(ssh_put_open(&t, 7, 0x100000, 0x8000), 0);
	CHECK_BYTES(&t, "\0\0\0\31\0\132\0\0\0\7session\0\0\0\7\0\20\0\0\0\0\200\0");
	t.len = 0;
	CHECK_INT(ssh_put_exec(&t, 1, "ls"), 0);
	CHECK_BYTES(&t, "\0\0\0\25\0\142\0\0\0\1\0\0\0\4exec\1\0\0\0\2ls");
	t.len = 0;
	CHECK_INT(ssh_put_data(&t, 2, "a\0b", 3), 0);
	CHECK_BYTES(&t, "\0\0\0\15\0\136\0\0\0\2\0\0\0\3a\0b");
	t.len = 0;
	CHECK_INT(ssh_put_window(&t, 2, 5), 0);
	CHECK_INT(ssh_put_eof(&t, 2), 0);
	CHECK_INT(ssh_put_close(&t, 2), 0);
	CHECK_INT(ssh_put_failure(&t, 2), 0);
	CHECK_BYTES(&t, "\0\0\0\12\0\135\0\0\0\2\0\0\0\5"
			"\0\0\0\6\0\140\0\0\0\2"
			"\0\0\0\6\0\141\0\0\0\2"
			"\0\0\0\6\0\144\0\0\0\2");
}

/* Every beginning of it is "not there yet". */
static struct ssh_packet read_whole(const char *bytes, size_t len)
{
	struct ssh_packet p;

	for (size_t i = 0; i < len; i++)
		CHECK_INT(ssh_packet_read(bytes, i, &p), 0);
	CHECK_INT(ssh_packet_read(bytes, len, &p), len);
	return p;
}

#define READ(literal) read_whole(literal, sizeof(literal) - 1)

static void test_read(void)
{
	struct ssh_packet p = READ("\0\0\0\22\0\133\0\0\0\7\0\0\0\1\0\40\0\0\0\0\200\0");

	CHECK_INT(p.type, SSH_CHANNEL_OPEN_CONFIRMATION);
	CHECK_INT(p.channel, 7);
	CHECK_INT(p.sender, 1);
	CHECK_INT(p.window, 0x200000);
	CHECK_INT(p.packet_max, 0x8000);
	p = READ("\0\0\0\22\0\137\0\0\0\1\0\0\0\1\0\0\0\4oops");
	CHECK_INT(p.type, SSH_CHANNEL_EXTENDED_DATA);
	CHECK_INT(p.code, SSH_EXTENDED_DATA_STDERR);
	CHECK(ssh_string_is(&p.data, "oops") && !ssh_string_is(&p.data, "oop"));
	p = READ("\0\0\0\32\0\142\0\0\0\1\0\0\0\13exit-status\0\0\0\0\377");
	CHECK(ssh_string_is(&p.name, "exit-status"));
	CHECK(!p.want_reply);
	CHECK_INT(p.code, 255);
	p = READ("\0\0\0\44\0\142\0\0\0\1\0\0\0\13exit-signal\0\0\0\0\4SEGV\0\0\0\0\0\0");
	CHECK(ssh_string_is(&p.name, "exit-signal"));
	CHECK(ssh_string_is(&p.data, "SEGV"));
	p = READ("\0\0\0\22\0\134\0\0\0\3\0\0\0\2\0\0\0\4full");
	CHECK_INT(p.type, SSH_CHANNEL_OPEN_FAILURE);
	CHECK_INT(p.code, 2);
	CHECK(ssh_string_is(&p.data, "full"));
}

static void test_refused(void)
{
	struct ssh_packet p;
	enum mux_reply reply;
	struct ssh_string why;

	/* Too long, too short, a string that is longer than its packet. */
	CHECK_INT(ssh_packet_read("\377\0\0\0", 4, &p), -EPROTO);
	CHECK_INT(ssh_packet_read("\0\0\0\0", 4, &p), -EPROTO);
	CHECK_INT(ssh_packet_read("\0\0\0\5\0\140\0\0\0", 9, &p), -EPROTO);
	CHECK_INT(ssh_packet_read("\0\0\0\13\0\136\0\0\0\1\0\0\0\2x", 15, &p), -EPROTO);
	CHECK_INT(ssh_mux_read("\0\0\0\4\0\0\0\11", 8, &reply, &why), -EPROTO);
}

static void test_greeting(void)
{
	enum mux_reply reply;
	struct ssh_string why;

	CHECK_INT(ssh_mux_read("\0\0\0\10\0\0\0\1\0\0\0\4", 12, &reply, &why), 12);
	CHECK_INT(reply, MUX_HELLO);
	CHECK_INT(ssh_mux_read("\0\0\0\10\0\0\0\1\0\0\0\5", 12, &reply, &why), 12);
	CHECK_INT(reply, MUX_REFUSED);
	CHECK_INT(ssh_mux_read("\0\0\0\10\200\0\0\17\0\0\0\1", 12, &reply, &why), 12);
	CHECK_INT(reply, MUX_PROXY);
	CHECK_INT(ssh_mux_read("\0\0\0\16\200\0\0\3\0\0\0\1\0\0\0\2no", 18, &reply, &why), 18);
	CHECK_INT(reply, MUX_REFUSED);
	CHECK(ssh_string_is(&why, "no"));
}

int main(void)
{
	RUN(test_written);
	RUN(test_read);
	RUN(test_refused);
	RUN(test_greeting);
	return 0;
}

/* What an ssh master may send: every packet is read within its bounds, and pieces are waited for.
 */
#include <errno.h>
#include <stdlib.h>

#include "fuzz.h"
#include "ssh_wire.h"

static void touch(const struct ssh_string *s)
{
	volatile char sink = 0;

	for (size_t i = 0; i < s->len; i++)
		sink ^= s->data[i];
	(void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t at = 0;
	bool greeting = size && data[0] & 0x80;

	while (at < size) {
		struct ssh_packet p = {0};
		struct ssh_string why = {0};
		enum mux_reply reply;
		ssize_t n = greeting ? ssh_mux_read(data + at, size - at, &reply, &why)
				     : ssh_packet_read(data + at, size - at, &p);

		if (n <= 0)
			break;
		if ((size_t)n > size - at)
			abort();
		touch(&why);
		touch(&p.name);
		touch(&p.data);
		/* The same packet, cut short, is only not there yet. */
		if (!greeting && ssh_packet_read(data + at, (size_t)n - 1, &p) != 0)
			abort();
		at += (size_t)n;
	}
	return 0;
}

#include "docker_frame.h"

#include <errno.h>
#include <string.h>

/* The first byte of a frame: 0 is input that the engine echoes, 3 an error of its own. */
enum { FRAME_STDOUT = 1, FRAME_STDERR = 2 };

static int parse_head(struct docker_frames *f)
{
	const unsigned char *h = f->head;

	if ((h[0] != FRAME_STDOUT && h[0] != FRAME_STDERR) || h[1] || h[2] || h[3])
		return -EBADMSG;
	f->left = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
	if (!f->left)
		f->have = 0;
	return 0;
}

static size_t take_head(struct docker_frames *f, const char *data, size_t len)
{
	size_t take = MIN(len, sizeof(f->head) - f->have);

	memcpy(f->head + f->have, data, take);
	f->have += take;
	return take;
}

ssize_t docker_frames_feed(struct docker_frames *f, const char *data, size_t len,
			   docker_payload_fn *sink, void *owner)
{
	size_t at = 0;

	while (at < len) {
		size_t offered = MIN(len - at, (size_t)f->left);
		size_t taken;

		if (f->have < sizeof(f->head)) {
			at += take_head(f, data + at, len - at);
			if (f->have == sizeof(f->head) && parse_head(f) < 0)
				return -EBADMSG;
			continue;
		}
		taken = sink(owner, f->head[0] == FRAME_STDOUT ? STREAM_STDOUT : STREAM_STDERR,
			     data + at, offered);
		at += taken;
		f->left -= (uint32_t)taken;
		if (!f->left)
			f->have = 0;
		if (taken < offered)
			break;
	}
	return (ssize_t)at;
}

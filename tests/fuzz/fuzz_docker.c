/*
 * Any bytes as what an engine sends: an HTTP answer, the frames of a command's output, the
 * reports of a far shell, a refusal. However they are cut, the same comes out.
 */
#include <string.h>

#include "docker_failure.h"
#include "docker_frame.h"
#include "docker_http.h"
#include "fuzz.h"

struct outcome {
	struct docker_answer answer;
	struct text body;
	ssize_t used; /* or -errno */
};

/* Parses an answer that comes `step` bytes at a time. */
static void answer(const char *data, size_t size, size_t step, struct outcome *ret)
{
	size_t have = 0;
	size_t at = 0;

	*ret = (struct outcome){0};
	while (have < size && !ret->answer.complete) {
		ssize_t n;

		have = MIN(have + step, size);
		if (!ret->answer.status) {
			n = docker_answer_head(&ret->answer, data + at, have - at);
			if (n > 0)
				at += (size_t)n;
			if (n <= 0 && (ret->used = n) == 0)
				continue;
			if (n < 0)
				return;
		}
		n = docker_answer_body(&ret->answer, data + at, have - at, &ret->body);
		ret->used = n;
		if (n < 0)
			return;
		require((size_t)n <= have - at, "no more is used than there is");
		at += (size_t)n;
	}
	ret->used = (ssize_t)at;
}

static void check_answer(const char *data, size_t size)
{
	struct outcome whole;
	struct outcome cut;

	answer(data, size, size, &whole);
	answer(data, size, 1, &cut);
	/* A bound may be met sooner or later; what is accepted is the same. */
	if (whole.used >= 0 && cut.used >= 0) {
		require(whole.answer.status == cut.answer.status, "the same status");
		require(whole.answer.complete == cut.answer.complete, "the same end");
		require(whole.body.len == cut.body.len &&
				memcmp(text_str(&whole.body), text_str(&cut.body), cut.body.len) ==
					0,
			"the same body");
	}
	text_done(&whole.body);
	text_done(&cut.body);
}

struct sink {
	struct text out[STREAM_COUNT];
	size_t limit; /* taken at a time */
};

static size_t take(void *owner, enum stream_id id, const char *data, size_t len)
{
	struct sink *s = owner;
	size_t n = MIN(len, s->limit);

	require(len > 0, "no empty piece");
	return text_append(&s->out[id], data, n) == 0 ? n : 0;
}

static bool frames(const char *data, size_t size, struct sink *s)
{
	struct docker_frames f = {0};
	size_t at = 0;

	while (at < size) {
		ssize_t n = docker_frames_feed(&f, data + at, size - at, take, s);

		if (n < 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static void check_frames(const char *data, size_t size)
{
	struct sink whole = {.limit = SIZE_MAX};
	struct sink slow = {.limit = 3};
	bool good = frames(data, size, &whole);

	require(frames(data, size, &slow) == good, "good or bad, however slowly it is taken");
	for (int i = 0; i < STREAM_COUNT; i++) {
		require(whole.out[i].len == slow.out[i].len &&
				memcmp(text_str(&whole.out[i]), text_str(&slow.out[i]),
				       slow.out[i].len) == 0,
			"the same bytes");
		text_done(&whole.out[i]);
		text_done(&slow.out[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_TEXT struct text text = {0};

	check_answer((const char *)data, size);
	check_frames((const char *)data, size);
	if (text_append(&text, data, size) == 0)
		docker_failure_parse(text_str(&text));
	return 0;
}

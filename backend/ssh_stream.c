/* The streams of a command: what is not its own taken off in front, the rest passed on. */
#include <errno.h>
#include <string.h>

#include "bounds.h"
#include "log.h"
#include "ssh.h"

static size_t kept(const struct ssh_stream *s)
{
	return s->kept.len - s->kept_at;
}

/* The first len bytes are dealt with. */
static void drop(struct ssh_command *c, struct ssh_stream *s, size_t len)
{
	s->kept_at += len;
	if (c->channel)
		ssh_channel_consumed(c->channel, len);
	if (s->kept_at < s->kept.len)
		return;
	text_done(&s->kept);
	s->kept_at = 0;
}

static int keep(struct ssh_command *c, struct ssh_stream *s, const char *data, size_t len)
{
	/* What has been dropped in front is made room of. */
	if (s->kept_at > kept(s)) {
		memmove(s->kept.data, s->kept.data + s->kept_at, kept(s));
		s->kept.len -= s->kept_at;
		s->kept_at = 0;
	}
	if (text_append(&s->kept, data, len) == 0)
		return 0;
	ssh_link_fail(c->channel->link, "no memory");
	return -ENOMEM;
}

/* ---- The command's own ---- */

/* Returns what was taken. */
static size_t pass(struct ssh_command *c, enum stream_id id, const char *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		void *room;
		size_t n = exec_output_reserve(c->command.exec, id, &room);

		if (!n)
			break;
		n = MIN(n, len - done);
		memcpy(room, data + done, n);
		exec_output_commit(c->command.exec, id, n);
		done += n;
	}
	return done;
}

bool ssh_stream_push(struct ssh_command *c, enum stream_id id)
{
	struct ssh_stream *s = &c->streams[id];

	if (!s->real || c->stage != SSH_RUNNING)
		return !kept(s);
	if (kept(s))
		drop(c, s, pass(c, id, s->kept.data + s->kept_at, kept(s)));
	return !kept(s);
}

void ssh_stream_cut(struct ssh_command *c, enum stream_id id)
{
	struct ssh_stream *s = &c->streams[id];

	s->cut = true;
	drop(c, s, kept(s));
}

void ssh_stream_overdraw(struct ssh_command *c)
{
	for (int i = 0; i < STREAM_COUNT; i++) {
		exec_output_overdraw(c->command.exec, (enum stream_id)i, DRAIN_ALLOWANCE);
		ssh_stream_push(c, (enum stream_id)i);
	}
}

/* ---- Before it ---- */

/* What a login shell prints is nobody's; of too much of it only the end is kept. */
static void drop_noise(struct ssh_command *c, struct ssh_stream *s)
{
	if (kept(s) > SSH_NOISE_BYTES) {
		log_debug("ssh: %s: a login shell printed %zu bytes before the start",
			  c->ssh->options.host, kept(s));
		drop(c, s, kept(s) - FAR_MARK_HEX);
	}
}

/* Finds "MARK" and the rest of its line, as a string in words. Returns whether it is there. */
static bool find_mark(struct ssh_command *c, struct ssh_stream *s, char *words, size_t size,
		      size_t *end)
{
	const char *from = s->kept.data + s->kept_at;
	const char *mark = kept(s) ? memmem(from, kept(s), c->mark, FAR_MARK_HEX) : NULL;
	const char *rest = mark ? mark + FAR_MARK_HEX : NULL;
	const char *newline = mark ? memchr(rest, '\n', (size_t)(from + kept(s) - rest)) : NULL;

	if (!newline)
		return false;
	*end = (size_t)(newline + 1 - from);
	*words = '\0';
	if ((size_t)(newline - rest) < size) {
		memcpy(words, rest, (size_t)(newline - rest));
		words[newline - rest] = '\0';
	}
	return true;
}

/* A trace of the login shell may show the mark too, but never alone on the rest of a line. */
static void scan_stderr(struct ssh_command *c, struct ssh_stream *s)
{
	char words[8];
	size_t end;

	while (!s->real && find_mark(c, s, words, sizeof(words), &end)) {
		const char *at = s->kept.data + s->kept_at + end - 2;

		s->real = !*words && *at != ' ';
		drop(c, s, end);
	}
	if (!s->real)
		drop_noise(c, s);
}

static void take_words(struct ssh_command *c, char *words)
{
	char *detail = strchr(words + 1, ' ');

	if (*words != ' ' || !words[1])
		return;
	if (c->stage == SSH_OPENING && !words[1 + strspn(words + 1, "0123456789")]) {
		ssh_command_ready(c, words + 1);
	} else if (c->stage == SSH_STARTING && detail) {
		*detail++ = '\0';
		if (strcmp(words + 1, "start") == 0)
			ssh_command_started(c, detail);
		else
			ssh_command_refused(c, words + 1, detail);
	}
}

static void scan_stdout(struct ssh_command *c, struct ssh_stream *s)
{
	char words[128];
	size_t end;

	while (!s->real && find_mark(c, s, words, sizeof(words), &end)) {
		drop(c, s, end);
		/* Known before the report, after which output may be asked for. */
		s->real = c->stage == SSH_STARTING && strncmp(words, " start ", 7) == 0;
		take_words(c, words);
	}
	if (!s->real)
		drop_noise(c, s);
}

void ssh_stream_data(struct ssh_command *c, enum stream_id id, const char *data, size_t len)
{
	struct ssh_stream *s = &c->streams[id];
	size_t done = 0;

	c->data_since = true;
	if (s->cut) {
		ssh_channel_consumed(c->channel, len);
		return;
	}
	if (s->real && c->stage == SSH_RUNNING && !kept(s)) {
		done = pass(c, id, data, len);
		ssh_channel_consumed(c->channel, done);
	}
	if (done == len || keep(c, s, data + done, len - done) < 0)
		return;
	if (!s->real && id == STREAM_STDOUT)
		scan_stdout(c, s);
	else if (!s->real)
		scan_stderr(c, s);
	ssh_stream_push(c, id);
}

void ssh_stream_noise(const struct ssh_command *c, struct text *ret)
{
	for (int i = 0; i < STREAM_COUNT; i++) {
		const struct ssh_stream *s = &c->streams[i];
		const char *text = s->kept.data + s->kept_at;

		if (s->real || !kept(s))
			continue;
		text_printf(ret, " (it said: ");
		text_append_printable(ret, text, MIN(strcspn(text, "\n"), (size_t)200));
		text_printf(ret, ")");
		return;
	}
}

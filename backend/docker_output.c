#include "docker_output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docker_call.h"

/* Room for the next bytes; what an ended command left gets it without waiting for readers. */
static size_t reserve(struct docker_output *o, enum stream_id id, size_t len, void **ret)
{
	size_t room = exec_output_reserve(o->exec, id, ret);

	/* What children go on to write is nothing the ended command has left. */
	if (room || !o->draining || o->overdrawn[id] + len > DRAIN_ALLOWANCE)
		return room;
	o->overdrawn[id] += len;
	exec_output_overdraw(o->exec, id, len);
	return exec_output_reserve(o->exec, id, ret);
}

static size_t deliver(struct docker_output *o, enum stream_id id, const char *data, size_t len)
{
	size_t done = 0;

	if (o->merged)
		id = STREAM_STDOUT;
	while (done < len && !o->cut[id]) {
		void *room;
		size_t n = reserve(o, id, len - done, &room);

		if (!n && o->killed)
			o->cut[id] = true;
		/* A stream that the exec has cut off has no room, and takes all. */
		if (!n && !o->killed)
			return exec_output(o->exec, id, data + done, len - done) ? len : done;
		n = MIN(n, len - done);
		if (n) {
			memcpy(room, data + done, n);
			exec_output_commit(o->exec, id, n);
		}
		done += n;
	}
	return len;
}

size_t docker_output_take(struct docker_output *o, enum stream_id id, const char *data, size_t len)
{
	if (!o->open)
		return text_append(&o->early[id], data, len) == 0 ? len : 0;
	return docker_output_flush(o) ? deliver(o, id, data, len) : 0;
}

bool docker_output_flush(struct docker_output *o)
{
	for (int i = 0; o->open && i < STREAM_COUNT; i++) {
		struct text *early = &o->early[i];

		if (!early->len)
			continue;
		docker_drop(early, deliver(o, (enum stream_id)i, early->data, early->len));
		if (early->len)
			return false;
		text_done(early);
	}
	return true;
}

static int errno_of(const char *name)
{
	static const int errors[] = {ENOENT, ENOTDIR, EACCES};

	for (size_t i = 0; i < ARRAY_LEN(errors); i++)
		if (strcmp(strerrorname_np(errors[i]), name) == 0)
			return -errors[i];
	return -EIO;
}

/* One line, without the mark: "PID", "start TICKS", "cwd ENOENT", "env NAME". */
static struct docker_report parse_report(const char *words)
{
	struct docker_report report = {0};
	char name[16];

	if (sscanf(words, "start %" SCNu64, &report.number) == 1) {
		report.kind = DOCKER_REPORT_START;
	} else if (sscanf(words, "cwd %15s", name) == 1) {
		report.kind = DOCKER_REPORT_CWD;
		report.err = errno_of(name);
	} else if (sscanf(words, "env %255s", report.name) == 1) {
		report.kind = DOCKER_REPORT_ENV;
	} else if (sscanf(words, "%" SCNu64, &report.number) == 1) {
		report.kind = DOCKER_REPORT_PID;
	}
	return report;
}

struct docker_report docker_output_report(struct docker_output *o)
{
	struct text *early = &o->early[STREAM_STDOUT];
	struct docker_report report = {0};
	size_t mark_len = strlen(o->mark);
	char *end = early->len ? memchr(early->data, '\n', early->len) : NULL;

	if (!o->reports || o->open || !end || strncmp(early->data, o->mark, mark_len) != 0 ||
	    early->data[mark_len] != ' ')
		return report;
	*end = '\0';
	report = parse_report(early->data + mark_len + 1);
	docker_drop(early, (size_t)(end - early->data) + 1);
	return report;
}

void docker_output_open(struct docker_output *o)
{
	o->open = true;
}

const char *docker_output_refusal(const struct docker_output *o)
{
	const struct text *out = &o->early[STREAM_STDOUT];

	return text_str(out->len ? out : &o->early[STREAM_STDERR]);
}

void docker_output_done(struct docker_output *o)
{
	for (int i = 0; i < STREAM_COUNT; i++)
		text_done(&o->early[i]);
}

/*
 * spec: the write that completes a JSON value starts the command and is answered
 * when that has worked or failed; a shell command starts at the last close.
 *
 * Errors are reported by write(2): shells look at those and ignore close(2).
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>

#include "file.h"
#include "mount.h"
#include "park.h"

static void drop_text(struct entry *e)
{
	text_wipe(&e->spec_text);
	e->spec_frame = (struct frame){0};
}

/*
 * The text will never be whole. Whoever is in the middle of it has the rest still to write,
 * which must not be taken for the beginning of another text.
 */
static void give_up_text(struct entry *e)
{
	drop_text(e);
	exec_forget_signals(e->exec);
	list_for_each (h, &e->mount->handles, struct handle, link)
		if (h->entry == e && h->kind == FILE_SPEC && h->wrote && !h->refused)
			h->refused = EBUSY;
}

/* `>` or truncate(1): what follows is another text. */
static void begin_anew(struct entry *e)
{
	if (!e->spec_text.len)
		return;
	give_up_text(e);
	exec_set_error(e->exec, "spec: it was begun anew before the text was whole");
}

static int spec_open(struct handle *h, int flags)
{
	if (!h->writer)
		return 0;
	if (!h->append)
		begin_anew(h->entry);
	h->entry->spec_writers++;
	return 0;
}

/*
 * The text is whole: parses and starts it. Returns 0 or -errno; the sentence is in status then.
 */
static int start(struct entry *e)
{
	AUTO_TEXT struct text why = {0};
	struct spec *spec;
	int err = spec_parse(text_str(&e->spec_text), e->spec_text.len, &spec, &why);

	drop_text(e);
	if (err < 0)
		exec_set_error(e->exec, text_str(&why));
	else
		err = exec_start(e->exec, spec);
	if (err < 0)
		exec_forget_signals(e->exec);
	return err;
}

/* Takes the next bytes of the text. Returns 0 or -errno, with a sentence in *why. */
static int take(struct entry *e, const char *data, size_t size, struct text *why)
{
	size_t limit = e->mount->settings.spec_bytes;
	int err;

	if (e->spec_text.len + size > limit)
		return text_fail(why, -E2BIG,
				 "spec: larger than %zu bytes: send large input through stdin, or "
				 "raise the mount option spec_bytes",
				 limit);
	err = frame_feed(&e->spec_frame, data, size, why);
	if (err < 0)
		return err;
	err = text_append(&e->spec_text, data, size);
	return err < 0 ? text_fail(why, err, "spec: no memory for it") : 0;
}

static bool all_space(const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!isspace((unsigned char)data[i]))
			return false;
	return true;
}

/* After the start only the white space that may follow a JSON value is accepted. */
static void write_late(fuse_req_t req, const char *data, size_t size)
{
	if (all_space(data, size))
		fuse_reply_write(req, size);
	else
		fuse_reply_err(req, EBUSY);
}

/*
 * A refused text is given up whole: what follows in the same open file must not be taken for
 * the beginning of another one. It gets the same error: the kernel cuts a large write(2) into
 * pieces and, when one has been taken, does not tell of the error of the next.
 */
static void refuse(fuse_req_t req, struct handle *h, int err, const struct text *why)
{
	h->refused = -err;
	give_up_text(h->entry);
	if (why->len)
		exec_set_error(h->entry->exec, text_str(why));
	fuse_reply_err(req, h->refused);
}

static void spec_write(fuse_req_t req, struct handle *h, const char *data, size_t size,
		       bool nonblock)
{
	AUTO_TEXT struct text why = {0};
	struct entry *e = h->entry;
	int err;

	if (e->exec->state != EXEC_NEW) {
		write_late(req, data, size);
		return;
	}
	if (h->mount->ending || h->refused) {
		fuse_reply_err(req, h->mount->ending ? ESHUTDOWN : h->refused);
		return;
	}
	h->wrote = true;
	err = take(e, data, size, &why);
	if (!err && e->spec_frame.complete)
		err = start(e);
	if (err < 0)
		refuse(req, h, err, &why);
	else if (e->exec->state == EXEC_STARTING)
		park_write(&e->spec_writes, req, h, data, size, 0, true);
	else
		fuse_reply_write(req, size);
}

void spec_started(struct entry *e, int err)
{
	while (!list_empty(&e->spec_writes)) {
		struct park *p = list_first(&e->spec_writes, struct park, link);

		if (err < 0)
			park_reply_error(p, -err);
		else
			park_reply_write(p, p->size);
	}
}

bool spec_is_to_start(const struct entry *e)
{
	return e->exec->state == EXEC_NEW && e->spec_frame.kind == FRAME_SHELL;
}

static void say_incomplete(struct entry *e)
{
	exec_set_error(e->exec, "spec: the text ends in the middle of a JSON value");
}

/*
 * Half a JSON value at close is a mistake, unless more may be appended. Those who look at
 * close(2), cp and cat among them, hear of it.
 */
static int spec_flush(struct handle *h)
{
	struct entry *e = h->entry;

	if (!h->wrote || h->append || e->exec->state != EXEC_NEW ||
	    e->spec_frame.kind != FRAME_JSON)
		return 0;
	say_incomplete(e);
	return -EINVAL;
}

static void spec_release(struct handle *h)
{
	struct entry *e = h->entry;

	if (!h->writer)
		return;
	e->spec_writers--;
	if (e->spec_writers || e->exec->state != EXEC_NEW || h->mount->ending)
		return;
	if (e->spec_frame.kind == FRAME_SHELL)
		start(e);
	else if (e->spec_frame.kind == FRAME_JSON && !e->exec->error)
		say_incomplete(e);
	else if (e->spec_frame.kind == FRAME_EMPTY && h->wrote && !e->exec->error)
		exec_set_error(e->exec, "spec: nothing but white space was written: there is no "
					"command to run");
}

static void spec_truncate(struct entry *e)
{
	if (e->exec->state == EXEC_NEW)
		begin_anew(e);
}

/* The accepted spec, secrets redacted; empty before. */
static int spec_file_print(struct entry *e, struct text *ret)
{
	return e->exec->spec ? spec_print(e->exec->spec, ret) : 0;
}

const struct file_ops spec_file = {
	.open = spec_open,
	.release = spec_release,
	.write = spec_write,
	.flush = spec_flush,
	.truncate = spec_truncate,
	.print = spec_file_print,
};

/* ctl: commands, one a line. owner: the exec lives no longer than its last holder. */
#include <errno.h>
#include <string.h>

#include "file.h"
#include "invalidate.h"
#include "mount.h"

/* ---- ctl ---- */

/* How all its sentences begin. */
#define CTL_SAYS "ctl: "

static int do_signal(struct entry *e, const char *argument, struct text *why)
{
	int signo = signal_parse(argument);

	if (signo < 0)
		return text_fail(why, -EINVAL, "ctl: \"%s\" is not a signal", argument);
	if (!spec_is_to_start(e))
		return exec_signal(e->exec, signo, why);
	exec_signal_at_start(e->exec, signo);
	return 0;
}

static int do_kill(struct entry *e, const char *argument, struct text *why)
{
	exec_kill(e->exec);
	return 0;
}

static int do_eof(struct entry *e, const char *argument, struct text *why)
{
	exec_end_input(e->exec);
	return 0;
}

static int do_resize(struct entry *e, const char *argument, struct text *why)
{
	return text_fail(why, -EOPNOTSUPP, "ctl: resize: the command has no terminal");
}

static const struct ctl_command {
	const char *name;
	bool argument;
	int (*run)(struct entry *e, const char *argument, struct text *why);
} commands[] = {
	{"signal", true, do_signal},
	{"kill", false, do_kill},
	{"eof", false, do_eof},
	{"resize", true, do_resize},
};

/* Runs one line, which it cuts into words. Returns 0 or -errno with a sentence. */
static int run_line(struct entry *e, char *line, struct text *why)
{
	char *rest = line;
	char *name;

	rest += strspn(rest, " \t\r");
	name = strsep(&rest, " \t\r");
	if (!*name)
		return 0;
	if (rest) {
		rest += strspn(rest, " \t\r");
		for (size_t end = strlen(rest); end && strchr(" \t\r", rest[end - 1]); end--)
			rest[end - 1] = '\0';
	}
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		const struct ctl_command *c = &commands[i];

		if (strcmp(c->name, name) != 0)
			continue;
		if (c->argument != (rest && *rest))
			return text_fail(why, -EINVAL, "ctl: %s takes %s", name,
					 c->argument ? "an argument" : "no argument");
		return c->run(e, rest, why);
	}
	return text_fail(why, -EINVAL,
			 "ctl: \"%s\" is not one of: signal NAME, kill, eof, resize ROWS COLS",
			 name);
}

static int run_lines(struct entry *e, const char *data, size_t size, struct text *why)
{
	char buf[CTL_BYTES_MAX + 1];
	char *rest = buf;
	char *line;
	int err = 0;

	if (size > CTL_BYTES_MAX)
		return text_fail(why, -EINVAL, "ctl: a command of %zu bytes is too long", size);
	if (memchr(data, '\0', size))
		return text_fail(why, -EINVAL, "ctl: a NUL byte is not part of any command");
	memcpy(buf, data, size);
	buf[size] = '\0';
	while (!err && (line = strsep(&rest, "\n")))
		err = run_line(e, line, why);
	return err;
}

static void ctl_write(fuse_req_t req, struct handle *h, const char *data, size_t size,
		      bool nonblock)
{
	AUTO_TEXT struct text why = {0};
	AUTO_TEXT struct text clean = {0};
	struct exec *exec = h->entry->exec;
	int err;

	/* What was wrong with the command before is not what is wrong now. */
	if (exec->error && strncmp(exec->error, CTL_SAYS, strlen(CTL_SAYS)) == 0)
		exec_set_error(exec, NULL);
	err = run_lines(h->entry, data, size, &why);
	if (err < 0) {
		if (text_append_printable(&clean, text_str(&why), why.len) == 0)
			exec_set_error(exec, text_str(&clean));
		fuse_reply_err(req, -err);
		return;
	}
	fuse_reply_write(req, size);
}

const struct file_ops ctl_file = {
	.write = ctl_write,
};

/* ---- owner ---- */

/*
 * Who reads it is a copier (tar, cp, grep), who did not mean to own anything: it would kill
 * what it was to save. It is not empty, since some only read what has a size.
 */
static const char owner_says[] =
	"Who holds this file open, and does not read it, owns the exec: it ends with the last "
	"owner.\n";

static int owner_open(struct handle *h, int flags)
{
	h->entry->owners++;
	return 0;
}

/* The one way in which a directory goes without the kernel having asked for it. */
static void owner_release(struct handle *h)
{
	struct entry *e = h->entry;

	if (h->was_read || --e->owners || e->removed)
		return;
	invalidate_name(h->mount->invalidator, e->name);
	entry_remove(e);
}

static int owner_print(struct entry *e, struct text *ret)
{
	return text_append(ret, owner_says, strlen(owner_says));
}

static void owner_read(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock)
{
	AUTO_TEXT struct text t = {0};

	if (!h->was_read)
		h->entry->owners--;
	h->was_read = true;
	if (owner_print(h->entry, &t) < 0)
		fuse_reply_err(req, ENOMEM);
	else
		reply_text(req, &t, size, off);
}

const struct file_ops owner_file = {
	.open = owner_open,
	.release = owner_release,
	.read = owner_read,
	.print = owner_print,
};

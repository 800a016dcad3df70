/* What the files of .spawnfs say. None of it is a secret. */
#include "info.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "mount.h"
#include "text.h"
#include "util.h"

static int print_json(cJSON *json, struct text *ret)
{
	char *printed = cJSON_Print(json);
	int err = printed ? text_printf(ret, "%s\n", printed) : -ENOMEM;

	cJSON_free(printed);
	cJSON_Delete(json);
	return err;
}

static int print_version(struct mount *m, struct text *ret)
{
	return text_printf(ret, "spawnfs %s\n", SPAWNFS_VERSION);
}

/* A path may hold any bytes, JSON may not (text.h). */
static void add_path(cJSON *json, const char *key, const char *path)
{
	AUTO_TEXT struct text printable = {0};

	if (text_append_printable(&printable, path, strlen(path)) == 0)
		cJSON_AddStringToObject(json, key, text_str(&printable));
}

static int print_config(struct mount *m, struct text *ret)
{
	const struct settings *s = &m->settings;
	cJSON *json = cJSON_CreateObject();
	char umask[8];

	snprintf(umask, sizeof(umask), "%03o", (unsigned)s->umask);
	cJSON_AddStringToObject(json, "target", m->backend->target);
	add_path(json, "mountpoint", m->mountpoint);
	cJSON_AddStringToObject(json, "umask", umask);
	cJSON_AddBoolToObject(json, "allow_other", m->allow_other);
	cJSON_AddNumberToObject(json, "spec_bytes", (double)s->spec_bytes);
	cJSON_AddNumberToObject(json, "retain", (double)s->retain);
	add_path(json, "spool", s->spool_dir);
	cJSON_AddNumberToObject(json, "spool_memory", (double)s->spool_memory);
	cJSON_AddNumberToObject(json, "stdin_queue", (double)s->stdin_queue);
	cJSON_AddNumberToObject(json, "drain_quiet", (double)s->drain_quiet_ms / 1000);
	cJSON_AddNumberToObject(json, "drain_limit", (double)s->drain_limit_ms / 1000);
	cJSON_AddNumberToObject(json, "kill_give_up", (double)s->kill_give_up_ms / 1000);
	cJSON_AddNumberToObject(json, "shutdown", (double)s->shutdown_ms / 1000);
	cJSON_AddNumberToObject(json, "execs", (double)s->execs);
	return print_json(json, ret);
}

static int print_capabilities(struct mount *m, struct text *ret)
{
	cJSON *json = cJSON_CreateObject();
	cJSON *keys;

	cJSON_AddStringToObject(json, "target", m->backend->target);
	keys = cJSON_AddObjectToObject(json, "spec");
	for (unsigned key = SPEC_KEY_CMD; key <= SPEC_KEY_RETAIN; key <<= 1)
		cJSON_AddBoolToObject(keys, spec_key_name(key), (m->backend->keys & key) != 0);
	if (m->backend->caveat)
		cJSON_AddStringToObject(json, "caveat", m->backend->caveat);
	return print_json(json, ret);
}

static int print_readme(struct mount *m, struct text *ret)
{
	return text_printf(
		ret,
		"Each directory here is an exec: one command on the target %s.\n"
		"\n"
		"    mkdir job                             make one\n"
		"    echo 'ls -l /tmp' > job/spec          run a shell command, or\n"
		"    echo '{\"cmd\":[\"ls\",\"-l\"]}' > job/spec   an argument list\n"
		"    cat job/stdout                        its output, as it comes\n"
		"    cat job/exit                          its result, when it has ended\n"
		"    rmdir job                             kill it and everything it started\n"
		"\n"
		"    spec    write: starts the command; read: the spec without its secrets\n"
		"    stdin   write: its input; > ends it at close, >> does not\n"
		"    stdout  read: a stream that can be read again from its first byte\n"
		"    stderr  likewise\n"
		"    exit    0 to 255, signal NAME, killed, timeout, lost REASON, failed REASON\n"
		"    status  JSON, never blocks; \"error\" is a sentence for you\n"
		"    ctl     signal NAME, kill, eof\n"
		"    owner   hold it open: the exec is removed when the last holder lets go\n"
		"\n"
		"man spawnfs has the rest.\n",
		m->backend->target);
}

static const struct info {
	const char *name;
	int (*print)(struct mount *m, struct text *ret);
} files[] = {
	{"version", print_version},
	{"config", print_config},
	{"capabilities", print_capabilities},
	{"README", print_readme},
};

const unsigned info_count = ARRAY_LEN(files);

const char *info_name(unsigned i)
{
	return files[i].name;
}

uint64_t info_size(struct mount *m, unsigned i)
{
	AUTO_TEXT struct text t = {0};

	return files[i].print(m, &t) < 0 ? 0 : t.len;
}

static void info_read(fuse_req_t req, struct handle *h, size_t size, off_t off, bool nonblock)
{
	/* Its size is told before: who wants the end of it begins there. */
	if (off == 0 || !h->was_read) {
		h->was_read = true;
		text_done(&h->text);
		if (files[h->info].print(h->mount, &h->text) < 0) {
			fuse_reply_err(req, ENOMEM);
			return;
		}
	}
	reply_text(req, &h->text, size, off);
}

const struct file_ops info_file = {
	.read = info_read,
};

/* Options as one table: it parses them and it prints the help. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spec.h"
#include "util.h"

enum option_kind {
	KIND_FLAG,
	KIND_SIZE,
	KIND_COUNT,
	KIND_SECONDS,
	KIND_OCTAL,
	KIND_PATH,
	KIND_LEVEL
};

#define SETTING(member) offsetof(struct options, settings.member)

static const struct option_desc {
	const char *name;
	enum option_kind kind;
	size_t offset;
	uint64_t min;
	uint64_t max; /* 0: as much as fits */
	const char *help;
} table[] = {
	{"allow_other", KIND_FLAG, offsetof(struct options, allow_other), 0, 0,
	 "let other users in, as far as umask allows"},
	{"umask", KIND_OCTAL, SETTING(umask), 0, 0, "take these bits from all modes (077)"},
	{"retain", KIND_SIZE, SETTING(retain), RETAIN_BYTES_MIN, RETAIN_BYTES_MAX,
	 "output kept for late readers, each stream (64M)"},
	{"spool", KIND_PATH, SETTING(spool_dir), 0, 0,
	 "directory for output that does not fit in memory ($TMPDIR, /var/tmp)"},
	{"spool_memory", KIND_SIZE, SETTING(spool_memory), SPOOL_MEMORY_MIN, RETAIN_BYTES_MAX,
	 "part of retain that is kept in memory (1M)"},
	{"spec_bytes", KIND_SIZE, SETTING(spec_bytes), 1, TEXT_BYTES_MAX, "largest spec (2M)"},
	{"stdin_queue", KIND_SIZE, SETTING(stdin_queue), 1, TEXT_BYTES_MAX,
	 "input queued before the start (1M)"},
	{"drain_quiet", KIND_SECONDS, SETTING(drain_quiet_ms), 0, 0,
	 "after the end, wait until output is quiet this long (0.5)"},
	{"drain_limit", KIND_SECONDS, SETTING(drain_limit_ms), 0, 0,
	 "and not longer than this in all (2)"},
	{"kill_give_up", KIND_SECONDS, SETTING(kill_give_up_ms), 1, 0,
	 "stop retrying a kill that fails after this long (600)"},
	{"shutdown", KIND_SECONDS, SETTING(shutdown_ms), 0, 0,
	 "at the end wait this long for commands to be gone (5)"},
	{"execs", KIND_COUNT, SETTING(execs), 1, EXECS_MAX, "most execs at a time (100000)"},
	{"log_level", KIND_LEVEL, offsetof(struct options, log_level), 0, 0,
	 "error, warning, info or debug (warning)"},
};

/* What mount(8) and fstab add for any file system, and what has no meaning here. */
static const char *const ignored[] = {
	"defaults",   "rw",	  "dev",	"nodev",       "suid",	   "nosuid",  "exec",
	"noexec",     "auto",	  "noauto",	"user",	       "users",	   "nouser",  "_netdev",
	"nofail",     "async",	  "sync",	"dirsync",     "atime",	   "noatime", "diratime",
	"nodiratime", "relatime", "norelatime", "strictatime", "lazytime",
};

static bool is_ignored(const char *key)
{
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		if (strcmp(ignored[i], key) == 0)
			return true;
	return strncmp(key, "x-", 2) == 0 || strncmp(key, "comment", 7) == 0;
}

static int parse_seconds(const char *value, uint64_t *ret_ms)
{
	char *end;
	double seconds = strtod(value, &end);

	if (end == value || *end || !(seconds >= 0) || seconds > 1e9)
		return -EINVAL;
	*ret_ms = (uint64_t)llround(seconds * 1000);
	return 0;
}

static int parse_octal(const char *value, mode_t *ret)
{
	char *end;
	unsigned long mode = strtoul(value, &end, 8);

	if (end == value || *end || mode > 0777)
		return -EINVAL;
	*ret = (mode_t)mode;
	return 0;
}

static int parse_number(const struct option_desc *d, const char *value, void *field)
{
	uint64_t n;
	int err = d->kind == KIND_SECONDS ? parse_seconds(value, &n) : size_parse(value, &n);

	if (err < 0 || n < d->min || (d->max && n > d->max))
		return -EINVAL;
	*(uint64_t *)field = n;
	return 0;
}

static int parse_value(const struct option_desc *d, const char *value, void *field)
{
	int level;

	switch (d->kind) {
	case KIND_FLAG:
		*(bool *)field = true;
		return value ? -EINVAL : 0;
	case KIND_SIZE:
	case KIND_COUNT:
	case KIND_SECONDS:
		return value ? parse_number(d, value, field) : -EINVAL;
	case KIND_OCTAL:
		return value ? parse_octal(value, field) : -EINVAL;
	case KIND_PATH:
		*(const char **)field = value;
		return value && *value ? 0 : -EINVAL;
	case KIND_LEVEL:
		level = value ? log_level_parse(value) : -EINVAL;
		if (level < 0)
			return level;
		*(enum log_level *)field = (enum log_level)level;
		return 0;
	}
	return -EINVAL;
}

static int add_backend_option(struct options *o, const char *key, const char *value)
{
	struct backend_option *grown =
		reallocarray(o->backend_options, o->backend_option_count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	o->backend_options = grown;
	grown[o->backend_option_count++] = (struct backend_option){.key = key, .value = value};
	return 0;
}

static int fail_value(const struct option_desc *d, const char *value, struct text *why)
{
	static const char *const expected[] = {
		[KIND_FLAG] = "no value",
		[KIND_SIZE] = "bytes, as in 65536, 64K or 2G",
		[KIND_COUNT] = "a number",
		[KIND_SECONDS] = "seconds up to 1e9, as in 2 or 0.5",
		[KIND_OCTAL] = "octal digits, 0 to 777",
		[KIND_PATH] = "a path",
		[KIND_LEVEL] = "error, warning, info or debug",
	};
	AUTO_TEXT struct text range = {0};

	if (d->kind == KIND_SECONDS && d->min)
		text_printf(&range, ", at least %.3f", (double)d->min / 1000);
	else if (d->min)
		text_printf(&range, ", at least %llu", (unsigned long long)d->min);
	if (d->max)
		text_printf(&range, ", at most %llu", (unsigned long long)d->max);
	return text_fail(why, -EINVAL, "option %s: expected %s%s, not \"%s\"", d->name,
			 expected[d->kind], text_str(&range), value ? value : "");
}

/* Takes one KEY or KEY=VALUE, which it cuts in two. */
static int take_option(struct options *o, char *word, struct text *why)
{
	char *value = strchr(word, '=');

	if (value)
		*value++ = '\0';
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		const struct option_desc *d = &table[i];

		if (strcmp(d->name, word) != 0)
			continue;
		if (parse_value(d, value, (char *)o + d->offset) < 0)
			return fail_value(d, value, why);
		return 0;
	}
	if (!*word || is_ignored(word))
		return 0;
	return add_backend_option(o, word, value);
}

/* Splits at commas; a backslash keeps the next character, as mount(8) does. */
static int take_list(struct options *o, char *list, struct text *why)
{
	while (list) {
		char *word = list;
		char *to = list;
		int err;

		while (*list && *list != ',') {
			if (*list == '\\' && list[1])
				list++;
			*to++ = *list++;
		}
		list = *list ? list + 1 : NULL;
		*to = '\0';
		err = take_option(o, word, why);
		if (err < 0)
			return err;
	}
	return 0;
}

static void set_defaults(struct options *o)
{
	const char *tmp = getenv("TMPDIR");

	*o = (struct options){
		.log_level = LOG_LEVEL_WARNING,
		.settings =
			{
				.spec_bytes = SPEC_BYTES_DEFAULT,
				.retain = RETAIN_BYTES_DEFAULT,
				.spool_memory = SPOOL_MEMORY_DEFAULT,
				.spool_dir = tmp && *tmp ? tmp : "/var/tmp",
				.stdin_queue = STDIN_QUEUE_DEFAULT,
				.drain_quiet_ms = DRAIN_QUIET_MS_DEFAULT,
				.drain_limit_ms = DRAIN_LIMIT_MS_DEFAULT,
				.kill_give_up_ms = KILL_GIVE_UP_MS_DEFAULT,
				.shutdown_ms = SHUTDOWN_MS_DEFAULT,
				.execs = EXECS_DEFAULT,
				.umask = 077,
				.spin_ns = SPIN_NS_DEFAULT,
			},
	};
}

/* Two positional arguments, no more. */
static int take_positional(struct options *o, char **words, int count, struct text *why)
{
	if (o->command != COMMAND_MOUNT)
		return 0;
	if (count != 2)
		return text_fail(why, -EINVAL,
				 "expected a target and a mountpoint, got %d arguments: usage: "
				 "spawnfs [options] TARGET MOUNTPOINT",
				 count);
	o->target = words[0];
	o->mountpoint = words[1];
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret, struct text *why)
{
	static const struct option longs[] = {
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{"foreground", no_argument, NULL, 'f'},
		{0},
	};
	int err = 0;
	int c;

	set_defaults(ret);
	opterr = 0;
	while (!err && (c = getopt_long(argc, argv, ":fhVo:F:p:", longs, NULL)) != -1) {
		if (c == 'f')
			ret->foreground = true;
		else if (c == 'h')
			ret->command = COMMAND_HELP;
		else if (c == 'V')
			ret->command = COMMAND_VERSION;
		else if (c == 'o')
			err = take_list(ret, optarg, why);
		else if (c == 'F')
			err = add_backend_option(ret, "ssh_config", optarg);
		else if (c == 'p')
			err = add_backend_option(ret, "port", optarg);
		else
			err = text_fail(why, -EINVAL,
					"unknown or incomplete option %s: see spawnfs --help",
					argv[optind - 1]);
	}
	if (err == -ENOMEM)
		return text_fail(why, err, "no memory for the options");
	return err ? err : take_positional(ret, argv + optind, argc - optind, why);
}

void options_done(struct options *o)
{
	free(o->backend_options);
}

static void print_backend_options(const struct backend_ops *ops)
{
	const char *line = ops->options;

	printf("  -o for %s:\n", ops->scheme);
	while (*line) {
		int len = (int)strcspn(line, "\n");

		printf("      %.*s\n", len, line);
		line += len + (line[len] == '\n');
	}
}

void options_print_help(void)
{
	printf("usage: spawnfs [options] TARGET MOUNTPOINT\n"
	       "\n"
	       "Makes the processes of a sandbox into files: a directory under MOUNTPOINT for "
	       "each\n"
	       "command. fusermount3 -u MOUNTPOINT ends it and kills every command.\n"
	       "\n"
	       "targets:\n");
	for (size_t i = 0; backends[i]; i++)
		printf("  %-7s %s\n", backends[i]->scheme, backends[i]->summary);
	printf("\noptions:\n"
	       "  -f, --foreground   stay in the foreground and log to stderr\n"
	       "  -h, --help         this text\n"
	       "  -V, --version      the version\n"
	       "  -o OPT[=VALUE],... mount options:\n");
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		printf("      %-13s %s\n", table[i].name, table[i].help);
	for (size_t i = 0; backends[i]; i++)
		if (backends[i]->options)
			print_backend_options(backends[i]);
}

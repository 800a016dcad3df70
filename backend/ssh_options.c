#include "ssh_options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "bounds.h"

#define SSH_QUICK_CIPHER "aes128-gcm@openssh.com"

/* ---- Words ---- */

void ssh_argv_done(struct ssh_argv *argv)
{
	for (size_t i = 0; i < argv->count; i++)
		free(argv->words[i]);
	free(argv->words);
	*argv = (struct ssh_argv){0};
}

static int add_len(struct ssh_argv *argv, const char *word, size_t len)
{
	char **words = realloc(argv->words, (argv->count + 2) * sizeof(*words));

	if (!words)
		return -ENOMEM;
	argv->words = words;
	words[argv->count] = strndup(word, len);
	if (!words[argv->count])
		return -ENOMEM;
	words[++argv->count] = NULL;
	return 0;
}

static int add(struct ssh_argv *argv, const char *word)
{
	return add_len(argv, word, strlen(word));
}

static int add_all(struct ssh_argv *argv, const char *const *words)
{
	int err = 0;

	for (; !err && *words; words++)
		err = add(argv, *words);
	return err;
}

/* "-o", "KEY=VALUE" */
static int add_option(struct ssh_argv *argv, const char *key, const char *value)
{
	AUTO_TEXT struct text word = {0};
	int err = text_printf(&word, "%s=%s", key, value);

	if (!err)
		err = add(argv, "-o");
	return err ? err : add(argv, text_str(&word));
}

/* ---- The user's options ---- */

static const char *find_option(const struct backend_args *args, const char *key)
{
	for (size_t i = 0; i < args->option_count; i++)
		if (strcmp(args->options[i].key, key) == 0)
			return args->options[i].value;
	return NULL;
}

/* The program, and arguments of it: words with spaces between, as sshfs takes them. */
static int add_program(struct ssh_argv *argv, const char *command)
{
	int err = 0;

	for (command += strspn(command, " "); !err && *command; command += strspn(command, " ")) {
		size_t len = strcspn(command, " ");

		err = add_len(argv, command, len);
		command += len;
	}
	return err;
}

static int check_option(const struct backend_option *o, struct text *why)
{
	static const char *const own[] = {"ssh_config", "port", "ssh_command"};
	bool known = isupper((unsigned char)o->key[0]);

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		known |= strcmp(o->key, own[i]) == 0;
	if (!known)
		return text_fail(why, -EINVAL,
				 "\"%s\" is not an option of ssh: targets; those of ssh_config(5) "
				 "are written as there, with a capital: -o IdentityFile=...",
				 o->key);
	if (!o->value || !*o->value)
		return text_fail(why, -EINVAL, "the option %s needs a value: -o %s=...", o->key,
				 o->key);
	return 0;
}

/*
 * The first -o of a name counts: what a mount cannot do without stands before what the user
 * wishes.
 */
static const char *const always[] = {
	"-M",
	"-N",
	"-T",
	"-n",
	"-x",
	"-o",
	"ControlMaster=yes",
	"-o",
	"ControlPersist=no",
	"-o",
	"ForkAfterAuthentication=no",
	"-o",
	"ClearAllForwardings=yes",
	"-o",
	"ExitOnForwardFailure=no",
	"-o",
	"PermitLocalCommand=no",
	"-o",
	"RemoteCommand=none",
	NULL,
};

static int build_base(const struct backend_args *args, const char *port,
		      struct ssh_options *options)
{
	struct ssh_argv *ret = &options->base;
	const char *program = find_option(args, "ssh_command");
	const char *config = find_option(args, "ssh_config");
	int err = add_program(ret, program ? program : "ssh");

	options->program_words = ret->count;
	if (!err && config) {
		err = add(ret, "-F");
		err = err ? err : add(ret, config);
	}
	if (!err && port) {
		err = add(ret, "-p");
		err = err ? err : add(ret, port);
	}
	err = err ? err : add_all(ret, always);
	for (size_t i = 0; !err && i < args->option_count; i++)
		if (isupper((unsigned char)args->options[i].key[0]))
			err = add_option(ret, args->options[i].key, args->options[i].value);
	return err;
}

/* ---- The address ---- */

static bool valid_port(const char *port)
{
	size_t digits = strspn(port, "0123456789");

	return digits && digits <= 5 && !port[digits] && atoi(port) >= 1 && atoi(port) <= 65535;
}

/*
 * Splits "[user@]host[:port]" in place: *host is "user@host" without the brackets of an IPv6
 * address, *port is NULL without one. A second colon outside of brackets: all of
 * it is an address.
 */
static void split_address(char *address, char **host, char **port)
{
	char *at = strrchr(address, '@');
	char *name = at ? at + 1 : address;
	char *colon = strchr(name, ':');

	*host = address;
	*port = NULL;
	if (*name == '[' && strchr(name, ']')) {
		char *end = strchr(name, ']');

		colon = end[1] == ':' ? end + 1 : NULL;
		*end = '\0';
		memmove(name, name + 1, strlen(name));
	} else if (colon && strchr(colon + 1, ':')) {
		colon = NULL;
	}
	if (colon) {
		*colon = '\0';
		*port = colon + 1;
	}
}

static int bad_address(const struct backend_args *args, struct text *why)
{
	return text_fail(why, -EINVAL, "%s: not an address: ssh:[user@]host[:port] is expected",
			 args->target);
}

int ssh_options_parse(const struct backend_args *args, struct ssh_options *ret, struct text *why)
{
	AUTO_FREE char *address = strdup(args->address);
	char *host;
	char *port;
	int err = 0;

	*ret = (struct ssh_options){0};
	for (size_t i = 0; !err && i < args->option_count; i++)
		err = check_option(&args->options[i], why);
	if (err)
		return err;
	if (!address)
		return text_fail(why, -ENOMEM, "no memory");
	split_address(address, &host, &port);
	/* ssh would take it for an option. */
	if (!*host || *host == '-' || host[strlen(host) - 1] == '@' || (port && !valid_port(port)))
		return bad_address(args, why);
	if (!port && find_option(args, "port")) {
		port = (char *)find_option(args, "port");
		if (!valid_port(port))
			return text_fail(why, -EINVAL, "port=%s: not a port", port);
	}
	ret->host = strdup(host);
	if (!ret->host || build_base(args, port, ret) < 0)
		return text_fail(why, -ENOMEM, "no memory");
	return 0;
}

void ssh_options_done(struct ssh_options *options)
{
	ssh_argv_done(&options->base);
	free(options->host);
	*options = (struct ssh_options){0};
}

static bool processor_has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("aes");
#elif defined(__aarch64__)
	return getauxval(AT_HWCAP) & HWCAP_AES;
#else
	return false;
#endif
}

/* The value that `ssh -G` prints for a key, "" for none; its lines are "key value". */
static void resolved_value(const char *resolved, const char *key, char *ret, size_t size)
{
	size_t len = strlen(key);
	const char *line = resolved;

	*ret = '\0';
	for (; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, len) == 0 && line[len] == ' ')
			snprintf(ret, size, "%.*s", (int)strcspn(line + len + 1, "\n"),
				 line + len + 1);
	}
}

/*
 * ssh's first choice is a cipher that is made for processors without instructions for AES. Where
 * there are, another of its own choices takes half of the time, and that is most of what bulk
 * output costs (docs/ssh.md). "^" puts it in front (ssh_config(5)): a server may still prefer
 * others.
 */
static int prefer_quick_cipher(struct ssh_options *options, const char *resolved, const char *plain)
{
	char chosen[512];
	char built_in[512];

	resolved_value(resolved, "ciphers", chosen, sizeof(chosen));
	resolved_value(plain, "ciphers", built_in, sizeof(built_in));
	if (!processor_has_aes() || strcmp(chosen, built_in) != 0 ||
	    !strstr(built_in, SSH_QUICK_CIPHER))
		return 0;
	return add_option(&options->base, "Ciphers", "^" SSH_QUICK_CIPHER);
}

int ssh_options_defaults(struct ssh_options *options, const char *resolved, const char *plain)
{
	/* What ssh says when nobody has set it, and what we would rather have. */
	static const struct {
		const char *key, *unset, *value;
	} defaults[] = {
		{"ServerAliveInterval", "0", SSH_ALIVE_SECONDS},
		{"ServerAliveCountMax", "3", SSH_ALIVE_COUNT},
		{"ConnectTimeout", "none", SSH_CONNECT_SECONDS},
	};
	int err = prefer_quick_cipher(options, resolved, plain);

	for (size_t i = 0; !err && i < ARRAY_LEN(defaults); i++) {
		char value[64];
		char key[64];

		snprintf(key, sizeof(key), "%s", defaults[i].key);
		for (char *p = key; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		resolved_value(resolved, key, value, sizeof(value));
		if (strcmp(value, defaults[i].unset) == 0)
			err = add_option(&options->base, defaults[i].key, defaults[i].value);
	}
	return err;
}

int ssh_options_argv(const struct ssh_options *options, enum ssh_what what,
		     const char *control_path, struct ssh_argv *ret)
{
	const struct ssh_argv *base = &options->base;
	struct ssh_argv argv = {0};
	size_t words = what == SSH_RESOLVE_PLAIN ? options->program_words : base->count;
	bool resolve = what == SSH_RESOLVE || what == SSH_RESOLVE_PLAIN;
	int err = 0;

	for (size_t i = 0; !err && i < words; i++) {
		/* Before the options of the user. */
		if (i == options->program_words && what == SSH_MASTER_SILENT)
			err = add_option(&argv, "BatchMode", "yes");
		err = err ? err : add(&argv, base->words[i]);
	}
	if (what == SSH_RESOLVE_PLAIN) {
		err = err ? err : add(&argv, "-F");
		err = err ? err : add(&argv, "none");
	}
	if (!err && resolve)
		err = add(&argv, "-G");
	if (!err && !resolve) {
		err = add(&argv, "-S");
		err = err ? err : add(&argv, control_path);
	}
	err = err ? err : add(&argv, "--");
	err = err ? err : add(&argv, options->host);
	if (err) {
		ssh_argv_done(&argv);
		return err;
	}
	*ret = argv;
	return 0;
}

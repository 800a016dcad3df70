#include "e2b_config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "e2b_private.h"

#define DEFAULT_DOMAIN "e2b.app"

static void wipe(char **s)
{
	if (*s)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

/* The setting of that name in the configuration, or NULL. */
static char **setting(struct e2b_config *c, const char *name, size_t len)
{
	const struct {
		const char *name;
		char **value;
	} all[] = {
		{"E2B_API_KEY", &c->api_key}, {"E2B_ACCESS_TOKEN", &c->access_token},
		{"E2B_DOMAIN", &c->domain},   {"E2B_ENVD_ACCESS_TOKEN", &c->envd_token},
		{"E2B_API_URL", &c->api_url}, {"E2B_SANDBOX_URL", &c->sandbox_url},
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (strlen(all[i].name) == len && memcmp(all[i].name, name, len) == 0)
			return all[i].value;
	return NULL;
}

static int set(char **value, const char *text, size_t len)
{
	char *copy = strndup(text, len);

	if (!copy)
		return -ENOMEM;
	wipe(value);
	*value = copy;
	return 0;
}

static int load_environment(struct e2b_config *c)
{
	static const char *const names[] = {"E2B_API_KEY", "E2B_ACCESS_TOKEN",
					    "E2B_DOMAIN",  "E2B_ENVD_ACCESS_TOKEN",
					    "E2B_API_URL", "E2B_SANDBOX_URL"};
	const char *debug = getenv("E2B_DEBUG");

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);

		if (value && *value &&
		    set(setting(c, names[i], strlen(names[i])), value, strlen(value)) < 0)
			return -ENOMEM;
	}
	c->debug = debug && strcasecmp(debug, "true") == 0;
	return 0;
}

/* NAME=VALUE, perhaps with "export " before it and quotes around the value; # begins a comment. */
static int load_line(struct e2b_config *c, char *line)
{
	char *equals;
	char *value;
	size_t len;
	char **target;

	line += strspn(line, " \t");
	if (strncmp(line, "export ", 7) == 0)
		line += 7 + strspn(line + 7, " \t");
	line[strcspn(line, "\r\n")] = '\0';
	if (!*line || *line == '#')
		return 0;
	equals = strchr(line, '=');
	if (!equals)
		return -EINVAL;
	value = equals + 1;
	len = strlen(value);
	if (len >= 2 && (*value == '"' || *value == '\'') && value[len - 1] == *value) {
		value++;
		len -= 2;
	}
	target = setting(c, line, (size_t)(equals - line));
	return target ? set(target, value, len) : -EINVAL;
}

static int load_lines(struct e2b_config *c, FILE *file, const char *path, struct text *why)
{
	char line[4096];
	int err = 0;

	for (unsigned number = 1; err == 0 && fgets(line, sizeof(line), file); number++) {
		err = load_line(c, line);
		if (err == -EINVAL)
			text_fail(
				why, err,
				"e2b: %s, line %u: expected E2B_API_KEY=..., E2B_ACCESS_TOKEN=..., "
				"E2B_DOMAIN=... or another of the names in docs/e2b.md",
				path, number);
	}
	explicit_bzero(line, sizeof(line));
	return err;
}

/* A file with a secret in it is for its owner alone, who must be who mounts, or root. */
static int check_owner(int fd, const char *path, struct text *why)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return text_fail(why, -errno, "e2b: cannot read credentials %s: %m", path);
	if (!S_ISREG(st.st_mode))
		return text_fail(why, -EINVAL, "e2b: credentials %s is not a regular file", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return text_fail(why, -EPERM,
				 "e2b: credentials %s belongs to user %u: it must be yours", path,
				 st.st_uid);
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return text_fail(
			why, -EPERM,
			"e2b: credentials %s can be used by others (mode %04o): chmod 600 it", path,
			st.st_mode & 07777);
	return 0;
}

static int load_file(struct e2b_config *c, const char *path, struct text *why)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *file;
	int err;

	if (fd < 0)
		return text_fail(why, -errno, "e2b: cannot read credentials %s: %m", path);
	err = check_owner(fd, path, why);
	if (err < 0)
		return err;
	file = fdopen(fd, "r");
	if (!file)
		return -ENOMEM;
	take_fd(&fd);
	err = load_lines(c, file, path, why);
	fclose(file);
	return err;
}

static int load_ttl(struct e2b_config *c, const char *value, struct text *why)
{
	char *end;
	unsigned long seconds = strtoul(value, &end, 10);

	if (!isdigit((unsigned char)*value) || *end || seconds < 1 || seconds > E2B_TTL_MAX_S)
		return text_fail(why, -EINVAL, "e2b: option ttl=%s: expected seconds, 1 to %d",
				 value, E2B_TTL_MAX_S);
	c->ttl_s = (unsigned)seconds;
	return 0;
}

static int load_option(struct e2b_config *c, const struct backend_option *o, struct text *why)
{
	if (o->value && strcmp(o->key, "credentials") == 0)
		return load_file(c, o->value, why);
	if (o->value && strcmp(o->key, "ca") == 0)
		return set(&c->ca_file, o->value, strlen(o->value));
	if (o->value && strcmp(o->key, "ttl") == 0)
		return load_ttl(c, o->value, why);
	return text_fail(why, -EINVAL,
			 "e2b: unknown option \"%s\": there are credentials=FILE, ca=FILE and "
			 "ttl=SECONDS",
			 o->key);
}

static void strip_slash(char *url)
{
	size_t len = url ? strlen(url) : 0;

	if (len && url[len - 1] == '/')
		url[len - 1] = '\0';
}

/* What was not given follows from the domain. */
static int complete(struct e2b_config *c)
{
	if (!c->domain && set(&c->domain, DEFAULT_DOMAIN, strlen(DEFAULT_DOMAIN)) < 0)
		return -ENOMEM;
	if (!c->api_url && c->debug)
		c->api_url = strdup("http://localhost:3000");
	if (!c->api_url && asprintf(&c->api_url, "https://api.%s", c->domain) < 0)
		c->api_url = NULL;
	strip_slash(c->api_url);
	strip_slash(c->sandbox_url);
	return c->api_url ? 0 : -ENOMEM;
}

int e2b_config_load(struct e2b_config *config, const struct backend_args *args, struct text *why)
{
	struct e2b_config c = {0};
	int err = load_environment(&c);

	for (size_t i = 0; err == 0 && i < args->option_count; i++)
		err = load_option(&c, &args->options[i], why);
	if (err == 0)
		err = complete(&c);
	if (err < 0) {
		e2b_config_done(&c);
		return err;
	}
	*config = c;
	return 0;
}

void e2b_config_done(struct e2b_config *config)
{
	wipe(&config->api_key);
	wipe(&config->access_token);
	wipe(&config->envd_token);
	wipe(&config->domain);
	wipe(&config->api_url);
	wipe(&config->sandbox_url);
	wipe(&config->ca_file);
}

bool e2b_config_has_control(const struct e2b_config *config)
{
	return !config->debug && (config->api_key || config->access_token);
}

/* The domains whose sandboxes are reached through one host, told apart by headers. */
static bool has_shared_host(const char *domain)
{
	static const char *const shared[] = {"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"};

	for (size_t i = 0; i < ARRAY_LEN(shared); i++)
		if (strcmp(domain, shared[i]) == 0)
			return true;
	return false;
}

char *e2b_sandbox_url(const struct e2b_config *config, const char *id, const char *domain)
{
	char *url = NULL;
	int n;

	if (config->sandbox_url)
		return strdup(config->sandbox_url);
	if (!domain || !*domain)
		domain = config->domain;
	if (config->debug)
		n = asprintf(&url, "http://localhost:%d", E2B_ENVD_PORT);
	else if (has_shared_host(domain))
		n = asprintf(&url, "https://sandbox.%s", domain);
	else
		n = asprintf(&url, "https://%d-%s.%s", E2B_ENVD_PORT, id, domain);
	return n < 0 ? NULL : url;
}

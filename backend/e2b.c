/*
 * Commands in E2B sandboxes, over envd's process service. The parts:
 *   http, connect_envelope     transport
 *   e2b_codec*, base64         messages to bytes and back
 *   e2b_rpc, e2b_stream        calls to envd; e2b_fault: what a bad answer means
 *   e2b_script                 a shell script in the sandbox; e2b_sweep: the one that looks
 *                              after processes
 *   e2b_config, e2b_control,   who we are, the sandboxes of the account, their time to live
 *   e2b_renewal, e2b_fate
 *   e2b_sandbox                what is known of one
 *   e2b_command, e2b_output,   one command
 *   e2b_input, e2b_end,
 *   e2b_signal
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "e2b_command.h"
#include "e2b_control.h"
#include "e2b_interrupt.h"
#include "e2b_private.h"
#include "e2b_sandbox.h"
#include "log.h"

/* "e2b:new?template=T&timeout=S&keep=1" and the two other forms of a target. */
struct address {
	char *id;	     /* e2b:ID */
	char *template_name; /* e2b:new */
	unsigned ttl_s;
	bool is_new;
	bool keep;
};

/* ---- The target ---- */

/* Letters, digits and "-": it becomes part of URLs and headers. */
static bool is_id(const char *s)
{
	size_t len = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

	return len && len <= NAME_BYTES_MAX && !s[len];
}

static int parse_parameter(struct address *a, char *name, struct text *why)
{
	char *value = strchr(name, '=');
	char *end;
	unsigned long seconds;

	if (value)
		*value++ = '\0';
	if (value && *value && strcmp(name, "template") == 0) {
		free(a->template_name);
		a->template_name = strdup(value);
		return a->template_name ? 0 : -ENOMEM;
	}
	if (value && strcmp(name, "keep") == 0 &&
	    (strcmp(value, "0") == 0 || strcmp(value, "1") == 0)) {
		a->keep = *value == '1';
		return 0;
	}
	if (value && isdigit((unsigned char)*value) && strcmp(name, "timeout") == 0) {
		seconds = strtoul(value, &end, 10);
		if (!*end && seconds >= 15 && seconds <= E2B_TTL_MAX_S) {
			a->ttl_s = (unsigned)seconds;
			return 0;
		}
	}
	return text_fail(why, -EINVAL,
			 "e2b: target: \"%s\" is none of template=NAME, timeout=SECONDS (15 to %d) "
			 "and keep=0|1",
			 name, E2B_TTL_MAX_S);
}

static int parse_new(struct address *a, const char *query, struct text *why)
{
	AUTO_FREE char *copy = strdup(query);
	char *save = NULL;
	int err = copy ? 0 : -ENOMEM;

	a->is_new = true;
	a->ttl_s = E2B_CREATE_TTL_S;
	for (char *part = copy ? strtok_r(copy, "&", &save) : NULL; err == 0 && part;
	     part = strtok_r(NULL, "&", &save))
		err = parse_parameter(a, part, why);
	if (err == 0 && !a->template_name)
		a->template_name = strdup("base");
	return err == 0 && !a->template_name ? -ENOMEM : err;
}

static int parse_address(struct address *a, const char *text, struct text *why)
{
	if (!*text)
		return 0;
	if (strcmp(text, "new") == 0 || strncmp(text, "new?", 4) == 0)
		return parse_new(a, text[3] ? text + 4 : "", why);
	if (!is_id(text))
		return text_fail(why, -EINVAL,
				 "e2b: target \"e2b:%s\": expected e2b:SANDBOX_ID, "
				 "e2b:new?template=NAME or e2b: alone",
				 text);
	a->id = strdup(text);
	return a->id ? 0 : -ENOMEM;
}

static void address_done(struct address *a)
{
	free(a->id);
	free(a->template_name);
}

/* ---- Opening ---- */

struct opening {
	struct e2b_waiter waiter;
	struct loop *loop;
	bool ended;
	struct e2b_fault fault;
};

static void opened(struct e2b_waiter *w, const struct e2b_user *user, const struct e2b_fault *fault)
{
	struct opening *o = container_of(w, struct opening, waiter);

	o->ended = true;
	if (fault)
		o->fault = *fault;
	loop_stop(o->loop);
}

/* Waits until the sandbox is known to answer: a mistake is seen at the mount, not by a command. */
static int attach(struct e2b *e2b, const struct e2b_interrupt *interrupt, struct text *why)
{
	struct opening o = {.loop = e2b->base.loop, .waiter.ready = opened};
	int err = 0;

	list_init(&o.waiter.link);
	e2b_sandbox_wait(e2b->sandbox, &o.waiter);
	while (err == 0 && !o.ended)
		err = interrupt->signals ? -EINTR : loop_run(o.loop);
	if (err < 0) {
		e2b_waiter_cancel(&o.waiter);
		return text_fail(why, err, "e2b: %s", strerror(-err));
	}
	return o.fault.err ? text_fail(why, o.fault.err, "%s", o.fault.text) : 0;
}

static int need_control(const struct e2b *e2b, struct text *why)
{
	if (e2b_config_has_control(&e2b->config))
		return 0;
	return text_fail(why, -EACCES,
			 "e2b: a new sandbox needs an API key: set E2B_API_KEY or the option "
			 "credentials=FILE");
}

static int make_sandbox(struct e2b *e2b, const struct address *a, struct text *why)
{
	int err = need_control(e2b, why);

	if (err == 0)
		err = e2b_control_create(e2b, a->template_name, a->ttl_s, &e2b->sandbox, why);
	if (err < 0)
		return err;
	e2b->created = !a->keep;
	log_info("e2b: made sandbox %s", e2b->sandbox->id);
	return 0;
}

static int reach_new(struct e2b *e2b, const struct address *a, struct text *why)
{
	struct e2b_interrupt interrupt;
	int err = e2b_interrupt_open(&interrupt, e2b->base.loop);

	if (err < 0)
		text_fail(why, err, "e2b: cannot watch for signals: %s", strerror(-err));
	else
		err = make_sandbox(e2b, a, why);
	if (err == 0)
		err = attach(e2b, &interrupt, why);
	e2b_interrupt_close(&interrupt);
	return err;
}

static int reach(struct e2b *e2b, const struct address *a, struct text *why)
{
	const struct e2b_interrupt none = {0};

	if (a->is_new)
		return reach_new(e2b, a, why);
	if (!a->id)
		return 0;
	e2b->sandbox = e2b_sandbox_get(e2b, a->id);
	if (!e2b->sandbox)
		return text_fail(why, -ENOMEM, "e2b: no memory");
	return attach(e2b, &none, why);
}

static void free_commands(struct task *task)
{
	e2b_commands_free(container_of(task, struct e2b, free_task));
}

static void e2b_close(struct backend *backend)
{
	struct e2b *e2b = e2b_of(backend);
	AUTO_TEXT struct text why = {0};

	if (e2b->created && e2b_control_delete(e2b, e2b->sandbox, &why) < 0)
		log_error("e2b: sandbox %s was not deleted, it ends within %llu s: %s",
			  e2b->sandbox->id, (unsigned long long)e2b->sandbox->ttl_s,
			  text_str(&why));
	task_cancel(&e2b->free_task);
	e2b_commands_free(e2b);
	list_for_each_safe (s, &e2b->sandboxes, struct e2b_sandbox, link)
		e2b_sandbox_free(s);
	http_free(e2b->http);
	e2b_config_done(&e2b->config);
	free(e2b->base.target);
	free(e2b);
}

static int make(const struct backend_args *args, struct e2b **ret, struct text *why)
{
	struct e2b *e2b = calloc(1, sizeof(*e2b));
	int err;

	if (!e2b)
		return -ENOMEM;
	list_init(&e2b->sandboxes);
	list_init(&e2b->released);
	task_init(&e2b->free_task, free_commands);
	e2b->base.loop = args->loop;
	e2b->base.settings = args->settings;
	e2b->base.target = strdup(args->target);
	err = e2b->base.target ? e2b_config_load(&e2b->config, args, why) : -ENOMEM;
	if (err == 0)
		err = http_new(args->loop, &(struct http_options){.ca_file = e2b->config.ca_file},
			       &e2b->http);
	if (err < 0)
		e2b_close(&e2b->base);
	else
		*ret = e2b;
	return err;
}

static int e2b_open(const struct backend_args *args, struct backend **ret, struct text *why)
{
	struct address address = {0};
	struct e2b *e2b = NULL;
	int err = parse_address(&address, args->address, why);

	if (err == 0)
		err = make(args, &e2b, why);
	if (err == 0)
		err = reach(e2b, &address, why);
	address_done(&address);
	if (err < 0 || !e2b) {
		if (e2b)
			e2b_close(&e2b->base);
		return err == -ENOMEM ? text_fail(why, err, "e2b: no memory") : err;
	}
	e2b->base.ops = &e2b_backend;
	e2b->base.keys = SPEC_KEYS_BASIC | SPEC_KEY_USER | SPEC_KEY_TIMEOUT |
			 (e2b->sandbox ? 0u : SPEC_KEY_SANDBOX);
	*ret = &e2b->base;
	return 0;
}

/* ---- What it can do ---- */

/* protobuf's and JSON's strings are UTF-8 (RFC 3629); envd refuses others. */
static bool is_utf8(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	while (*p) {
		unsigned more = *p < 0x80		   ? 0
				: *p >= 0xc2 && *p <= 0xdf ? 1
				: (*p & 0xf0) == 0xe0	   ? 2
				: *p >= 0xf0 && *p <= 0xf4 ? 3
							   : 4;
		unsigned char low = *p == 0xe0 ? 0xa0 : *p == 0xf0 ? 0x90 : 0x80;
		unsigned char high = *p == 0xed ? 0x9f : *p == 0xf4 ? 0x8f : 0xbf;

		if (more > 3)
			return false;
		for (p++; more; more--, p++, low = 0x80, high = 0xbf)
			if (*p < low || *p > high)
				return false;
	}
	return true;
}

/* dash, which is /bin/sh in most sandboxes, drops variables of any other name. */
static bool is_identifier(const char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '_')
		return false;
	while (isalnum((unsigned char)*s) || *s == '_')
		s++;
	return !*s;
}

static int check_env(const struct spec *spec, struct text *why)
{
	for (size_t i = 0; i < spec->env_count; i++) {
		const char *name = spec->env[i].name;

		if (!is_identifier(name))
			return text_fail(why, -EOPNOTSUPP,
					 "spec: key \"env\": the shell of a sandbox passes on only "
					 "variables named with letters, digits and _");
		if (strcmp(name, E2B_MARK_NAME) == 0)
			return text_fail(why, -EINVAL, "spec: key \"env\": %s is spawnfs's own",
					 E2B_MARK_NAME);
		if (spec->env[i].value && !is_utf8(spec->env[i].value))
			return text_fail(
				why, -EOPNOTSUPP,
				"spec: key \"env\": the value of %s is not UTF-8, which is "
				"all that envd can pass on",
				name);
	}
	return 0;
}

static int e2b_check(struct backend *backend, const struct spec *spec, struct text *why)
{
	const char *strings[] = {spec->cwd, spec->user};

	if (!e2b_of(backend)->sandbox && !spec->sandbox)
		return text_fail(
			why, -EINVAL,
			"spec: key \"sandbox\" is missing: the mount has no sandbox of its own");
	if (spec->sandbox && !is_id(spec->sandbox))
		return text_fail(why, -EINVAL, "spec: key \"sandbox\" is not the id of a sandbox");
	for (size_t i = 0; i < spec->argc; i++)
		if (!is_utf8(spec->argv[i]))
			return text_fail(
				why, -EOPNOTSUPP,
				"spec: key \"cmd\": argument %zu is not UTF-8, which is all "
				"that envd can pass on",
				i);
	for (size_t i = 0; i < ARRAY_LEN(strings); i++)
		if (strings[i] && !is_utf8(strings[i]))
			return text_fail(why, -EOPNOTSUPP,
					 "spec: keys \"cwd\" and \"user\" must be UTF-8 for envd");
	if (spec->user && (!*spec->user || strpbrk(spec->user, ":\r\n")))
		return text_fail(why, -EINVAL, "spec: key \"user\" is not the name of a user");
	return check_env(spec, why);
}

const struct backend_ops e2b_backend = {
	.scheme = "e2b",
	.summary = "in an E2B sandbox: e2b:SANDBOX_ID, e2b:new?template=T&timeout=S, e2b:",
	.options = "credentials=FILE  E2B_API_KEY=... and other E2B_* lines; for the owner alone\n"
		   "ca=FILE           certificates to trust instead of the system's\n"
		   "ttl=SECONDS       set the time to live of an attached sandbox to this\n",
	.open = e2b_open,
	.close = e2b_close,
	.check = e2b_check,
	.start = e2b_command_start,
	.write = e2b_input_write,
	.can_write = e2b_input_can_write,
	.close_input = e2b_input_close,
	.resume = e2b_output_resume,
	.close_output = e2b_output_close,
	.signal = e2b_signal,
	.kill = e2b_kill,
	.release = e2b_command_release,
};

#include "e2b_sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "e2b_control.h"
#include "e2b_fate.h"
#include "e2b_script.h"
#include "log.h"

struct e2b_attach {
	struct e2b_control control;
	struct e2b_sandbox *sandbox;
};

/* The question for what a login shell of a user says; one at a time in a sandbox. */
struct e2b_probe {
	struct e2b_script script;
	struct e2b_user *user;
	uint64_t begun_ns;
};

static bool same(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static int replace(char **value, const char *text)
{
	char *copy = text && *text ? strdup(text) : NULL;

	if (text && *text && !copy)
		return -ENOMEM;
	if (*value)
		explicit_bzero(*value, strlen(*value));
	free(*value);
	*value = copy;
	return 0;
}

/* ---- Users ---- */

static struct e2b_user *get_user(struct e2b_sandbox *s, const char *name)
{
	struct e2b_user *user;

	list_for_each (known, &s->users, struct e2b_user, link) {
		if (same(known->name, name))
			return known;
	}
	user = calloc(1, sizeof(*user));
	if (!user || replace(&user->name, name) < 0) {
		free(user);
		return NULL;
	}
	list_append(&s->users, &user->link);
	return user;
}

static void free_user(struct e2b_user *user)
{
	list_remove(&user->link);
	free(user->name);
	free(user->path);
	free(user->setsid);
	free(user);
}

/* ---- Waiting ---- */

static void go_on(struct e2b_sandbox *s);

static void tell(struct e2b_waiter *w, const struct e2b_user *user, const struct e2b_fault *fault)
{
	list_remove(&w->link);
	w->ready(w, user, fault);
}

/* Those who wait may ask again from within, so only the present ones are told. */
static void tell_all(struct e2b_sandbox *s, const struct e2b_fault *fault)
{
	struct list now;

	list_init(&now);
	list_splice(&now, &s->waiters);
	while (!list_empty(&now))
		tell(list_first(&now, struct e2b_waiter, link), NULL, fault);
}

static void fail_all(struct e2b_sandbox *s, int err, const char *sentence)
{
	struct e2b_fault fault = {.err = err};

	snprintf(fault.text, sizeof(fault.text), "e2b: sandbox %s: %s", s->id, sentence);
	tell_all(s, &fault);
}

/* ---- The login shell ---- */

/*
 * $1 stands before, between and after what is asked for: a profile may print, too.
 * Answers PATH and where setsid is.
 */
static const char probe_text[] = "s=/bin/sh\n"
				 "[ -x /bin/bash ] && s=/bin/bash\n"
				 "exec $s -l -c 'printf \"%s%s%s%s%s\" \"$0\" \"$PATH\" \"$0\" "
				 "\"$(command -v setsid)\" \"$0\"' "
				 "\"$1\"\n";
#define PROBE_SEPARATOR "--spawnfs-4f1c2a--"

/* Cuts the text between the next two separators out of *at. NULL: it is not there. */
static char *next_part(char **at)
{
	char *begin = strstr(*at, PROBE_SEPARATOR);
	char *end;

	if (!begin)
		return NULL;
	begin += strlen(PROBE_SEPARATOR);
	end = strstr(begin, PROBE_SEPARATOR);
	if (!end)
		return NULL;
	*at = end;
	return strndup(begin, (size_t)(end - begin));
}

static void learn_user(struct e2b_sandbox *s, struct e2b_user *user, struct text *output,
		       const struct e2b_fault *fault)
{
	char *at = output->data ? output->data : (char[]){""};

	user->path = next_part(&at);
	user->setsid = next_part(&at);
	if (user->path && !*user->path) {
		free(user->path);
		user->path = NULL;
	}
	if (user->setsid && *user->setsid != '/') {
		free(user->setsid);
		user->setsid = NULL;
	}
	if (!user->path)
		log_warning(
			"e2b: sandbox %s: a login shell does not say its PATH, envd's is used: %s",
			s->id, fault ? fault->text : "its output is not as expected");
	if (!user->setsid)
		log_warning("e2b: sandbox %s has no setsid: signals reach a command's leader only",
			    s->id);
	user->known = true;
}

static bool took_too_long(const struct e2b_fault *fault)
{
	return fault->status == 200 &&
	       (fault->err == -ETIMEDOUT || strcmp(fault->error.code, "deadline_exceeded") == 0);
}

/* An answer that was lost on the way, soon, is asked for again: nothing is known by it. */
static bool is_lost(struct e2b_probe *probe, const struct e2b_fault *fault)
{
	uint64_t took_ms = (monotonic_ns() - probe->begun_ns) / 1000000;

	return fault->unsure && took_ms < (uint64_t)E2B_PROBE_LIMIT_S * 1000 &&
	       ++probe->user->tries < E2B_PROBE_TRIES;
}

static void probe_done(struct e2b_script *script, int exit_code, const struct e2b_fault *fault)
{
	struct e2b_probe *probe = container_of(script, struct e2b_probe, script);
	struct e2b_sandbox *s = script->sandbox;
	struct e2b_user *user = probe->user;

	/* A shell that fails or hangs in its profile must not keep commands from running. */
	if (!fault || took_too_long(fault))
		learn_user(s, user, &script->output, fault);
	s->probe = NULL;
	if (!user->known && !is_lost(probe, fault)) {
		struct list now;

		list_init(&now);
		list_for_each_safe (w, &s->waiters, struct e2b_waiter, link) {
			if (!same(w->user, user->name))
				continue;
			list_remove(&w->link);
			list_append(&now, &w->link);
		}
		free_user(user);
		while (!list_empty(&now))
			tell(list_first(&now, struct e2b_waiter, link), NULL, fault);
	}
	e2b_script_cancel(script);
	free(probe);
	go_on(s);
}

static int begin_probe(struct e2b_sandbox *s, struct e2b_user *user)
{
	struct e2b_probe *probe = calloc(1, sizeof(*probe));

	if (!probe)
		return -ENOMEM;
	probe->user = user;
	probe->begun_ns = monotonic_ns();
	probe->script.sandbox = s;
	probe->script.user = user->name;
	probe->script.text = probe_text;
	probe->script.args[0] = PROBE_SEPARATOR;
	probe->script.arg_count = 1;
	probe->script.limit_s = E2B_PROBE_LIMIT_S;
	probe->script.done = probe_done;
	if (e2b_script_run(&probe->script) < 0) {
		free(probe);
		return -ENOMEM;
	}
	s->probe = probe;
	return 0;
}

/* ---- The control plane ---- */

static void attach_done(struct e2b_control *c, const struct e2b_fault *fault)
{
	struct e2b_attach *a = container_of(c, struct e2b_attach, control);
	struct e2b_sandbox *s = a->sandbox;
	struct e2b_fault failure = fault ? *fault : (struct e2b_fault){0};
	int err = fault ? fault->err : e2b_control_learn(s, &c->answer);

	s->attach = NULL;
	e2b_control_cancel(c);
	free(a);
	if (fault)
		tell_all(s, &failure);
	else if (err < 0)
		fail_all(s, err, "the control plane's answer cannot be read");
	go_on(s);
}

static int begin_attach(struct e2b_sandbox *s)
{
	const struct e2b_config *config = &s->e2b->config;
	struct e2b_attach *a;

	if (!e2b_config_has_control(config))
		return e2b_sandbox_learn(s, NULL, config->envd_token, NULL);
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->sandbox = s;
	a->control.e2b = s->e2b;
	a->control.done = attach_done;
	if (e2b_control_attach(&a->control, s) < 0) {
		free(a);
		return -ENOMEM;
	}
	s->attach = a;
	return 0;
}

/* Tells one who waits for nothing any more. Returns whether there was one. */
static bool tell_known(struct e2b_sandbox *s)
{
	list_for_each (w, &s->waiters, struct e2b_waiter, link) {
		struct e2b_user *user = s->ready ? get_user(s, w->user) : NULL;

		if (user && user->known) {
			tell(w, user, NULL);
			return true;
		}
	}
	return false;
}

/*
 * The next step for those who wait: attach, then each user's login shell, then they are told. One
 * user's shell, which may hang, keeps nobody else waiting who has been asked about.
 */
static void go_on(struct e2b_sandbox *s)
{
	while (tell_known(s))
		;
	while (!s->attach && !s->probe && !list_empty(&s->waiters)) {
		struct e2b_waiter *w = list_first(&s->waiters, struct e2b_waiter, link);
		struct e2b_user *user = get_user(s, w->user);
		int err = user ? 0 : -ENOMEM;

		if (err == 0 && !s->ready)
			err = begin_attach(s);
		else if (err == 0 && user->known)
			tell(w, user, NULL);
		else if (err == 0)
			err = begin_probe(s, user);
		if (err < 0)
			fail_all(s, err, "no memory");
	}
}

static void start_task(struct task *task)
{
	go_on(container_of(task, struct e2b_sandbox, wait_task));
}

void e2b_sandbox_wait(struct e2b_sandbox *s, struct e2b_waiter *w)
{
	list_append(&s->waiters, &w->link);
	loop_defer(s->e2b->base.loop, &s->wait_task);
}

void e2b_waiter_cancel(struct e2b_waiter *w)
{
	list_remove(&w->link);
}

/* ---- The sandbox ---- */

struct e2b_sandbox *e2b_sandbox_get(struct e2b *e2b, const char *id)
{
	struct e2b_sandbox *s;

	list_for_each (known, &e2b->sandboxes, struct e2b_sandbox, link) {
		if (strcmp(known->id, id) == 0)
			return known;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->id = strdup(id);
	if (!s->id) {
		free(s);
		return NULL;
	}
	s->e2b = e2b;
	s->codec = &e2b_proto;
	list_init(&s->users);
	list_init(&s->waiters);
	list_init(&s->errands);
	task_init(&s->wait_task, start_task);
	e2b_sweeper_init(&s->sweeper, s);
	list_append(&e2b->sandboxes, &s->link);
	return s;
}

void e2b_sandbox_free(struct e2b_sandbox *s)
{
	e2b_renewal_stop(s);
	e2b_sweeper_done(&s->sweeper);
	task_cancel(&s->wait_task);
	if (s->probe)
		e2b_script_cancel(&s->probe->script);
	free(s->probe);
	if (s->attach)
		e2b_control_cancel(&s->attach->control);
	free(s->attach);
	e2b_fate_free(s->fate);
	e2b_errands_free(s);
	list_for_each_safe (user, &s->users, struct e2b_user, link)
		free_user(user);
	list_remove(&s->link);
	replace(&s->token, NULL);
	free(s->id);
	free(s->url);
	free(s);
}

int e2b_sandbox_learn(struct e2b_sandbox *s, const char *domain, const char *token,
		      const char *version)
{
	unsigned *part = s->version.part;
	char *url = e2b_sandbox_url(&s->e2b->config, s->id, domain);

	if (!url || replace(&s->token, token) < 0) {
		free(url);
		return -ENOMEM;
	}
	free(s->url);
	s->url = url;
	s->has_version = version && sscanf(version, "%u.%u.%u", &part[0], &part[1], &part[2]) == 3;
	s->ready = true;
	e2b_renewal_start(s);
	return 0;
}

bool e2b_sandbox_older(const struct e2b_sandbox *s, unsigned major, unsigned minor, unsigned patch)
{
	const unsigned wanted[] = {major, minor, patch};

	for (size_t i = 0; s->has_version && i < ARRAY_LEN(wanted); i++)
		if (s->version.part[i] != wanted[i])
			return s->version.part[i] < wanted[i];
	return false;
}

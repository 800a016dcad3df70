/*
 * Signals go by the kill of a shell in the sandbox. envd's own call knows two signals, reaches the
 * leader only, and makes envd close the pipes when the leader ends: the last output of
 * a command that answers a SIGTERM was lost in 3 of 10 runs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "e2b_command.h"
#include "e2b_script.h"
#include "log.h"

/*
 * $1: the signal's number, $2: the leader, $3: its mark. Before setsid there is no group yet, and
 * while the leader is on the way to its program, in execve(2), its environment reads as empty: it
 * is looked at again until it is gone, some two seconds at most.
 */
static const char signal_text[] =
	"i=40\n"
	"while [ $i -gt 0 ]; do\n"
	"	kill -s \"$1\" -- \"-$2\" 2>/dev/null && exit\n"
	"	grep -qa \"" E2B_MARK_NAME "=$3\" \"/proc/$2/environ\" 2>/dev/null &&\n"
	"		kill -s \"$1\" \"$2\" && exit\n"
	"	[ -e \"/proc/$2\" ] || break\n"
	"	i=$((i - 1))\n"
	/* Not every sleep knows fractions. */
	"	sleep 0.05 2>/dev/null || { sleep 1; i=$((i - 19)); }\n"
	"done\n"
	"exit 1\n";

struct e2b_errand {
	struct list link; /* in the sandbox's errands */
	struct e2b_script script;
	char signo[8];
	char pid[16];
	char mark[E2B_MARK_LEN + 1];
};

static void errand_free(struct e2b_errand *errand)
{
	list_remove(&errand->link);
	e2b_script_cancel(&errand->script);
	free(errand);
}

void e2b_errands_free(struct e2b_sandbox *s)
{
	list_for_each_safe (errand, &s->errands, struct e2b_errand, link)
		errand_free(errand);
}

/* Signals to one command go one after the other, or a CONT might come before its STOP. */
static struct e2b_errand *first_to(struct e2b_sandbox *s, const char *mark)
{
	list_for_each (errand, &s->errands, struct e2b_errand, link)
		if (strcmp(errand->mark, mark) == 0)
			return errand;
	return NULL;
}

static void go_on(struct e2b_sandbox *s, const char *mark)
{
	struct e2b_errand *errand;

	while ((errand = first_to(s, mark)) && e2b_script_run(&errand->script) < 0) {
		log_warning("e2b: signal %s to pid %s in sandbox %s was not sent: no memory",
			    errand->signo, errand->pid, s->id);
		errand_free(errand);
	}
}

void e2b_signal_forget(struct e2b_command *c)
{
	list_for_each_safe (errand, &c->sandbox->errands, struct e2b_errand, link)
		if (strcmp(errand->mark, c->mark) == 0)
			errand_free(errand);
}

static void script_done(struct e2b_script *script, int exit_code, const struct e2b_fault *fault)
{
	struct e2b_errand *errand = container_of(script, struct e2b_errand, script);
	struct e2b_sandbox *s = script->sandbox;
	char mark[sizeof(errand->mark)];

	memcpy(mark, errand->mark, sizeof(mark));
	if (fault)
		log_warning("e2b: signal %s to pid %s in sandbox %s may not have been sent: %s",
			    errand->signo, errand->pid, s->id, fault->text);
	else if (exit_code)
		log_info("e2b: signal %s to pid %s in sandbox %s found no process", errand->signo,
			 errand->pid, s->id);
	errand_free(errand);
	go_on(s, mark);
}

int e2b_signal(struct command *command, int signo, struct text *why)
{
	struct e2b_command *c = e2b_command_of(command);
	struct e2b_errand *before = first_to(c->sandbox, c->mark);
	struct e2b_errand *errand;

	if (c->phase != E2B_RUNNING || c->pid <= 1)
		return text_fail(why, -ESRCH, "e2b: the command does not run");
	errand = calloc(1, sizeof(*errand));
	if (!errand)
		return text_fail(why, -ENOMEM, "e2b: no memory");
	list_append(&c->sandbox->errands, &errand->link);
	snprintf(errand->signo, sizeof(errand->signo), "%d", signo);
	snprintf(errand->pid, sizeof(errand->pid), "%u", c->pid);
	snprintf(errand->mark, sizeof(errand->mark), "%s", c->mark);
	errand->script.sandbox = c->sandbox;
	errand->script.user = c->sandbox->sweeper.no_root ? NULL : "root";
	errand->script.text = signal_text;
	errand->script.args[0] = errand->signo;
	errand->script.args[1] = errand->pid;
	errand->script.args[2] = errand->mark;
	errand->script.arg_count = 3;
	errand->script.limit_s = E2B_SIGNAL_LIMIT_S;
	errand->script.done = script_done;
	if (before || e2b_script_run(&errand->script) == 0)
		return 0;
	errand_free(errand);
	return text_fail(why, -ENOMEM, "e2b: no memory");
}

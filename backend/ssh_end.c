/*
 * The end of a command: when its output is complete, when nothing of it is left, and when that
 * is told. What happens is noted elsewhere; ssh_end_step() decides what follows from all that
 * is known.
 */
#include <errno.h>

#include "bounds.h"
#include "exec.h"
#include "ssh.h"

/* Pongs without data in between, after which nothing is left in the host's pipes. */
#define SILENT_PONGS 3

static void report_end(struct ssh_command *c)
{
	struct exec *exec = c->command.exec;

	c->end_reported = true;
	if (c->signo > 0)
		exec_signaled(exec, c->signo);
	else if (c->signo == 0)
		exec_exited(exec, c->code);
	else
		exec_lost(exec, "unknown_signal",
			  "the command was ended by a signal that the server of %s does not name: "
			  "BUS, SYS, TRAP, XCPU or another that RFC 4254 does not have",
			  c->ssh->options.host);
}

static bool push_all(struct ssh_command *c)
{
	bool out = ssh_stream_push(c, STREAM_STDOUT);

	return ssh_stream_push(c, STREAM_STDERR) && out;
}

static void report_eof(struct ssh_command *c)
{
	c->eof_reported = true;
	exec_output_end(c->command.exec, STREAM_STDOUT);
	exec_output_end(c->command.exec, STREAM_STDERR);
}

/*
 * The status comes when the leader is reaped, and what it wrote just before may still be
 * in the pipes. Their end tells, but a background child can hold them open: then pings do. The
 * server answers each in a turn of its own, in which it reads the pipes too: after
 * some answers with nothing in between they were empty.
 */
static void await_output(struct ssh_command *c)
{
	if (c->silence >= SILENT_PONGS) {
		report_end(c);
	} else if (!c->pinged) {
		c->pinged = true;
		c->data_since = false;
		ssh_channel_ping(c->channel);
	}
}

static void step_end(struct ssh_command *c)
{
	bool empty;

	/* From here on nobody's reading is waited for. */
	if (c->ended && !c->end_reported)
		ssh_stream_overdraw(c);
	empty = push_all(c);
	if (c->eof && empty && !c->eof_reported)
		report_eof(c);
	if (c->ended && !c->end_reported && empty) {
		if (c->eof)
			report_end(c);
		else
			await_output(c);
	}
	/* Both were cut off after the end: a child that still writes gets SIGPIPE. */
	if (c->end_reported && c->channel && c->streams[STREAM_STDOUT].cut &&
	    c->streams[STREAM_STDERR].cut) {
		ssh_channel_release(TAKE_PTR(c->channel));
		c->closed = true;
	}
}

/* Nothing is left, and the channel has ended or is not waited for. */
static void finish(struct ssh_command *c)
{
	timer_cancel(&c->patience);
	ssh_stream_overdraw(c);
	if (c->ended && !c->end_reported)
		report_end(c);
	exec_gone(c->command.exec);
}

void ssh_end_step(struct task *task)
{
	struct ssh_command *c = container_of(task, struct ssh_command, step);

	if (c->refusal) {
		exec_refused(c->command.exec, c->refusal, "%s", text_str(&c->why));
		return;
	}
	if (c->stage != SSH_RUNNING)
		return;
	step_end(c);
	if (c->gone && (c->closed || !timer_armed(&c->patience))) {
		finish(c);
		return;
	}
	/* The end of the leader is not the end of all: whether it was is asked. */
	if (c->closed && c->end_reported && !c->gone && list_empty(&c->errand.link) && !c->asked) {
		c->asked = true;
		c->errand.kind = SSH_CHECK;
		c->errand.alone = false;
		ssh_pool_ask(c->ssh, c->helper, &c->errand);
	}
}

void ssh_end_patience(struct timer *timer)
{
	ssh_command_step(container_of(timer, struct ssh_command, patience));
}

static void note_gone(struct ssh_command *c)
{
	c->gone = true;
	/* What they wrote last is on its way, and so is the status. */
	if (!c->closed)
		timer_arm(c->ssh->backend.loop, &c->patience, SSH_CLOSE_MS);
	ssh_command_step(c);
}

static void report_survivors(struct ssh_command *c, enum ssh_answer answer)
{
	struct exec *exec = c->command.exec;
	const char *host = c->ssh->options.host;

	if (answer == SSH_SOME_LEFT)
		exec_kill_failed(exec, -EBUSY,
				 "%s: processes of the command are still there after SIGKILL: they "
				 "hang in the kernel, or belong to another user",
				 host);
	else if (answer == SSH_UNSURE)
		exec_kill_failed(exec, -EBUSY,
				 "%s: processes are left that cannot be told from another's: they "
				 "have cleared their environment, and pid %lld, whose session they "
				 "have, has ended long ago or on a lost connection",
				 host, (long long)c->pid);
	else if (answer == SSH_ELSEWHERE)
		exec_kill_failed(exec, -ENXIO,
				 "%s: this connection leads to another machine than the command's, "
				 "or to other processes of it: it cannot be reached there",
				 host);
	else if (answer == SSH_BLIND)
		exec_kill_failed(exec, -EOPNOTSUPP,
				 "%s: the host has no readable /proc: what runs there cannot be "
				 "found",
				 host);
	else
		exec_kill_failed(
			exec, -EHOSTUNREACH, "%s cannot be asked to kill the command: %s", host,
			c->ssh->failure.len ? text_str(&c->ssh->failure) : "no connection");
}

void ssh_end_errand_done(struct ssh_errand *errand, enum ssh_answer answer)
{
	struct ssh_command *c = container_of(errand, struct ssh_command, errand);

	if (answer == SSH_NONE_LEFT) {
		/* Before the start it was only a shell: the end of the channel follows. */
		if (c->stage == SSH_RUNNING)
			note_gone(c);
	} else if (errand->kind == SSH_KILL) {
		report_survivors(c, answer);
	} else if (answer == SSH_NO_ANSWER) {
		c->asked = false;
	}
}

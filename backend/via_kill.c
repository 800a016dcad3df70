/*
 * How a command behind a prefix is killed and signalled. There are two ways to know that
 * nothing of it is left. In a place that every call of the prefix leads to, a second
 * call walks over all processes there. In a PID name space that the command's own call has made, as
 * bwrap and unshare do, the call is killed: the kernel ends the name space with it. In any other
 * case the kill has failed, and says so.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "via.h"

/* Whether it is known that no process of the command is left. */
static bool known_dead(const struct via_command *c)
{
	if (c->left == VIA_LEFT_NONE || c->walked)
		return true;
	return c->own_space && call_over(&c->call) && !via_space_is_inhabited(&c->place);
}

static void start_walk(struct via_command *c)
{
	AUTO_TEXT struct text why = {0};
	int err = errand_start(c, ERRAND_KILL, 0, &c->killer, &why);

	if (err < 0) {
		c->kill_asked = false;
		exec_kill_failed(c->base.exec, err, "%s", text_str(&why));
	}
}

void via_look_fired(struct timer *timer)
{
	struct via_command *c = container_of(timer, struct via_command, look);

	c->looks++;
	via_judge(c);
}

/*
 * The keeper says that a process has gone when it has left its cgroup, a moment before
 * it is a zombie (cgroup_exit() and exit_notify() in the kernel's do_exit()).
 */
static void kill_own_space(struct via_command *c)
{
	if (!call_over(&c->call)) {
		call_kill(&c->call);
		return;
	}
	if (c->looks < VIA_LOOKS_MAX) {
		if (!timer_armed(&c->look))
			timer_arm(c->base.backend->loop, &c->look, VIA_LOOK_MS);
		return;
	}
	c->looks = 0;
	c->kill_asked = false;
	exec_kill_failed(
		c->base.exec, -EBUSY,
		"via: the command's PID name space has not ended, though its init was killed");
}

void via_judge_kill(struct via_command *c)
{
	bool dead = known_dead(c);

	if (dead && call_over(&c->call) && c->phase >= VIA_ENDED) {
		exec_gone(c->base.exec);
		return;
	}
	if (!c->kill_asked)
		return;
	/* The supervisor tells the end by itself, and with it the last output. */
	if (dead)
		via_linger(c);
	else if (c->own_space)
		kill_own_space(c);
	else if (!c->killer && c->phase >= VIA_RUNNING)
		start_walk(c);
}

void via_kill(struct command *command)
{
	struct via_command *c = container_of(command, struct via_command, base);

	c->killing = true;
	c->kill_asked = true;
	loop_defer(command->backend->loop, &c->judge_task);
}

/* ---- Answers ---- */

static void walk_done(struct via_command *c, const struct errand *e)
{
	AUTO_TEXT struct text end = {0};
	int err = -EIO;
	const char *what;

	c->killer = NULL;
	if (strcmp(e->answer, "none") == 0) {
		c->walked = true;
		for (int i = 0; i < STREAM_COUNT; i++) {
			exec_output_overdraw(c->base.exec, (enum stream_id)i, DRAIN_ALLOWANCE);
			call_resume(&c->call, (enum stream_id)i);
		}
		return;
	}
	if (strcmp(e->answer, "some") == 0 && c->phase == VIA_ENDED && !c->call_killed) {
		/* Its leader is dead: no end of input can do harm. If it runs below the call, this
		 * ends it. */
		c->call_killed = true;
		call_kill(&c->call);
		return;
	}
	c->kill_asked = false;
	if (strcmp(e->answer, "some") == 0) {
		err = -EBUSY;
		what = "processes of the command do not die";
	} else if (strcmp(e->answer, "unsure") == 0) {
		err = -EBUSY;
		what = "processes are left there that cannot be told from another's: the command's "
		       "leader has ended, and they have cleared their environment";
	} else if (strcmp(e->answer, "elsewhere") == 0) {
		err = -ENXIO;
		what = "this call of the prefix led to another place than the command's: it "
		       "cannot be reached there";
	} else if (strcmp(e->answer, "blind") == 0) {
		err = -EOPNOTSUPP;
		what = "the target has no grep, or no /proc of its own: processes cannot be found";
	} else if (!call_over(&e->call)) {
		err = -ETIMEDOUT;
		what = "the prefix did not answer";
	} else {
		via_describe_end(&end, &e->call, &e->noise);
		what = text_str(&end);
	}
	exec_kill_failed(c->base.exec, err, "via: kill by another call of the prefix: %s", what);
}

/* A name space below this one: the leader can be signalled from here. */
static bool signal_here(const struct via_command *c, int signo)
{
	pid_t pid = c->own_space ? via_leader_here(&c->place) : 0;

	/* It leads a group of its own, or it is signalled alone. */
	return pid > 1 && kill(getpgid(pid) == pid ? -pid : pid, signo) == 0;
}

static void signal_done(struct via_command *c, const struct errand *e)
{
	if (strcmp(e->answer, "yes") == 0 || c->phase >= VIA_ENDED)
		return;
	exec_note(c->base.exec, "ctl: signal %d was not delivered: %s", e->signo,
		  strcmp(e->answer, "elsewhere") == 0
			  ? "this call of the prefix led to another place than the command's"
		  : e->answer[0] ? "the command has ended, or may not be signalled"
				 : "the prefix did not answer");
}

void via_errand_done(struct errand *e)
{
	struct via_command *c = e->owner;

	if (e->kind == ERRAND_KILL)
		walk_done(c, e);
	else
		signal_done(c, e);
	errand_free(e);
	via_judge(c);
}

int via_signal(struct command *command, int signo, struct text *why)
{
	struct via_command *c = container_of(command, struct via_command, base);
	struct errand *e;

	if (c->phase != VIA_RUNNING)
		return text_fail(why, -ESRCH, "ctl: the command has ended");
	if (c->own_space) {
		if (signal_here(c, signo))
			return 0;
		return text_fail(why, -EOPNOTSUPP,
				 "ctl: the command's PID name space cannot be seen from here, and "
				 "no second call of the prefix leads into it");
	}
	return errand_start(c, ERRAND_SIGNAL, signo, &e, why);
}

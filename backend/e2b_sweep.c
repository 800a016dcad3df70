#include "e2b_sweep.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "e2b_sandbox.h"
#include "log.h"

static const char letters[] = {[E2B_JOB_WATCH] = 'w', [E2B_JOB_CHECK] = 'c', [E2B_JOB_KILL] = 'k'};

/*
 * Arguments: KIND:PID:MARK, of digits and letters only. Answers each with
 * itself, STATE and NUMBER, then "end". Only the shell's own kill is used, on ids that were
 * checked: the program of that name takes a negative id differently from one version to the next.
 *
 * The mark is found with one grep over all environments. A session counts when its leader is the
 * command's: it carries the mark; or it is a zombie or has been waited for, since no process gets a
 * number that a session still has; or it is a child of envd, as this shell is, and carries no mark,
 * having cleared its environment. Any other process of that number is somebody else's. A process is
 * missed while it is within execve(2), when it has no environment for a moment; so a kill needs two
 * passes that find nothing, and so does a check. A scan that does not find itself at its end is
 * none.
 *
 * A capital KIND: the number may be another's by now. What is in its session and has no mark is
 * left alone, and NUMBER is -1 when there is nothing else.
 *
 * A process whose main thread has ended is a zombie with other threads, and lives.
 *
 * Whether grep sees what is behind a NUL is tried on this shell itself, and so is whether this is
 * the /proc of its own PID name space: nothing is done, and nothing believed, by wrong numbers.
 *
 * s123 is the mark of the command whose leader has, or had, the number 123: looking that up in one
 * long text takes a shell the square of its length.
 *
 * A tree that forks all the time is met by a signal to the leader's group, which no fork outruns,
 * and by strikes, of one grep each, in quick succession: a pass, which knows sessions and counts,
 * takes longer than a process needs to have a child.
 *
 * The last field of /proc/PID/stat is the wait status of a zombie, and 0 for those who may not see
 * it: so it counts only with CAP_SYS_PTRACE (bit 19 of CapEff).
 */
static const char sweep_text[] =
	"{ read -r line </proc/self/stat; } 2>/dev/null && [ \"${line%% *}\" = $$ ] || exit 3\n"
	"nl='\n'\n"
	"state() {\n"
	"	s=-\n"
	"	[ \"$1\" -gt 1 ] && [ -e \"/proc/$1\" ] || return 0\n"
	"	line=\n"
	"	while IFS= read -r part; do line=\"$line$part \"; done 2>/dev/null "
	"<\"/proc/$1/stat\"\n"
	"	[ \"$line\" ] || return 0\n"
	"	line=${line##*) } line=${line% } s=${line%% *}\n"
	"	ppid=${line#* } ppid=${ppid%% *}\n"
	"	[ $s = Z ] || return 0\n"
	"	set -- /proc/$1/task/*\n"
	"	[ $# -lt 2 ] || s=R\n"
	"}\n"
	"scan() {\n"
	"	grep -aoHE '" E2B_MARK_NAME "=[0-9a-f]{32}|" E2B_SCRIPT_MARK "_2=2' "
	"/proc/[0-9]*/environ /proc/self/environ\n"
	"	grep -HE '^(State|NSsid):' /proc/[0-9]*/status /proc/self/status\n"
	"}\n"
	"owner() {\n"
	"	eval \"mark=\\${s$1-}\"\n"
	"	[ \"$mark\" ] || return 0\n"
	"	case $hits in *\" $mark:$1 \"*) return ;; esac\n"
	"	state \"$1\"\n"
	"	case $s in - | Z) return ;; esac\n"
	"	found=$(grep -ahoE '" E2B_MARK_NAME "=[0-9a-f]{32}|" E2B_SCRIPT_MARK "_2=2' "
	"\"/proc/$1/environ\" /proc/self/environ)\n"
	"	case $found in\n"
	"	*=\"$mark\"\"$nl\"" E2B_SCRIPT_MARK "_2=2) ;;\n"
	"	" E2B_SCRIPT_MARK "_2=2) [ \"$ppid\" = \"$PPID\" ] || mark= ;;\n"
	"	*" E2B_SCRIPT_MARK "_2=2) mark= ;;\n"
	"	*) exit 3 ;;\n"
	"	esac\n"
	"}\n"
	"pass() {\n"
	"	hits=' ' again= dead=\n"
	"	found=$(scan 2>/dev/null)\n"
	"	case $found in\n"
	"	*/proc/self/environ:" E2B_SCRIPT_MARK "_2=2*/proc/self/status:NSsid:*) ;;\n"
	"	*) exit 3 ;;\n"
	"	esac\n"
	"	IFS=$nl\n"
	"	for entry in $found; do\n"
	"		pid=${entry#/proc/} pid=${pid%%/*} mark=\n"
	"		case $pid in '' | *[!0-9]* | 0 | 1) continue ;; esac\n"
	"		case $entry in\n"
	"		*:State:*[ZX]' ('*) dead=$pid ;;\n"
	"		*:State:*) ;;\n"
	"		*:NSsid:*)\n"
	"			sid=${entry##*:NSsid:?} sid=${sid%%\t*}\n"
	"			case $sid in '' | *[!0-9]*) continue ;; esac\n"
	"			if [ \"$pid\" = \"$dead\" ]; then\n"
	"				state \"$pid\"\n"
	"				[ $s = R ] || continue\n"
	"			fi\n"
	"			owner \"$sid\"\n"
	"			[ \"$mark\" ] || owner \"$pid\"\n"
	"			[ \"$mark\" ] || eval \"doubts=\\$doubts\\${d$sid-}\" ;;\n"
	"		*) mark=${entry##*=} ;;\n"
	"		esac\n"
	"		case $marks in *\" $mark \"*) ;; *) continue ;; esac\n"
	"		case $hits in *\" $mark:$pid \"*) continue ;; esac\n"
	"		hits=\"$hits$mark:$pid \"\n"
	"		case $seen in *\" $mark:$pid \"*) ;; *) seen=\"$seen$mark:$pid \" ;; esac\n"
	"		case $kills in *\" $mark \"*)\n"
	"			again=1\n"
	"			eval \"leader=\\${s$pid-}\"\n"
	"			[ \"$leader\" = \"$mark\" ] && kill -s KILL -- \"-$pid\"\n"
	"			kill -s KILL \"$pid\" ;;\n"
	"		esac\n"
	"	done 2>/dev/null\n"
	"	IFS=' '\n"
	"}\n"
	"strike() {\n"
	"	grep -laE '" E2B_MARK_NAME "'\"=($1)\" /proc/[0-9]*/environ 2>/dev/null | (\n"
	"		found=1\n"
	"		while IFS=/ read -r before proc pid name; do\n"
	"			case $pid in '' | *[!0-9]* | 0 | 1) continue ;; esac\n"
	"			kill -s KILL \"$pid\" && found=0\n"
	"		done 2>/dev/null\n"
	"		exit $found\n"
	"	)\n"
	"}\n"
	"unseen() {\n"
	"	for job in $others; do\n"
	"		case $seen in *\" ${job##*:}:\"*) ;; *) return 0 ;; esac\n"
	"	done\n"
	"	return 1\n"
	"}\n"
	"hits=' ' seen=' ' marks=' ' kills=' ' others= may= killed= doubts=\n"
	"while read -r key value; do\n"
	"	case $key$value in CapEff:*[89a-f]???\?) may=1 ;; esac\n"
	"done </proc/$$/status\n"
	"for job; do\n"
	"	rest=${job#?:} pid=${rest%%:*} mark=${rest#*:}\n"
	"	state \"$pid\"\n"
	"	case $job in\n"
	"	w:*)\n"
	"		code=-1\n"
	"		[ \"$may\" ] && [ \"$s\" = Z ] && code=${line##* }\n"
	"		echo \"$job $s $code\"\n"
	"		continue ;;\n"
	"	[kK]:*) kills=\"$kills$mark \" killed=$killed${killed:+|}$mark ;;\n"
	"	esac\n"
	"	marks=\"$marks$mark \" others=\"$others$job \"\n"
	"	[ \"$pid\" -gt 1 ] || continue\n"
	"	case $job in [CK]:*) eval \"d$pid=' $mark'\"; continue ;; esac\n"
	"	eval \"s$pid=$mark\"\n"
	"	case $job in k:*)\n"
	"		owner \"$pid\"\n"
	"		[ -z \"$mark\" ] || kill -s KILL -- \"-$pid\" ;;\n"
	"	esac\n"
	"done 2>/dev/null\n"
	"[ -z \"$others\" ] || "
	"case $(grep -aoE '" E2B_SCRIPT_MARK "_[12]=' /proc/$$/environ 2>/dev/null) in\n"
	"*1*2* | *2*1*) ;;\n"
	"*) exit 3 ;;\n"
	"esac\n"
	"tries=0 clean=0\n"
	"[ -z \"$killed\" ] || while strike \"$killed\" && [ $tries -lt 200 ]; do\n"
	"	tries=$((tries + 1))\n"
	"done\n"
	"tries=0\n"
	"[ -z \"$others\" ] || while pass; do\n"
	"	if [ \"$kills\" = ' ' ]; then\n"
	"		[ $tries = 0 ] && unseen || break\n"
	"		tries=1\n"
	"		continue\n"
	"	fi\n"
	"	if [ \"$again\" ]; then clean=0; else clean=$((clean + 1)); fi\n"
	"	[ $clean -ge 2 ] || [ $tries -ge 60 ] && break\n"
	"	tries=$((tries + 1))\n"
	"	[ $tries -lt 4 ] || sleep 0.05 2>/dev/null || sleep 1\n"
	"done\n"
	"for job in $others; do\n"
	"	rest=${job#?:} pid=${rest%%:*} mark=${rest#*:} count=0\n"
	"	case $job in [cC]:*) hit=$seen ;; *) hit=$hits ;; esac\n"
	"	for hit in $hit; do case $hit in \"$mark:\"*) count=$((count + 1)) ;; esac; "
	"done\n"
	"	state \"$pid\"\n"
	"	case $job in [CK]:*) s=- ;; esac\n"
	"	case $count$doubts in 0*\" $mark\"*) count=-1 ;; esac\n"
	"	echo \"$job $s $count\"\n"
	"done\n"
	"echo end\n";

static void begin(struct e2b_sweeper *sweeper);

/* ---- Answers ---- */

static char letter_of(const struct e2b_job *job)
{
	return job->doubtful ? (char)toupper(letters[job->kind]) : letters[job->kind];
}

static void answer_line(struct e2b_sweeper *sweeper, const char *line)
{
	char mark[E2B_MARK_LEN + 1];
	char letter;
	char state;
	int number;

	if (sscanf(line, "%c:%*u:%32s %c %d", &letter, mark, &state, &number) != 4)
		return;
	list_for_each (job, &sweeper->asked, struct e2b_job, link) {
		if (letter_of(job) != letter || strcmp(job->mark, mark) != 0)
			continue;
		job->answered = true;
		job->state = state;
		job->number = number;
		return;
	}
}

/* Returns whether the script came to its last line. */
static bool read_answers(struct e2b_sweeper *sweeper)
{
	char *line = sweeper->script.output.data;
	char *end;

	for (; line && (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (strcmp(line, "end") == 0)
			return true;
		answer_line(sweeper, line);
	}
	return false;
}

/* Tells all who asked. They may ask again from within, which goes to `waiting`. */
static void tell(struct e2b_sweeper *sweeper, const struct e2b_fault *fault)
{
	static const struct e2b_fault no_answer = {
		.err = -EIO, .text = "e2b: a sweep of the sandbox did not answer for a command"};

	while (!list_empty(&sweeper->asked)) {
		struct e2b_job *job = list_first(&sweeper->asked, struct e2b_job, link);
		const struct e2b_fault *why = fault ? fault : job->answered ? NULL : &no_answer;

		list_remove(&job->link);
		job->done(job, job->state, job->number, why);
	}
}

static void script_done(struct e2b_script *script, int exit_code, const struct e2b_fault *fault)
{
	struct e2b_sweeper *sweeper = container_of(script, struct e2b_sweeper, script);
	struct e2b_fault failed = {.err = -EIO};

	sweeper->busy = false;
	if (fault && !sweeper->no_root && strcmp(fault->error.code, "unauthenticated") == 0) {
		log_warning("e2b: sandbox %s has no user root: only processes of its default user "
			    "can be looked after",
			    sweeper->sandbox->id);
		sweeper->no_root = true;
		list_splice(&sweeper->waiting, &sweeper->asked);
	} else if (!fault && !read_answers(sweeper)) {
		snprintf(failed.text, sizeof(failed.text),
			 "e2b: looking after processes in sandbox %s failed with exit status %d%s",
			 sweeper->sandbox->id, exit_code,
			 exit_code == 3 ? ": it needs grep and a readable /proc" : "");
		tell(sweeper, &failed);
	} else {
		tell(sweeper, fault);
	}
	if (!sweeper->busy && !list_empty(&sweeper->waiting) && !timer_armed(&sweeper->timer))
		begin(sweeper);
}

/* ---- Questions ---- */

/* Moves jobs to `asked`. Their arguments stay in one text that must not move: sized first. */
static int take_jobs(struct e2b_sweeper *sweeper)
{
	struct e2b_script *script = &sweeper->script;
	size_t offsets[E2B_SCRIPT_ARGS_MAX] = {0};

	sweeper->args.len = 0;
	script->arg_count = 0;
	while (!list_empty(&sweeper->waiting) && script->arg_count < E2B_SCRIPT_ARGS_MAX) {
		struct e2b_job *job = list_first(&sweeper->waiting, struct e2b_job, link);

		offsets[script->arg_count] = sweeper->args.len;
		if (text_printf(&sweeper->args, "%c:%u:%s", letter_of(job), job->pid, job->mark) <
			    0 ||
		    text_append(&sweeper->args, "", 1) < 0)
			return -ENOMEM;
		script->arg_count++;
		job->answered = false;
		list_remove(&job->link);
		list_append(&sweeper->asked, &job->link);
	}
	for (size_t i = 0; i < script->arg_count; i++)
		script->args[i] = sweeper->args.data + offsets[i];
	return 0;
}

static void begin(struct e2b_sweeper *sweeper)
{
	static const struct e2b_fault no_memory = {.err = -ENOMEM, .text = "e2b: no memory"};
	struct e2b_script *script = &sweeper->script;

	if (list_empty(&sweeper->waiting))
		return;
	sweeper->busy = true;
	script->sandbox = sweeper->sandbox;
	/* Every process of the sandbox is to be seen, whatever user a command took on. */
	script->user = sweeper->no_root ? NULL : "root";
	script->text = sweep_text;
	script->limit_s = E2B_SWEEP_LIMIT_S;
	script->done = script_done;
	if (take_jobs(sweeper) == 0 && e2b_script_run(script) == 0)
		return;
	sweeper->busy = false;
	tell(sweeper, &no_memory);
}

static void timer_fired(struct timer *timer)
{
	struct e2b_sweeper *sweeper = container_of(timer, struct e2b_sweeper, timer);

	if (!sweeper->busy)
		begin(sweeper);
}

void e2b_sweep(struct e2b_sweeper *sweeper, struct e2b_job *job, enum e2b_job_kind kind,
	       uint64_t delay_ms)
{
	uint64_t due_ns = monotonic_ns() + delay_ms * 1000000;

	job->kind = kind;
	list_append(&sweeper->waiting, &job->link);
	if (timer_armed(&sweeper->timer) && sweeper->due_ns <= due_ns)
		return;
	sweeper->due_ns = due_ns;
	timer_arm(sweeper->sandbox->e2b->base.loop, &sweeper->timer, delay_ms);
}

void e2b_job_init(struct e2b_job *job)
{
	list_init(&job->link);
}

void e2b_job_cancel(struct e2b_job *job)
{
	list_remove(&job->link);
}

void e2b_sweeper_init(struct e2b_sweeper *sweeper, struct e2b_sandbox *sandbox)
{
	sweeper->sandbox = sandbox;
	sweeper->timer.fire = timer_fired;
	list_init(&sweeper->waiting);
	list_init(&sweeper->asked);
}

void e2b_sweeper_done(struct e2b_sweeper *sweeper)
{
	timer_cancel(&sweeper->timer);
	e2b_script_cancel(&sweeper->script);
	text_done(&sweeper->args);
}

#include "via_script.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "far_script.h"
#include "via_mark.h"

/*
 * Every line begins with this. The token comes in two halves, so that the trace of a shell
 * that was told to trace (SHELLOPTS) never has a mark in it. A bash that was
 * called sh does not say by which signal a child died unless it leaves POSIX mode.
 */
static const char preamble[] = "set +aefux; "
			       "case ${BASH_VERSION-} in ?*) set +o posix;; esac; "
			       "spawnfs_mark() { echo \"\036$spawnfs_a$spawnfs_b $*\"; }; ";

/* Says on both streams that whatever came before was not from here. */
static const char ready[] = "spawnfs_mark ready; spawnfs_mark ready >&2; ";

/*
 * spawnfs_own: whether /proc is of this shell's own PID name space; another numbers processes
 * differently than kill does.
 */
static const char where[] =
	"spawnfs_own=n; spawnfs_boot=; { IFS= read -r spawnfs_boot < /proc/self/stat; } "
	"2>/dev/null; "
	"if [ \"${spawnfs_boot%% *}\" = $$ ]; then spawnfs_own=y; fi; spawnfs_boot=; "
	"{ IFS= read -r spawnfs_boot < /proc/sys/kernel/random/boot_id; } 2>/dev/null; "
	"spawnfs_space=$(readlink /proc/self/ns/pid 2>/dev/null); ";

/* Told before the start, so that it is known of whatever runs. */
static const char place[] =
	"spawnfs_mark place \"${spawnfs_boot:--}\" \"${spawnfs_space:--}\" $$ >&2; ";

/*
 * The command is a child in the foreground: one in the background would start with
 * INT and QUIT ignored. A shell says 128+N for both a death by signal N and exit
 * 128+N, but reports the death, and only that, on its stderr: so the child has the real
 * one, and what the shell says there is read at the other end of a pipe (INT and PIPE are
 * never reported: those stay codes). The child's own shell tells its pid on the
 * same pipe, as fd 6.
 */
static const char command[] =
	"{ exec 2>&1; "
	"( exec 6>&1 1>&4 2>&5 4>&- 5>&-; export SPAWNFS_EXEC=\"$spawnfs_exec\"; "
	"if command -v setsid >/dev/null 2>&1; "
	"then exec setsid /bin/sh -c \"$spawnfs_loader\"; "
	"else exec /bin/sh -c \"$spawnfs_loader\"; fi ); "
	"echo \"=$?\"; }";

/*
 * The other end. Neither stream waits for the other with its mark: one may be held back. Without
 * a status the shell that waited for the command was killed: nobody knows its result (2).
 */
static const char watcher[] =
	"spawnfs_killed= spawnfs_code= spawnfs_pid=0; "
	"while " FAR_READ "spawnfs_line; do case $spawnfs_line in "
	"p*) spawnfs_pid=${spawnfs_line#p};; =*) spawnfs_code=${spawnfs_line#=};; "
	"*) spawnfs_killed=yes;; esac; done; "
	"[ \"$spawnfs_code\" ] || exit 2; "
	"spawnfs_last=; { IFS= read -r spawnfs_last < /proc/sys/kernel/ns_last_pid; } 2>/dev/null; "
	"if [ \"$spawnfs_killed\" ] && [ \"$spawnfs_code\" -gt 128 ]; "
	"then spawnfs_end=\"signal $((spawnfs_code - 128))\"; "
	"else spawnfs_end=\"exit $spawnfs_code\"; fi; "
	"spawnfs_mark \"$spawnfs_end\" & spawnfs_mark \"$spawnfs_end\" >&2; ";

/*
 * When the last process number that the name space has given out is the leader's, nothing was
 * started after it: nothing is left. (While it was there its number could not be given out again;
 * ns_last_pid is the kernel's own, and stands only in a /proc that knows.) Else one grep looks for
 * the mark and for members of the command's session, and for this
 * shell itself: when it does not find that, it cannot look (-z is for busybox, whose grep
 * ends at a NUL without it). Of those that it finds, some may hold the streams.
 */
static const char count_left[] =
	"spawnfs_held() { for spawnfs_file in $spawnfs_left; do "
	"spawnfs_file=${spawnfs_file#/proc/}; spawnfs_file=${spawnfs_file%%/*}; "
	"[ \"$spawnfs_file\" = $$ ] || for spawnfs_file in /proc/\"$spawnfs_file\"/fd/*; do "
	"if [ \"$spawnfs_file\" -ef /proc/self/fd/1 ] || "
	"[ \"$spawnfs_file\" -ef /proc/self/fd/2 ]; then return 0; fi; done; done; return 1; }; "
	"spawnfs_left=none; if [ \"$spawnfs_last\" != \"$spawnfs_pid\" ]; then "
	"spawnfs_self=/proc/$$/stat; spawnfs_left=; "
	"[ $spawnfs_own = n ] || spawnfs_left=$(LC_ALL=C grep -lsz -e \"^$$ \" -e "
	"\"SPAWNFS_EXEC=$spawnfs_exec\" "
	"-e \"^[0-9]* (.*) [^ZX] [0-9]* [0-9]* $spawnfs_pid \" "
	"$spawnfs_self /proc/[0-9]*/environ /proc/[0-9]*/stat 2>/dev/null); "
	"case $spawnfs_left in "
	"\"$spawnfs_self$spawnfs_n$spawnfs_self\") spawnfs_left=none;; "
	"*\"$spawnfs_self\"*) if spawnfs_held; then spawnfs_left=held; else spawnfs_left=some; "
	"fi;; "
	"*) spawnfs_left=unknown;; esac; fi; "
	"spawnfs_mark left $spawnfs_left >&2; wait; "
	"case $spawnfs_left in none | some) spawnfs_mark left $spawnfs_left;; esac; "
	"[ $spawnfs_left = none ]";

/*
 * The place may end with the supervisor (a sandbox), or the streams be cut soon after (docker): so
 * it stays while others hold them (1), until its input ends. When the watcher could not tell the
 * end, or was killed, it leaves at once: a call that ends without a mark is a loss.
 */
static const char stay[] = "; case $? in 1) while " FAR_READ "spawnfs_line; do :; done;; esac; "
			   "exit 0\n";

/* ---- Text ---- */

static int append(struct text *ret, const char *s)
{
	return text_append(ret, s, strlen(s));
}

static int append_all(struct text *ret, const char *const *parts)
{
	int err = 0;

	for (; err == 0 && *parts; parts++)
		err = append(ret, *parts);
	return err;
}

static int begin(struct text *ret, const char *secret)
{
	return text_printf(ret, "%sspawnfs_a=%.16s spawnfs_b=%s spawnfs_n=${IFS#??}; ", preamble,
			   secret, secret + 16);
}

/* ---- The command ---- */

int script_supervise(struct text *ret, const char *secret, const char *mark)
{
	const char *const parts[] = {"; ",
				     ready,
				     where,
				     place,
				     "exec 4>&1 5>&2; ",
				     command,
				     " | { exec 4>&- 5>&-; ",
				     watcher,
				     count_left,
				     "; }",
				     stay,
				     NULL};
	int err = begin(ret, secret);

	if (err == 0)
		err = text_printf(ret, "spawnfs_exec=%s spawnfs_loader=", mark);
	if (err == 0)
		err = far_quote(ret, SCRIPT_LOADER);
	return err ? err : append_all(ret, parts);
}

int script_become(struct text *ret, const char *secret, const struct spec *spec)
{
	int err = begin(ret, secret);

	if (err == 0)
		err = append(ret, "echo \"p$$\" >&6; exec 6>&-; "
				  "spawnfs_tell() { spawnfs_mark \"$* $$\" >&2; }; ");
	return err ? err : far_start(ret, spec);
}

/* ---- Kill and signal ---- */

/* A number of another name space means nothing here: nothing is done by number then. */
static int append_same(struct text *ret, const struct script_place *p)
{
	int err = append(ret, where);

	return err ? err
		   : text_printf(
			     ret,
			     "spawnfs_same=n; "
			     "if [ \"$spawnfs_own $spawnfs_boot $spawnfs_space\" = 'y %s %s' ]; "
			     "then spawnfs_same=y; fi; ",
			     p->boot, p->space);
}

/*
 * Without a mark of its own a shell cannot try whether it can look for marks (far_walk()): so
 * it begins anew with one.
 */
static int append_second_shell(struct text *ret, const char *mark)
{
	int err = text_printf(ret, "export SPAWNFS_EXEC=%s; exec /bin/sh -c ", mark);

	if (err == 0)
		err = far_quote(ret, SCRIPT_LOADER);
	return err ? err : append(ret, "\n");
}

/*
 * What has the mark is the command's wherever it is found.
 */
int script_kill(struct text *ret, const char *secret, const char *mark,
		const struct script_place *p, bool held)
{
	char own[32];
	int err;

	snprintf(own, sizeof(own), "walk-%.8s", mark);
	err = append_second_shell(ret, own);
	if (err == 0)
		err = begin(ret, secret);
	if (err == 0)
		err = append(ret, ready);
	if (err == 0)
		err = append_same(ret, p);
	if (err == 0)
		err = far_walk(ret);
	return err ? err
		   : text_printf(ret,
				 "if [ $spawnfs_same = y ]; then set -- %s %lld '%s' %c; "
				 "else set -- %s 0 0 n; fi; "
				 "far_find \"$@\"; spawnfs_found=$far_left; far_kill \"$@\"; "
				 "if [ $spawnfs_same$spawnfs_found = nnone ]; "
				 "then far_left=elsewhere; fi; "
				 "spawnfs_mark walk \"$far_left\" >&2; exit 0\n",
				 mark, (long long)p->pid, p->ticks, held ? 'y' : 'n', mark);
}

/* Only while its leader is the process that was started: else the number is another's. */
int script_signal(struct text *ret, const char *secret, const struct script_place *p, int signo)
{
	int err = begin(ret, secret);

	if (err == 0)
		err = append(ret, ready);
	if (err == 0)
		err = append_same(ret, p);
	return err ? err
		   : text_printf(ret,
				 "spawnfs_ticks() { if [ $# -ge 20 ]; then shift 19; fi; "
				 "spawnfs_ticks=$1; }; spawnfs_line=; "
				 "{ IFS= read -r spawnfs_line < /proc/%lld/stat; } 2>/dev/null; "
				 "spawnfs_ticks ${spawnfs_line##*') '}; "
				 "spawnfs_sent=no; if [ $spawnfs_same = n ]; "
				 "then spawnfs_sent=elsewhere; "
				 "elif [ \"$spawnfs_ticks\" = '%s' ] && "
				 "{ kill -%d -%lld || kill -%d %lld; } 2>/dev/null; "
				 "then spawnfs_sent=yes; fi; "
				 "spawnfs_mark sent $spawnfs_sent >&2; exit 0\n",
				 (long long)p->pid, p->ticks, signo, (long long)p->pid, signo,
				 (long long)p->pid);
}

/* ---- The guard ---- */

/*
 * Told of the daemon's death it kills at once, and again: a command that had been sent may not
 * have begun to be one. Else it looks every second whether there is a later guard, rather than
 * once: so a far side that was frozen (docker pause) finds it after that, too. The end of a session
 * is none of it (HUP). At its own end it takes along earlier guards that have not seen it.
 */
static const char guard[] =
	"trap '' PIPE HUP\n"
	"command -v sleep >/dev/null 2>&1 || far_way=blind\n"
	"spawnfs_mark guard $far_way >&2\n"
	"[ $far_way != blind ] || exit 0\n"
	"while " FAR_READ "spawnfs_line; do\n"
	"	case $spawnfs_line in\n"
	"	beat) spawnfs_mark guard beat >&2 ;;\n"
	"	leave) exit 0 ;;\n"
	"	end) spawnfs_lease=0; break ;;\n"
	"	dead) far_kill $spawnfs_prefix 0 0 n; spawnfs_lease=$spawnfs_late; break ;;\n"
	"	esac\n"
	"done\n"
	"while [ $spawnfs_lease -gt 0 ]; do\n"
	"	sleep 1\n"
	"	spawnfs_lease=$((spawnfs_lease - 1))\n"
	"	far_find \"$SPAWNFS_EXEC+\" 0 0 n\n"
	"	[ $far_left != some ] || exit 0\n"
	"done\n"
	"far_kill $spawnfs_prefix 0 0 n\n"
	"far_kill guard-$spawnfs_prefix 0 0 n\n";

int script_guard(struct text *ret, const char *secret, const char *prefix, unsigned generation,
		 unsigned lease)
{
	AUTO_TEXT struct text own = {0};
	int err = text_printf(&own, "guard-%s", prefix);

	while (err == 0 && generation--)
		err = append(&own, "+");
	if (err == 0)
		err = append_second_shell(ret, text_str(&own));
	if (err == 0)
		err = begin(ret, secret);
	if (err == 0)
		err = append(ret, ready);
	if (err == 0)
		err = append(ret, where);
	if (err == 0)
		err = append(ret, place);
	if (err == 0)
		err = far_walk(ret);
	if (err == 0)
		err = text_printf(ret, "spawnfs_prefix=%s spawnfs_lease=%u spawnfs_late=%u; ",
				  prefix, lease, VIA_LATE_S);
	if (err == 0)
		err = far_lines(ret, guard);
	return err ? err : append(ret, "exit 0\n");
}

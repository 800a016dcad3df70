/*
 * The part of the far scripts (far_script.h) that looks for the processes of a command, kills and
 * signals them.
 */
#include "far_script.h"

#include <errno.h>

/* ---- Finding and killing ---- */

/*
 * far_marked PATTERNS: the /proc directories of the processes with a mark. An environment has
 * NULs, at which the grep of busybox stops unless told that they end a line; whether a way of
 * looking works is tried on this shell itself, which has a mark too. A /proc of another PID name
 * space shows processes under other numbers than kill takes: then nothing may be done by
 * number. It shows itself by this shell's number, and by more than one of them (proc(5), NSpid).
 * In another locale than C, a process whose name is not text would be no match for a dot.
 */
static const char walk_marked[] =
	"export LC_ALL=C\n"
	"far_look() { grep -lsF $far_z \"$@\" 2>/dev/null; }\n"
	"far_slow() {\n"
	"	for far_file in /proc/[0-9]*/environ; do\n"
	"		while IFS= read -r far_text || [ \"$far_text\" ]; do\n"
	"			for far_mark in \"$@\"; do\n"
	"				case $far_text in\n"
	"				*\"$far_mark\"*) echo \"$far_file\"; break 2 ;;\n"
	"				esac\n"
	"			done\n"
	"		done < \"$far_file\"\n"
	"	done 2>/dev/null\n"
	"}\n"
	"far_way=blind far_text=\n"
	"{ IFS= read -r far_text < /proc/self/stat; } 2>/dev/null\n"
	"if [ \"${far_text%% *}\" = $$ ] && [ -r /proc/$$/environ ] &&\n"
	"	[ -z \"$(grep -s '^NSpid:.*[0-9][[:space:]]' /proc/self/status 2>/dev/null)\" ]; "
	"then\n"
	"	far_way=slow\n"
	"	for far_z in '' -z; do\n"
	"		far_text=$(far_look -e \"SPAWNFS_EXEC=$SPAWNFS_EXEC\" /proc/$$/environ)\n"
	"		if [ \"$far_text\" ]; then far_way=grep far_way_z=$far_z; fi\n"
	"	done\n"
	"	far_z=${far_way_z-}\n"
	"fi\n"
	"far_marked() {\n"
	"	if [ $far_way = slow ]; then far_slow \"$@\"; return; fi\n"
	"	far_args=\n"
	"	for far_mark in \"$@\"; do far_args=\"$far_args -e $far_mark\"; done\n"
	"	far_look $far_args /proc/[0-9]*/environ\n"
	"}\n";

/*
 * far_table: "PID PPID GROUP SESSION", a line for each process that lives, where there is no
 * grep. A dead leader may have living threads: Z with more than one thread.
 */
static const char walk_table[] =
	"far_stats() {\n"
	"	if [ $far_way = grep ]; then grep -Hs '' /proc/[0-9]*/stat 2>/dev/null; return; "
	"fi\n"
	"	for far_file in /proc/[0-9]*/stat; do\n"
	"		while IFS= read -r far_text; do echo \"$far_file:$far_text\"; done < "
	"\"$far_file\"\n"
	"	done 2>/dev/null\n"
	"}\n"
	"far_row() {\n"
	"	[ $# -ge 21 ] || return 0\n"
	"	far_pid=$1 far_state=$2 far_ids=\"$3 $4 $5\"\n"
	"	shift 10\n"
	"	case $far_state in\n"
	"	Z) [ \"${9:-1}\" -gt 1 ] || return 0 ;;\n"
	"	X) return 0 ;;\n"
	"	esac\n"
	"	far_table=\"$far_table$far_pid $far_ids$spawnfs_n\"\n"
	"}\n"
	"far_read_table() {\n"
	"	far_table=\n"
	"	far_text=$(far_stats)\n"
	"	IFS=$spawnfs_n\n"
	"	set -f\n"
	"	for far_text in $far_text; do\n"
	"		IFS=$far_ifs\n"
	"		far_pid=${far_text#/proc/}\n"
	"		case $far_text in\n"
	"		*') '*) far_row \"${far_pid%%/*}\" ${far_text##*') '} ;;\n"
	"		esac\n"
	"	done\n"
	"	set +f\n"
	"	IFS=$far_ifs\n"
	"}\n"
	"far_ifs=$IFS\n";

/*
 * Seeds are what has the mark, the leader's session and group; then children until no more. A
 * grep over all of /proc is quick, a shell that reads each line is not: only without a grep it
 * does. As long as anything has a number as its session or group, nothing else gets that
 * number (free_pid() in the kernel): where a leader is absent, and afterwards its number is
 * somebody's, nothing of its session was left, and what was found is another's.
 */
static const char walk_find[] =
	"far_begin() {\n"
	"	far_begun= far_state=${1-}\n"
	"	[ $# -ge 20 ] || return 0\n"
	"	shift 19\n"
	"	far_begun=$1\n"
	"}\n"
	"far_leader() {\n"
	"	case $1 in '' | *[!0-9]* | 0 | 1) return 0 ;; esac\n"
	"	far_text=\n"
	"	{ IFS= read -r far_text < \"/proc/$1/stat\"; } 2>/dev/null\n"
	"	far_begin ${far_text##*') '}\n"
	"	if [ \"$3\" = s ]; then\n"
	"		case $far_state$far_begun in\n"
	"		[ZX]*) ;;\n"
	"		?\"$2\") far_add \"$1\" ;;\n"
	"		esac\n"
	"		return 0\n"
	"	fi\n"
	"	if [ \"$far_text\" ]; then\n"
	"		[ \"$far_begun\" = \"$2\" ] || return 0\n"
	"		far_groups=\"$far_groups $1:$2\"\n"
	"	else\n"
	"		case $3$far_reused in n* | *\" $1 \"*) return 0 ;; esac\n"
	"		far_absent=\"$far_absent $1\"\n"
	"	fi\n"
	"	far_leaders=\"$far_leaders$1 \"\n"
	"}\n"
	"far_belongs() {\n"
	"	case $far_set in *\" $1 \"*) return 1 ;; *\" $2 \"*) return 0 ;; esac\n"
	"	case $far_leaders in *\" $1 \"* | *\" $3 \"* | *\" $4 \"*) return 0 ;; esac\n"
	"	return 1\n"
	"}\n"
	"far_grow_slowly() {\n"
	"	far_read_table\n"
	"	far_more=yes\n"
	"	while [ $far_more = yes ]; do\n"
	"		far_more=no\n"
	"		IFS=$spawnfs_n\n"
	"		for far_text in $far_table; do\n"
	"			IFS=$far_ifs\n"
	"			if far_belongs $far_text; then\n"
	"				far_set=\"$far_set${far_text%% *} \" far_more=yes\n"
	"			fi\n"
	"		done\n"
	"		IFS=$far_ifs\n"
	"	done\n"
	"}\n"
	"far_add() {\n"
	"	for far_file in \"$@\"; do\n"
	"		far_file=${far_file#/proc/}\n"
	"		far_file=${far_file%%/*}\n"
	"		case $far_set in\n"
	"		*\" $far_file \"*) ;;\n"
	"		*) far_set=\"$far_set$far_file \" far_new=\"$far_new $far_file\" ;;\n"
	"		esac\n"
	"	done\n"
	"}\n"
	"far_grow() {\n"
	"	set --\n"
	"	for far_pid in $far_leaders; do\n"
	"		set -- \"$@\" -e \"^[0-9]* (.*) [^ZX] [0-9]* $far_pid \" \\\n"
	"			-e \"^[0-9]* (.*) [^ZX] [0-9]* [0-9]* $far_pid \" \\\n"
	"			-e \"^[0-9]* (.*) Z [0-9]* $far_pid\\( [-0-9]*\\)\\{14\\} [2-9]\" "
	"\\\n"
	"			-e \"^[0-9]* (.*) Z [0-9]* $far_pid\\( [-0-9]*\\)\\{14\\} "
	"[1-9][0-9]\"\n"
	"	done\n"
	"	far_new=$far_set\n"
	"	while :; do\n"
	"		for far_pid in $far_new; do\n"
	"			set -- \"$@\" -e \"^[0-9]* (.*) [^ZX] $far_pid \"\n"
	"		done\n"
	"		[ $# -gt 0 ] || return 0\n"
	"		far_new=\n"
	"		far_add $(grep -ls \"$@\" /proc/[0-9]*/stat 2>/dev/null)\n"
	"		set --\n"
	"	done\n"
	"}\n"
	"far_gather() {\n"
	"	far_set=' ' far_leaders=' ' far_groups= far_absent= far_marks= far_new=\n"
	"	while [ $# -ge 4 ]; do\n"
	"		far_marks=\"$far_marks SPAWNFS_EXEC=$1\"\n"
	"		far_leader \"$2\" \"$3\" \"$4\"\n"
	"		shift 4\n"
	"	done\n"
	"	far_add $(far_marked $far_marks)\n"
	"	if [ $far_way = grep ]; then far_grow; else far_grow_slowly; fi\n"
	"}\n"
	"far_find() {\n"
	"	far_left=blind far_reused=' ' far_set=' ' far_groups=\n"
	"	[ $far_way != blind ] || return 0\n"
	"	while :; do\n"
	"		far_gather \"$@\"\n"
	"		far_more=no\n"
	"		for far_pid in $far_absent; do\n"
	"			if [ -e \"/proc/$far_pid\" ]; then\n"
	"				far_reused=\"$far_reused$far_pid \" far_more=yes\n"
	"			fi\n"
	"		done\n"
	"		[ $far_more = yes ] || break\n"
	"	done\n"
	"	far_left=some\n"
	"	[ \"$far_set\" != ' ' ] || far_left=none\n"
	"}\n";

/*
 * A group is killed at once where kill is the shell's own (/bin/kill may take -9 -123 for -1), and
 * while its leader, looked at just before, still is the one. The rest one by one. One that
 * was started in between is found in the next round; a tree that forks all the time is chased
 * by its mark alone, since a whole walk takes longer than a process needs to have a child.
 * Without a way to look, the groups are killed whose leader is not known to have ended; that
 * proves nothing.
 */
static const char walk_kill[] =
	"far_kill_is=$(command -v kill)\n"
	"far_strike() {\n"
	"	[ \"$far_kill_is\" = kill ] || far_groups=\n"
	"	for far_pair in $far_groups; do\n"
	"		far_pid=${far_pair%%:*} far_text=\n"
	"		{ IFS= read -r far_text < \"/proc/$far_pid/stat\"; } 2>/dev/null\n"
	"		far_begin ${far_text##*') '}\n"
	"		[ \"$far_pid:$far_begun\" != \"$far_pair\" ] || kill -9 \"-$far_pid\" "
	"2>/dev/null\n"
	"	done\n"
	"	for far_pid in $far_set; do\n"
	"		case $far_pid in\n"
	"		'' | *[!0-9]* | 0 | 1 | $$) ;;\n"
	"		*) kill -9 \"$far_pid\" 2>/dev/null ;;\n"
	"		esac\n"
	"	done\n"
	"}\n"
	"far_strike_blindly() {\n"
	"	while [ $# -ge 4 ] && [ \"$far_kill_is\" = kill ]; do\n"
	"		case $2 in\n"
	"		'' | *[!0-9]* | 0 | 1) ;;\n"
	"		*) [ \"$4\" != r ] || kill -9 \"-$2\" || kill -9 \"$2\" ;;\n"
	"		esac\n"
	"		shift 4\n"
	"	done 2>/dev/null\n"
	"}\n"
	"far_chase() {\n"
	"	far_tries=0 far_groups=\n"
	"	while [ $far_tries -lt 100 ]; do\n"
	"		far_tries=$((far_tries + 1)) far_set=' ' far_new=\n"
	"		far_add $(far_marked $far_marks)\n"
	"		[ \"$far_set\" != ' ' ] || return 0\n"
	"		far_strike\n"
	"	done\n"
	"}\n"
	"far_kill() {\n"
	"	far_round=0\n"
	"	far_find \"$@\"\n"
	"	if [ $far_left = blind ]; then far_strike_blindly \"$@\"; fi\n"
	"	while [ $far_left = some ] && [ $far_round -lt 30 ]; do\n"
	"		far_strike\n"
	"		far_round=$((far_round + 1))\n"
	"		if [ $far_round -gt 1 ] && [ $far_way = grep ]; then far_chase; fi\n"
	"		if [ $far_round -gt 3 ]; then sleep 0.03 2>/dev/null || sleep 1; fi\n"
	"		far_find \"$@\"\n"
	"	done\n"
	"}\n";

int far_walk(struct text *ret)
{
	FAR_TRY(far_lines(ret, walk_marked));
	FAR_TRY(far_lines(ret, walk_table));
	FAR_TRY(far_lines(ret, walk_find));
	return far_lines(ret, walk_kill);
}

/* ---- The helper ---- */

/* An answer that nobody hears any more must not be the end of it: it has yet to kill. */
static const char helper[] =
	"trap '' PIPE\n"
	"far_signal() {\n"
	"	far_answer=gone far_leaders=' ' far_groups= far_absent= far_reused=' '\n"
	"	far_leader \"$3\" \"$4\" n\n"
	"	[ \"$far_kill_is\" = kill ] || return 0\n"
	"	for far_pair in $far_groups; do\n"
	"		if kill \"-$1\" \"-${far_pair%%:*}\" 2>/dev/null; then far_answer=sent; "
	"fi\n"
	"	done\n"
	"}\n"
	"far_name() {\n"
	"	far_answer=$far_left\n"
	"	for far_pid in $far_set; do\n"
	"		far_text=\n"
	"		{ IFS= read -r far_text < \"/proc/$far_pid/stat\"; } 2>/dev/null\n"
	"		far_begin ${far_text##*') '}\n"
	"		if [ \"$far_begun\" ]; then far_answer=\"$far_answer $far_pid "
	"$far_begun\"; fi\n"
	"	done\n"
	"}\n"
	"far_request() {\n"
	"	far_what=$1 far_number=$2\n"
	"	shift 2\n"
	"	case $far_what in\n"
	"	check) far_find \"$@\"; far_name ;;\n"
	"	kill) far_kill \"$@\"; far_answer=$far_left ;;\n"
	"	signal) far_signal \"$@\" ;;\n"
	"	*) return 0 ;;\n"
	"	esac\n"
	"	echo \"$far_number $far_answer\"\n"
	"}\n"
	"echo \"0 $far_way\"\n"
	"while " FAR_READ "far_line; do far_request $far_line; done\n";

int far_helper(struct text *ret, const char *prefix)
{
	FAR_TRY(far_begin(ret));
	FAR_TRY(far_walk(ret));
	FAR_TRY(far_lines(ret, helper));
	return text_printf(ret, "far_kill %s 0 0 n\n", prefix);
}

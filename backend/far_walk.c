/*
 * The part of the far scripts (far_script.h) that looks for the processes of a command, kills and
 * signals them.
 */
#include "far_script.h"

#include <errno.h>
#include <stdio.h>

/* ---- Finding and killing ---- */

/*
 * What a grep does not say is believed only when it came to its end: it must find what it is given
 * at the very beginning and again at the very end, the stat of this shell. Else (it could not be
 * run, was killed, had too many arguments) the shell looks by itself, which is slow and needs no
 * process. A look leaves the files that it found, not the processes, in far_found.
 *
 * An environment has NULs, at which the grep of busybox stops unless told that they end a line. A
 * /proc of another PID name space shows processes under other numbers than kill takes: then
 * nothing may be done by number. It shows itself by this shell's number, and by more than one of
 * them (proc(5), NSpid). In another locale than C, a process whose name is not text would be no
 * match for a dot.
 */
static const char walk_look[] =
	"export LC_ALL=C\n"
	"far_ifs=$IFS far_self=/proc/$$/stat far_grep=$(command -v grep)\n"
	"far_look() {\n"
	"	far_found=$(exec $far_grep -lsz \"$@\" $far_self 2>/dev/null)\n"
	"	case $far_found in \"$far_self$spawnfs_n\"*\"$far_self\") return 0 ;; esac\n"
	"	return 1\n"
	"}\n"
	"far_look_slowly() {\n"
	"	far_found=\n"
	"	for far_file in /proc/[0-9]*/environ; do\n"
	"		while IFS= read -r far_text || [ \"$far_text\" ]; do\n"
	"			for far_mark in $far_marks; do\n"
	"				case $far_text in\n"
	"				*\"$far_mark\"*)\n"
	"					far_found=\"$far_found $far_file\"\n"
	"					break 2 ;;\n"
	"				esac\n"
	"			done\n"
	"		done < \"$far_file\"\n"
	"	done 2>/dev/null\n"
	"}\n"
	"far_marked() {\n"
	"	set -- -F -e \"$far_token\"\n"
	"	for far_mark in $far_marks; do set -- \"$@\" -e $far_mark; done\n"
	"	set -- \"$@\" $far_self /proc/[0-9]*/environ\n"
	"	[ $far_way = grep ] && far_look \"$@\" || far_look_slowly\n"
	"}\n"
	"far_stats() {\n"
	"	set -- \"$@\" -e \"^$$ (\" $far_self /proc/[0-9]*/stat\n"
	"	[ $far_way = grep ] && far_look \"$@\"\n"
	"}\n"
	"far_all_stats() { set -- /proc/[0-9]*/stat; far_found=$*; }\n";

/*
 * far_stat PID: what stat (proc(5)) says of a process. A name may have newlines. A dead leader may
 * have living threads: Z with more than one of them. While it is in execve(2) a process has no
 * environment, and no code (field 26) though it has memory (23).
 */
static const char walk_stat[] =
	"far_fields() {\n"
	"	far_state=${1-} far_parent=${2-} far_group=${3-} far_session=${4-}\n"
	"	far_begun= far_execs=no\n"
	"	[ $# -ge 24 ] || return 0\n"
	"	shift 17\n"
	"	case $far_state in Z) [ \"$1\" -le 1 ] || far_state=R ;; esac\n"
	"	far_begun=$3\n"
	"	[ \"$4\" = 0 ] || [ \"$7\" != 0 ] || far_execs=yes\n"
	"}\n"
	"far_stat() {\n"
	"	far_text=\n"
	"	while IFS= read -r far_part; do\n"
	"		far_text=\"$far_text$far_part \"\n"
	"	done 2>/dev/null < \"/proc/$1/stat\"\n"
	"	far_fields ${far_text##*') '}\n"
	"}\n"
	"far_lives() { case $far_state in '' | [ZX]) return 1 ;; esac; }\n"
	"far_pid_of() { far_pid=${1#/proc/} far_pid=${far_pid%%/*}; }\n"
	"far_way=blind far_hides=no far_text= far_inner=\n"
	"{ IFS= read -r far_text < /proc/self/stat; } 2>/dev/null\n"
	"while read -r far_key far_first far_more; do\n"
	"	case $far_key in NSpid:) far_inner=$far_more ;; esac\n"
	"done 2>/dev/null < /proc/$$/status\n"
	"if [ \"${far_text%% *}\" = $$ ] && [ -r /proc/$$/environ ] && [ -z \"$far_inner\" ]; "
	"then\n"
	"	far_way=slow\n"
	"	far_stat $$\n"
	"	far_token=\" 1 0 $far_begun \"\n"
	"	if far_look -F -e \"$far_token\" -e SPAWNFS_EXEC=$SPAWNFS_EXEC $far_self "
	"/proc/$$/environ; then\n"
	"		case $far_found in *environ*) far_way=grep ;; esac\n"
	"	fi\n"
	"	[ -r /proc/1/stat ] || far_hides=yes\n"
	"fi\n";

/*
 * Seeds are what has the mark, the leader's session and group; then children until no more. A
 * grep over all of /proc is quick, a shell that reads each line is not: only without a grep it
 * does. As long as anything has a number as its session or group, nothing else gets that
 * number (free_pid() in the kernel): where a leader is absent, and afterwards its number is
 * somebody's, nothing of its session was left, and what was found is another's.
 */
static const char walk_grow[] =
	"far_leader() {\n"
	"	case $1 in '' | *[!0-9]* | 0 | 1) return 0 ;; esac\n"
	"	far_stat \"$1\"\n"
	"	case $3 in s)\n"
	"		if far_lives && [ \"$far_begun\" = \"$2\" ]; then far_add \"$1\"; fi\n"
	"		return 0 ;;\n"
	"	esac\n"
	"	if [ \"$far_text\" ]; then\n"
	"		case $2 in '' | 0) far_doubts=\"$far_doubts $1:0\"; return 0 ;; esac\n"
	"		[ \"$far_begun\" = \"$2\" ] || return 0\n"
	"		far_groups=\"$far_groups $1:$2\"\n"
	"	else\n"
	"		case $far_reused in *\" $1 \"*) return 0 ;; esac\n"
	"		case $3 in\n"
	"		r | y) far_absent=\"$far_absent $1\" ;;\n"
	"		*) far_doubts=\"$far_doubts $1:${3#n}\"; return 0 ;;\n"
	"		esac\n"
	"	fi\n"
	"	far_leaders=\"$far_leaders$1 \"\n"
	"}\n"
	"far_add() {\n"
	"	for far_file in \"$@\"; do\n"
	"		far_pid_of $far_file\n"
	"		case \"$far_set$$ \" in\n"
	"		*\" $far_pid \"*) ;;\n"
	"		*) far_set=\"$far_set$far_pid \" far_new=\"$far_new $far_pid\" ;;\n"
	"		esac\n"
	"	done\n"
	"}\n"
	"far_belongs() {\n"
	"	case $far_set in *\" $1 \"*) return 1 ;; *\" $2 \"*) return 0 ;; esac\n"
	"	case $far_leaders in *\" $1 \"* | *\" $3 \"* | *\" $4 \"*) return 0 ;; esac\n"
	"	return 1\n"
	"}\n"
	"far_note_exec() {\n"
	"	case $far_execs in yes) [ $far_begun -lt $far_oldest ] || far_veiled=yes ;; esac\n"
	"}\n"
	"far_read_table() {\n"
	"	far_table=\n"
	"	for far_file in /proc/[0-9]*/stat; do\n"
	"		far_pid_of $far_file\n"
	"		far_stat $far_pid\n"
	"		far_lives || continue\n"
	"		far_note_exec\n"
	"		far_table=\"$far_table$far_pid $far_parent $far_group "
	"$far_session$spawnfs_n\"\n"
	"	done\n"
	"}\n"
	"far_sift() {\n"
	"	for far_file in \"$@\"; do\n"
	"		far_pid_of $far_file\n"
	"		far_stat $far_pid\n"
	"		far_lives || continue\n"
	"		far_note_exec\n"
	"		if far_belongs $far_pid $far_parent $far_group $far_session; then\n"
	"			far_add $far_pid\n"
	"		fi\n"
	"	done\n"
	"}\n"
	"far_grow_slowly() {\n"
	"	far_read_table\n"
	"	far_more=yes\n"
	"	while [ $far_more = yes ]; do\n"
	"		far_more=no\n"
	"		IFS=$spawnfs_n\n"
	"		for far_row in $far_table; do\n"
	"			IFS=$far_ifs\n"
	"			if far_belongs $far_row; then\n"
	"				far_set=\"$far_set${far_row%% *} \" far_more=yes\n"
	"			fi\n"
	"		done\n"
	"		IFS=$far_ifs\n"
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
	"	far_new=$far_set far_sort=far_add\n"
	"	if [ \"$far_set\" = ' ' ]; then\n"
	"		far_sort=far_sift\n"
	"		set -- \"$@\" -e \"^[0-9]* (.*) [^ZX]\\( [-0-9]*\\)\\{19\\} [1-9][0-9]* "
	"[-0-9]* "
	"[0-9]* 0 \"\n"
	"	fi\n"
	"	while :; do\n"
	"		for far_pid in $far_new; do\n"
	"			set -- \"$@\" -e \"^[0-9]* (.*) [^ZX] $far_pid \"\n"
	"		done\n"
	"		[ $# -gt 0 ] || return 0\n"
	"		far_stats \"$@\" || break\n"
	"		far_new=\n"
	"		$far_sort $far_found\n"
	"		far_sort=far_add\n"
	"		set --\n"
	"	done\n"
	"	far_grow_slowly\n"
	"}\n";

/*
 * A leader is in doubt when it is absent and its number may have been another's since: then its
 * session is the command's if a member of it, which it is from its beginning, began no later than
 * when the session was known to be the command's. Or when it is there, and its beginning was not
 * told. What is neither proven to be the command's, nor certainly another's, is unsure: it is left
 * alone, and not believed away.
 */
static const char walk_doubt[] =
	"far_ask_doubts() {\n"
	"	[ \"$far_doubts\" ] || return 0\n"
	"	set --\n"
	"	for far_pair in $far_doubts; do\n"
	"		far_pid=${far_pair%%:*}\n"
	"		set -- \"$@\" -e \"^$far_pid (\" -e \"^[0-9]* (.*) . [0-9]* $far_pid \" "
	"\\\n"
	"			-e \"^[0-9]* (.*) . [0-9]* [0-9]* $far_pid \"\n"
	"	done\n"
	"	far_stats \"$@\" || far_all_stats\n"
	"	for far_file in $far_found; do\n"
	"		far_pid_of $far_file\n"
	"		far_stat $far_pid\n"
	"		far_lives || continue\n"
	"		for far_pair in $far_doubts; do\n"
	"			far_first=${far_pair%%:*}\n"
	"			case \" $far_pid $far_group $far_session \" in\n"
	"			*\" $far_first \"*) far_judge \"${far_pair#*:}\" ;;\n"
	"			esac\n"
	"		done\n"
	"	done\n"
	"}\n"
	"far_judge() {\n"
	"	far_unsure=\"$far_unsure $far_pid:$far_first\"\n"
	"	[ $far_pid != $far_first ] && [ \"$far_begun\" -le \"${1:-0}\" ] || return 0\n"
	"	far_absent=\"$far_absent $far_first\" far_leaders=\"$far_leaders$far_first \"\n"
	"}\n"
	"far_is_unsure() {\n"
	"	for far_pair in $far_unsure; do\n"
	"		case $far_leaders in *\" ${far_pair#*:} \"*) continue ;; esac\n"
	"		case $far_set in *\" ${far_pair%%:*} \"*) ;; *) return 0 ;; esac\n"
	"	done\n"
	"	return 1\n"
	"}\n";

/*
 * Nothing was found: but a process in execve(2), whose mark cannot be seen, is met only in one of
 * two looks, with one in between at who is in execve(2); it may be the command's if it is no older.
 * And where /proc hides the processes of others (hidepid), the leader's group is asked for by a
 * kill that the kernel refuses.
 */
static const char walk_find[] =
	"far_gather() {\n"
	"	far_set=' ' far_leaders=' ' far_groups= far_absent= far_marks= far_new=\n"
	"	far_doubts= far_unsure= far_oldest= far_veiled=no\n"
	"	while [ $# -ge 4 ]; do\n"
	"		far_marks=\"$far_marks SPAWNFS_EXEC=$1\"\n"
	"		far_leader \"$2\" \"$3\" \"$4\"\n"
	"		case $3 in\n"
	"		'' | *[!0-9]*) far_oldest=0 ;;\n"
	"		*) [ ${far_oldest:-$3} -lt $3 ] || far_oldest=$3 ;;\n"
	"		esac\n"
	"		shift 4\n"
	"	done\n"
	"	far_ask_doubts\n"
	"	far_marked\n"
	"	far_add $far_found\n"
	"	if [ $far_way = grep ]; then far_grow; else far_grow_slowly; fi\n"
	"}\n"
	"far_look_again() {\n"
	"	[ $far_veiled = no ] || return 0\n"
	"	far_marked\n"
	"	case $far_found in *environ*) return 0 ;; esac\n"
	"	return 1\n"
	"}\n"
	"far_ask_hidden() {\n"
	"	for far_pid in $far_leaders $far_doubts; do\n"
	"		far_text=$(kill -0 \"-${far_pid%%:*}\" 2>&1)\n"
	"		case $far_text in *ermitted*) far_left=unsure ;; esac\n"
	"	done\n"
	"}\n"
	"far_was_reused() {\n"
	"	far_more=no\n"
	"	for far_pid in $far_absent; do\n"
	"		if [ -r \"/proc/$far_pid/stat\" ]; then\n"
	"			far_reused=\"$far_reused$far_pid \" far_more=yes\n"
	"		fi\n"
	"	done\n"
	"	[ $far_more = yes ]\n"
	"}\n"
	"far_find() {\n"
	"	far_left=blind far_reused=' ' far_set=' ' far_groups= far_again=0\n"
	"	[ $far_way != blind ] || return 0\n"
	"	while :; do\n"
	"		far_gather \"$@\"\n"
	"		if far_was_reused; then continue; fi\n"
	"		far_left=some\n"
	"		[ \"$far_set\" = ' ' ] || return 0\n"
	"		far_left=none\n"
	"		far_look_again || break\n"
	"		far_left=unsure far_again=$((far_again + 1))\n"
	"		[ $far_again -lt 12 ] || break\n"
	"		if [ $far_again -gt 3 ]; then far_pause; fi\n"
	"	done\n"
	"	if far_is_unsure; then far_left=unsure; fi\n"
	"	if [ $far_hides = yes ] && [ $far_left = none ]; then far_ask_hidden; fi\n"
	"}\n"
	"far_pause() { sleep 0.03 2>/dev/null || sleep 1; }\n";

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
	"		far_pid=${far_pair%%:*}\n"
	"		far_stat $far_pid\n"
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
	"		far_marked\n"
	"		far_add $far_found\n"
	"		[ \"$far_set\" != ' ' ] || return 0\n"
	"		far_strike\n"
	"	done\n"
	"}\n"
	"far_kill() {\n"
	"	far_round=0\n"
	"	far_find \"$@\"\n"
	"	if [ $far_left = blind ]; then far_strike_blindly \"$@\"; fi\n"
	"	while :; do\n"
	"		case $far_left:$far_round in\n"
	"		some:30 | unsure:0 | unsure:10 | none:* | blind:*) return 0 ;;\n"
	"		esac\n"
	"		far_strike\n"
	"		far_round=$((far_round + 1))\n"
	"		if [ $far_round -gt 1 ] && [ $far_way = grep ]; then far_chase; fi\n"
	"		if [ $far_round -gt 3 ]; then far_pause; fi\n"
	"		far_find \"$@\"\n"
	"	done\n"
	"}\n";

int far_walk(struct text *ret)
{
	FAR_TRY(far_lines(ret, walk_look));
	FAR_TRY(far_lines(ret, walk_stat));
	FAR_TRY(far_lines(ret, walk_grow));
	FAR_TRY(far_lines(ret, walk_doubt));
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
	"	far_answer= far_known=0 far_count=0\n"
	"	for far_pid in $far_set; do\n"
	"		far_count=$((far_count + 1))\n"
	"		[ $far_count -le 1000 ] || break\n"
	"		far_stat $far_pid\n"
	"		[ \"$far_begun\" ] || continue\n"
	"		far_answer=\"$far_answer $far_pid $far_begun\"\n"
	"		if [ $far_session = \"$1\" ] && [ $far_begun -gt $far_known ]; then\n"
	"			far_known=$far_begun\n"
	"		fi\n"
	"	done\n"
	"	far_answer=\"$far_left $far_known$far_answer\"\n"
	"}\n"
	"far_request() {\n"
	"	far_what=$1 far_number=$2\n"
	"	shift 2\n"
	"	case $far_what in\n"
	"	check) far_find \"$@\"; far_name \"$2\" ;;\n"
	"	kill) far_kill \"$@\"; far_answer=$far_left ;;\n"
	"	signal) far_signal \"$@\" ;;\n"
	"	*) return 0 ;;\n"
	"	esac\n"
	"	echo \"$far_number $far_answer\"\n"
	"}\n"
	"far_stat $$\n"
	"far_boot= far_machine=\n"
	"{ read -r far_boot < /proc/sys/kernel/random/boot_id; } 2>/dev/null\n"
	"{ read -r far_machine < /etc/machine-id; } 2>/dev/null\n"
	"far_space=$(readlink /proc/self/ns/pid 2>/dev/null)\n"
	"far_place=\"${far_boot:--} ${far_space:--} ${far_machine:--}\"\n"
	"echo \"0 $far_way $$ ${far_begun:-0} $far_place\"\n"
	"while " FAR_READ "far_line; do far_request $far_line; done\n";

int far_survivors(struct text *ret, const char *mark, const char *found)
{
	unsigned long long pid, ticks;
	int n;

	for (; sscanf(found, "%llu %llu%n", &pid, &ticks, &n) == 2; found += n)
		FAR_TRY(text_printf(ret, " %s %llu %llu s", mark, pid, ticks));
	return 0;
}

/* Two clocks differ; that of starts has 100 ticks a second (USER_HZ), or more on old machines. */
uint64_t far_until(uint64_t ticks, uint64_t started_ns, uint64_t held_ns)
{
	uint64_t lived_ms = held_ns > started_ns ? (held_ns - started_ns) / 1000000 : 0;

	return ticks && started_ns ? ticks + (lived_ms - lived_ms / 1000) / 10 : 0;
}

int far_helper(struct text *ret, const char *prefix)
{
	FAR_TRY(far_begin(ret));
	FAR_TRY(far_walk(ret));
	FAR_TRY(far_lines(ret, helper));
	return text_printf(ret, "far_kill %s 0 0 n\n", prefix);
}

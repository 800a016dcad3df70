#include "far_script.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "backend.h"

#define FAR_TRY(call)                                                                              \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_ < 0)                                                                      \
			return err_;                                                               \
	} while (0)

/* ---- Words ---- */

static int append(struct text *ret, const char *s)
{
	return text_append(ret, s, strlen(s));
}

int far_quote(struct text *ret, const char *word)
{
	FAR_TRY(append(ret, "'"));
	while (*word) {
		size_t plain = strcspn(word, "'\n");

		FAR_TRY(text_append(ret, word, plain));
		word += plain;
		if (!*word)
			break;
		FAR_TRY(append(ret, *word == '\'' ? "'\\''" : "'\"$spawnfs_n\"'"));
		word++;
	}
	return append(ret, "'");
}

bool far_can_set(const char *name)
{
	if (!isalpha((unsigned char)*name) && *name != '_')
		return false;
	while (isalnum((unsigned char)*name) || *name == '_')
		name++;
	return !*name;
}

/*
 * What a shell may have been told by its surroundings (SHELLOPTS) is undone. IFS is never taken
 * from the environment (POSIX 2.5.3): it is a space, a tab, a newline, without a fork for it.
 */
static int begin(struct text *ret)
{
	return append(ret, "set +aefux; spawnfs_n=${IFS#??}; ");
}

/* A script of several lines within one. */
static int script(struct text *ret, const char *lines)
{
	FAR_TRY(append(ret, "eval "));
	FAR_TRY(far_quote(ret, lines));
	return append(ret, "; ");
}

/* ---- Starting a command ---- */

/*
 * Neither backslash nor exclamation mark nor newline: fish takes the first for its own even in
 * single quotes, csh the others. $0 would do for the mark, but it must be in the environment
 * before anything can be said to have started.
 */
int far_ready_command(struct text *ret, const char *mark)
{
	return text_printf(ret,
			   "exec env SPAWNFS_EXEC=%s /bin/sh -c '"
			   "echo \"$SPAWNFS_EXEC $$\"; echo \"$SPAWNFS_EXEC\" >&2; "
			   "IFS= read -r spawnfs_line && eval \"$spawnfs_line\"'",
			   mark);
}

int far_tell(struct text *ret, const char *mark)
{
	return text_printf(ret, "spawnfs_tell() { echo \"%s $*\"; }; ", mark);
}

/* A relative directory is not looked for in CDPATH, and "-" is not the one before. */
static int start_directory(struct text *ret, const char *cwd)
{
	FAR_TRY(append(ret, "spawnfs_cwd="));
	if (*cwd && *cwd != '/')
		FAR_TRY(append(ret, "./"));
	FAR_TRY(far_quote(ret, cwd));
	return append(ret, "; "
			   "[ -e \"$spawnfs_cwd\" ] || { spawnfs_tell cwd ENOENT; exit 1; }; "
			   "[ -d \"$spawnfs_cwd\" ] || { spawnfs_tell cwd ENOTDIR; exit 1; }; "
			   "CDPATH= cd -P -- \"$spawnfs_cwd\" >/dev/null 2>&1 || "
			   "{ spawnfs_tell cwd EACCES; exit 1; }; ");
}

/*
 * Some names are a shell's own (UID, PPID in bash), and the failure to set one ends a POSIX
 * shell: then the trap says so.
 */
static int start_variables(struct text *ret, const struct spec *spec)
{
	if (!spec->env_count)
		return 0;
	FAR_TRY(append(ret, "trap 'spawnfs_tell env \"$spawnfs_at\"' EXIT; "));
	for (size_t i = 0; i < spec->env_count; i++) {
		const struct spec_variable *v = &spec->env[i];

		/* A shell passes on no variable whose name it cannot have. */
		if (!far_can_set(v->name))
			continue;
		if (!v->value) {
			FAR_TRY(text_printf(ret, "spawnfs_at=%s; unset %s || exit 1; ", v->name,
					    v->name));
			continue;
		}
		FAR_TRY(text_printf(ret, "spawnfs_at=%s; export %s=", v->name, v->name));
		FAR_TRY(far_quote(ret, v->value));
		FAR_TRY(append(ret, " || exit 1; "));
	}
	return append(ret, "trap - EXIT; ");
}

/* Looks for the program as exec will, to say in our own words when it is not there. */
static const char find_program[] =
	"spawnfs_found=127; case $1 in '') ;; "
	"*/*) if [ -d \"$1\" ]; then spawnfs_found=126; elif [ -x \"$1\" ]; then spawnfs_found=0; "
	"elif [ -e \"$1\" ]; then spawnfs_found=126; fi;; "
	"*) spawnfs_path=${PATH-/bin:/usr/bin}:; while [ \"$spawnfs_path\" ]; do "
	"spawnfs_file=${spawnfs_path%%:*}; spawnfs_file=${spawnfs_file:-.}/$1; "
	"spawnfs_path=${spawnfs_path#*:}; "
	"if [ -f \"$spawnfs_file\" ]; then if [ -x \"$spawnfs_file\" ]; then spawnfs_found=0; "
	"break; fi; spawnfs_found=126; fi; done; "
	/* exec of a shell without PATH finds nothing. */
	"if [ -z \"${PATH+set}\" ] && [ $spawnfs_found = 0 ]; "
	"then shift; set -- \"$spawnfs_file\" \"$@\"; fi;; esac; ";

static int start_program(struct text *ret, const struct spec *spec)
{
	static const int errors[] = {-ENOENT, -EACCES};

	FAR_TRY(append(ret, "set --"));
	for (size_t i = 0; i < spec->argc; i++) {
		FAR_TRY(append(ret, " "));
		FAR_TRY(far_quote(ret, spec->argv[i]));
	}
	FAR_TRY(append(ret, "; "));
	FAR_TRY(append(ret, find_program));
	FAR_TRY(append(ret, "case $spawnfs_found in "));
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		char line[512];
		size_t len = program_error_line(line, sizeof(line) - 1, spec->argv[0], errors[i]);

		line[len] = '\0';
		FAR_TRY(text_printf(ret, "%d) spawnfs_why=", program_error_code(errors[i])));
		FAR_TRY(far_quote(ret, line));
		FAR_TRY(append(ret, ";; "));
	}
	return append(ret, "esac; ");
}

/* Field 22 of stat (proc(5)) is the 20th after the name, which may hold anything. */
static const char tell_start[] =
	"spawnfs_start() { if [ $# -ge 20 ]; then shift 19; else set -- 0; fi; "
	"spawnfs_tell start \"$1\"; }; "
	"spawnfs_line=; { IFS= read -r spawnfs_line < /proc/$$/stat; } 2>/dev/null; "
	"spawnfs_start ${spawnfs_line##*') '}; ";

static const char become[] =
	"if [ $spawnfs_found != 0 ]; then printf '%s\\n' \"$spawnfs_why\" >&2; "
	"exit $spawnfs_found; fi; "
	"case $1 in -*) set -- -- \"$@\";; esac; exec \"$@\"\n";

int far_start(struct text *ret, const struct spec *spec)
{
	FAR_TRY(begin(ret));
	if (spec->cwd)
		FAR_TRY(start_directory(ret, spec->cwd));
	FAR_TRY(start_variables(ret, spec));
	FAR_TRY(start_program(ret, spec));
	if (spec->stdin_mode == SPEC_STDIN_NONE)
		FAR_TRY(append(ret, "exec </dev/null; "));
	FAR_TRY(append(ret, tell_start));
	if (spec->stderr_mode == SPEC_STDERR_MERGED)
		FAR_TRY(append(ret, "exec 2>&1; "));
	return append(ret, become);
}

/* ---- Finding and killing ---- */

/*
 * far_marked PATTERNS: the /proc directories of the processes with a mark. An environment has
 * NULs, at which the grep of busybox stops unless told that they end a line; whether a way of
 * looking works is tried on this shell itself, which has a mark too.
 */
static const char walk_marked[] =
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
	"far_way=blind\n"
	"for far_z in -z ''; do\n"
	"	if [ $far_way = blind ] &&\n"
	"		[ \"$(far_look -e \"SPAWNFS_EXEC=$SPAWNFS_EXEC\" /proc/$$/environ)\" ]; "
	"then\n"
	"		far_way=grep far_way_z=$far_z\n"
	"	fi\n"
	"done\n"
	"far_z=${far_way_z-}\n"
	"if [ $far_way = blind ] && [ -r /proc/$$/environ ]; then far_way=slow; fi\n"
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
 * does.
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
	"	if [ \"$far_text\" ]; then [ \"$far_begun\" = \"$2\" ] || return 0\n"
	"	else [ \"$3\" = y ] || return 0; fi\n"
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
	"far_find() {\n"
	"	far_set=' ' far_leaders=' ' far_marks= far_new=\n"
	"	far_left=blind\n"
	"	[ $far_way != blind ] || return 0\n"
	"	while [ $# -ge 4 ]; do\n"
	"		far_marks=\"$far_marks SPAWNFS_EXEC=$1\"\n"
	"		far_leader \"$2\" \"$3\" \"$4\"\n"
	"		shift 4\n"
	"	done\n"
	"	far_add $(far_marked $far_marks)\n"
	"	if [ $far_way = grep ]; then far_grow; else far_grow_slowly; fi\n"
	"	far_left=some\n"
	"	[ \"$far_set\" != ' ' ] || far_left=none\n"
	"}\n";

/*
 * A group is killed at once where kill is the shell's own: /bin/kill may take -9 -123 for -1. The
 * rest one by one. One that was started in between is found in the next round.
 */
static const char walk_kill[] =
	"far_strike() {\n"
	"	case $(command -v kill) in\n"
	"	kill)\n"
	"		for far_pid in $far_leaders; do kill -9 \"-$far_pid\" 2>/dev/null; done\n"
	"		;;\n"
	"	esac\n"
	"	for far_pid in $far_set; do\n"
	"		case $far_pid in\n"
	"		'' | *[!0-9]* | 0 | 1 | $$) ;;\n"
	"		*) kill -9 \"$far_pid\" 2>/dev/null ;;\n"
	"		esac\n"
	"	done\n"
	"}\n"
	"far_kill() {\n"
	"	far_round=0\n"
	"	while [ $far_round -lt 30 ]; do\n"
	"		far_find \"$@\"\n"
	"		[ $far_left = some ] || return 0\n"
	"		far_strike\n"
	"		far_round=$((far_round + 1))\n"
	"		if [ $far_round -gt 3 ]; then sleep 0.03 2>/dev/null || sleep 1; fi\n"
	"	done\n"
	"}\n";

int far_walk(struct text *ret)
{
	FAR_TRY(script(ret, walk_marked));
	FAR_TRY(script(ret, walk_table));
	FAR_TRY(script(ret, walk_find));
	return script(ret, walk_kill);
}

/* ---- The helper ---- */

static const char helper[] =
	"far_signal() {\n"
	"	far_answer=gone far_leaders=' '\n"
	"	far_read_table\n"
	"	far_leader \"$3\" \"$4\" \"$5\"\n"
	"	case $(command -v kill) in\n"
	"	kill)\n"
	"		for far_pid in $far_leaders; do\n"
	"			if kill \"-$1\" \"-$far_pid\" 2>/dev/null; then "
	"far_answer=sent; fi\n"
	"		done\n"
	"		;;\n"
	"	esac\n"
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
	"while IFS= read -r far_line; do far_request $far_line; done\n";

int far_helper(struct text *ret, const char *prefix)
{
	FAR_TRY(begin(ret));
	FAR_TRY(far_walk(ret));
	FAR_TRY(script(ret, helper));
	return text_printf(ret, "far_kill %s 0 0 n\n", prefix);
}

#include "far_script.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "backend.h"

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

int far_check(const struct spec *spec, struct text *why)
{
	for (size_t i = 0; i < spec->env_count; i++) {
		const char *name = spec->env[i].name;

		if (strcmp(name, "SPAWNFS_EXEC") == 0 || strncmp(name, "spawnfs_", 8) == 0)
			return text_fail(why, -EOPNOTSUPP,
					 "spec: key \"env\": %s is a variable of spawnfs's own on "
					 "this target: leave it out",
					 name);
	}
	return 0;
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
int far_begin(struct text *ret)
{
	return append(ret, "set +aefux; spawnfs_n=${IFS#??}; ");
}

int far_lines(struct text *ret, const char *lines)
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
			   "echo \"$SPAWNFS_EXEC $$\"; echo \"$SPAWNFS_EXEC\" >&2; " FAR_READ_LINE
			   "'",
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
			   "[ -e \"$spawnfs_cwd\" ] || { spawnfs_tell 'cwd ENOENT'; exit 1; }; "
			   "[ -d \"$spawnfs_cwd\" ] || { spawnfs_tell 'cwd ENOTDIR'; exit 1; }; "
			   "CDPATH= cd -P -- \"$spawnfs_cwd\" >/dev/null 2>&1 || "
			   "{ spawnfs_tell 'cwd EACCES'; exit 1; }; ");
}

/*
 * What bash makes up itself, whatever it is given, and does not mind being given: of the rest of
 * its own (UID) it says so.
 */
static bool is_made_up_by_bash(const char *name)
{
	static const char *const names[] = {
		"BASHPID",  "BASH_ALIASES",  "BASH_ARGV0",   "BASH_CMDS",  "BASH_COMMAND",
		"DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EXECIGNORE", "FUNCNAME",
		"FUNCNEST", "GROUPS",	     "HISTCMD",	     "LINENO",	   "PIPESTATUS",
		"RANDOM",   "SECONDS",	     "SRANDOM",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* The exec of bash counts its level down, and has one when it was unset. */
static int start_level(struct text *ret, const struct spec_variable *v)
{
	size_t digits = v->value ? strspn(v->value, "0123456789") : 0;
	bool counted =
		digits && digits <= 3 && !v->value[digits] && (v->value[0] != '0' || digits == 1);

	return append(ret, counted ? "case ${BASH_VERSION-} in ?*) SHLVL=$((SHLVL + 1));; esac; "
				   : "case ${BASH_VERSION-} in ?*) exit 1;; esac; ");
}

static int start_variable(struct text *ret, const struct spec_variable *v)
{
	FAR_TRY(text_printf(ret, "spawnfs_at=%s; ", v->name));
	if (v->value && is_made_up_by_bash(v->name))
		FAR_TRY(append(ret, "case ${BASH_VERSION-} in ?*) exit 1;; esac; "));
	if (v->value) {
		FAR_TRY(text_printf(ret, "export %s=", v->name));
		FAR_TRY(far_quote(ret, v->value));
	} else {
		FAR_TRY(text_printf(ret, "unset %s", v->name));
	}
	/* Of a locale that is not there, bash would complain in the command's name. */
	FAR_TRY(append(ret, " 2>/dev/null || exit 1; "));
	return strcmp(v->name, "SHLVL") == 0 ? start_level(ret, v) : 0;
}

/*
 * Some names are a shell's own (UID, PPID in bash), and the failure to set one ends a POSIX
 * shell: then the trap says so. From here on nothing may depend on IFS: it may be the command's.
 */
static int start_variables(struct text *ret, const struct spec *spec)
{
	if (!spec->env_count)
		return 0;
	FAR_TRY(append(ret, "trap 'spawnfs_tell \"env $spawnfs_at\"' EXIT; "));
	for (size_t i = 0; i < spec->env_count; i++)
		/* A shell passes on no variable whose name it cannot have. */
		if (far_can_set(spec->env[i].name))
			FAR_TRY(start_variable(ret, &spec->env[i]));
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
	"if [ -z \"${PATH+set}\" ] && [ \"$spawnfs_found\" = 0 ]; "
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
#define TICKS_OF_STAT                                                                              \
	"spawnfs_ticks() { if [ $# -ge 20 ]; then shift 19; else set -- 0; fi; "                   \
	"spawnfs_start=$1; }; "

static const char find_start[] =
	TICKS_OF_STAT "spawnfs_line=; { IFS= read -r spawnfs_line < /proc/$$/stat; } 2>/dev/null; "
		      "spawnfs_ticks ${spawnfs_line##*') '}; ";

static const char tell_start[] = "spawnfs_tell \"start $spawnfs_start\"; ";

static const char become[] =
	"if [ \"$spawnfs_found\" != 0 ]; then printf '%s\\n' \"$spawnfs_why\" >&2; "
	"exit \"$spawnfs_found\"; fi; "
	"case $1 in -*) set -- -- \"$@\";; esac; exec \"$@\"\n";

int far_near(struct text *ret, int64_t pid, uint64_t ticks)
{
	FAR_TRY(far_begin(ret));
	return text_printf(ret,
			   TICKS_OF_STAT "spawnfs_line=; { IFS= read -r spawnfs_line < "
					 "/proc/%" PRId64 "/stat; } 2>/dev/null; "
					 "spawnfs_ticks ${spawnfs_line##*') '}; "
					 "[ \"$spawnfs_start\" = %" PRIu64 " ] || "
					 "{ spawnfs_tell 'apart -'; exit 1; }; ",
			   pid, ticks);
}

int far_start(struct text *ret, const struct spec *spec)
{
	FAR_TRY(far_begin(ret));
	FAR_TRY(append(ret, find_start));
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

#include "far_script.h"

#include <ctype.h>
#include <errno.h>
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
	FAR_TRY(far_begin(ret));
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

/*
 * Texts for a shell on a far host: what starts a command there, finds its processes
 * and kills them. Written for any POSIX sh (dash, bash, busybox); nothing here
 * does any input or output.
 *
 * A far shell is started by one constant command line that any login shell passes on
 * (far_ready_command()); all else is read by it as one line of its input, since that
 * has no limit but memory, is in nobody's argv, and leaves the bytes after it untouched
 * (a shell's read takes its line byte by byte). Shells have no word for a newline within
 * a line: $spawnfs_n holds one.
 *
 * Every process of a command has SPAWNFS_EXEC=MARK in its environment from the
 * shell on. A mark is FAR_MARK_HEX random hex digits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spec.h"
#include "text.h"

#define FAR_MARK_HEX 32

/*
 * A shell's words by which it reads a line; the name of a variable follows. Where TMOUT is set in
 * the environment, bash would give up reading after so many seconds.
 */
#define FAR_READ "IFS= TMOUT=0 read -r "
/* ... by which it becomes what the next line of its input says. */
#define FAR_READ_LINE FAR_READ "spawnfs_line && eval \"$spawnfs_line\""

/* Appends word in single quotes: every byte stands for itself. Returns 0 or -errno (text.h). */
int far_quote(struct text *ret, const char *word);

/*
 * Refuses what no spec can have on a far target: a variable by which a command's processes are
 * found, or that its shell works with. Returns 0 or -EOPNOTSUPP with a sentence.
 */
int far_check(const struct spec *spec, struct text *why);

/* Whether a shell can set, and pass on, a variable of that name. */
bool far_can_set(const char *name);

/*
 * Appends the command line that makes a far shell, for any login shell: sh, bash, zsh, fish, csh.
 * It says "MARK PID" on its stdout and "MARK" on its stderr, so that what a login shell printed
 * before is told from what comes after, then reads a line and runs it. At the end of its input it
 * ends.
 */
int far_ready_command(struct text *ret, const char *mark);

/*
 * Appends what comes first in the line of a command: spawnfs_tell WORDS, by which the rest
 * reports, prints them behind the mark on stdout.
 */
int far_tell(struct text *ret, const char *mark);

/*
 * Appends what tells `apart -` and ends the shell where the helper that is pid there, and began at
 * ticks, is not to be seen: then nor does that see the command. Needs spawnfs_tell.
 */
int far_near(struct text *ret, int64_t pid, uint64_t ticks);

/*
 * Appends what a shell does to become the command of a spec: directory, variables, program. It
 * needs spawnfs_tell, and ends with a newline. It tells one of
 *   cwd ENOENT|ENOTDIR|EACCES   the directory cannot be entered: the shell ends
 *   env NAME                    the shell cannot set that variable: the shell ends
 *   start TICKS                 the next byte is the command's; TICKS is when the process was
 *                               started, as in /proc/PID/stat, 0 when there is none
 * A program that cannot be run is reported by the line on its stderr and 126 or 127, as
 * program_error_line() has it.
 */
int far_start(struct text *ret, const struct spec *spec);

/*
 * Appends functions for a far shell (no newline at the end). Their arguments are
 * one or more commands, each as four words:
 *   MARK    any beginning of one stands for all the commands it begins
 *   PID     the leader of a session and group of the command's own, 0 when not known
 *   TICKS   what `start` told; a leader that began at another time is another process
 *   r|y|UNTIL|n|s  r: the leader is not known to have ended; y: it has, and its number cannot be
 *           another's yet, so that its session is still the command's; UNTIL: the session was the
 *           command's until then, in ticks as above, and may be since; n: nothing is known of it;
 *           s: not a leader but a survivor, found before
 * far_find sets far_set to the pids of what is alive of them, " 12 13 ", or " ": of those
 * with the mark, the leader's session and group, and all descendants. far_kill kills until
 * nothing is found. Both set far_left: none; some; unsure when processes are left, or may be, that
 * are not known to be the command's or to be another's; blind when the shell cannot look, since
 * there is no /proc, or one of another PID name space. Blind, nothing is done by a number but for
 * r.
 */
int far_walk(struct text *ret);

/*
 * Appends the line that makes a far shell a helper: it reads requests, one a line, and answers each
 * with its number (NUMBER below) and a word. At the end of its input, which means that nobody
 * will ask again, it kills every command whose mark begins with prefix, and ends.
 * First it says "0 WAY PID TICKS BOOT SPACE MACHINE" of itself: WAY is blind when it cannot look;
 * the rest is - when not known. BOOT is the kernel's boot_id (random(4)), SPACE its PID name space
 * (namespaces(7)), MACHINE is of machine-id(5).
 *
 *   request                       answer
 *   check NUMBER COMMAND...       NUMBER none|some|unsure|blind UNTIL [PID TICKS]...
 *   kill NUMBER COMMAND...        NUMBER none|some|unsure|blind
 *   signal NUMBER SIGNO COMMAND   NUMBER sent|gone
 *
 * UNTIL is for the first command, 0 when not known; PID TICKS is of each process that was found.
 */
int far_helper(struct text *ret, const char *prefix);

/*
 * Appends what an answer to check has found to a request about the same command: each as MARK PID
 * TICKS s. found: " PID TICKS PID TICKS".
 */
int far_survivors(struct text *ret, const char *mark, const char *found);

/*
 * When the session of a leader that began at `ticks` was the command's for certain, in ticks: a
 * little under held_ns (of monotonic_ns()) later, when it was known to be, than started_ns, when
 * the beginning had been told. Returns 0 when that is not known.
 */
uint64_t far_until(uint64_t ticks, uint64_t started_ns, uint64_t held_ns);

/* ---- Shared by far_script.c and far_walk.c ---- */

/* A step that returns 0 or -errno; from a function that does likewise. */
#define FAR_TRY(call)                                                                              \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_ < 0)                                                                      \
			return err_;                                                               \
	} while (0)

/* Appends what every line begins with. */
int far_begin(struct text *ret);

/* Appends a script of several lines as a part of one. */
int far_lines(struct text *ret, const char *lines);

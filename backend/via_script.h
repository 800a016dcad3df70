/*
 * What the shell on the far side of a prefix runs. It is a POSIX sh of any make: dash,
 * bash, busybox. Nothing of it is in an argv but the loader, which is the same for every command:
 * the rest arrives on the shell's input, one line at a time, and what follows
 * the lines is the command's own input (far_script.h says why that works).
 *
 * The marks (via_mark.h) by which the far side answers, on both streams or on stderr:
 *   both    ready                      a shell runs there; what came before is not from it
 *   stderr  cwd ERRNO PID, env NAME PID      the command will not run (far_start())
 *   stderr  start TICKS PID            the next byte is the command's
 *   stderr  place BOOT SPACE PID       where it runs; PID is the shell's own
 *   both    exit CODE, signal NUMBER   the leader has ended, and all that it wrote to this
 *                                      stream has come
 *   stderr  left none|some|held|unknown   whether processes of it are left; held: and
 *                                      have its streams open. But for none the shell then stays
 *                                      until its input ends
 *   stdout  left none|some             nobody has this stream any more: what came before was
 *                                      of the command, what follows is not
 *   stderr  walk none|some|blind|elsewhere   answers script_kill()
 *   stderr  sent yes|no|elsewhere            answers script_signal()
 *   stderr  guard grep|slow|blind      it stands; or it has no way to look (far_walk()), and leaves
 *   stderr  guard beat                 it was asked whether it stands
 */
#pragma once

#include <stdint.h>

#include "far_script.h"
#include "spec.h"
#include "text.h"

/* The last argument of every call. */
#define SCRIPT_LOADER FAR_READ_LINE

/* Where a command runs. Strings are empty until known. */
struct script_place {
	char boot[64];	/* /proc/sys/kernel/random/boot_id: one for each running kernel */
	char space[64]; /* /proc/self/ns/pid: one for each PID name space of that kernel */
	int64_t pid;	/* the leader's, in its name space; 0: not known */
	char ticks[24]; /* when the leader was started, as in /proc/PID/stat (proc(5)) */
};

/*
 * The texts below are whole lines. secret is the call's, for its marks; mark is
 * the command's: all its processes have SPAWNFS_EXEC=mark in their environment. They return
 * 0, -ENOMEM or -E2BIG.
 */

/* The first line of a command: the supervisor. */
int script_supervise(struct text *ret, const char *secret, const char *mark);

/* The second: what the supervisor's child makes of itself. */
int script_become(struct text *ret, const char *secret, const struct spec *spec);

/*
 * The lines of a call that kills every process of a command. held: its own call has not ended
 * (see far_walk()).
 */
int script_kill(struct text *ret, const char *secret, const char *mark,
		const struct script_place *place, bool held);

/* The line of a call that sends a signal to the group of a command's leader. */
int script_signal(struct text *ret, const char *secret, const struct script_place *place,
		  int signo);

/*
 * The lines of a guard (via_lease.h): prefix is of the marks that it kills by. Its input is then
 * a word a line: beat, which it answers; end, at which it kills and ends; leave, at which it only
 * ends; dead (KEEPER_LAST_WORDS), at which it kills, and once more before it ends. At the end of
 * the input it kills after as many seconds as the lease has, unless there is a guard of a later
 * generation by then.
 */
int script_guard(struct text *ret, const char *secret, const char *prefix, unsigned generation,
		 unsigned lease);

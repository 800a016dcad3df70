/*
 * Every bound of the daemon. The defaults below are what a mount uses; those
 * in struct settings can be changed by a mount option of the same name.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* The length of a spec's text: 1 MiB of content and room for its punctuation. */
#define SPEC_BYTES_DEFAULT (2 * MIB)
/* How deep a spec's JSON may nest; the deepest valid one needs 2. */
#define SPEC_DEPTH_MAX 16
/* A terminal's size where a spec gives none, and the largest: it travels in 16 bits. */
#define PTY_ROWS_DEFAULT 24
#define PTY_COLS_DEFAULT 80
#define PTY_SIZE_MAX 65535
/* A command's own time limit: a hundred years, so that no sum of times overflows. */
#define TIMEOUT_SECONDS_MAX ((int64_t)100 * 366 * 86400)
/* Any struct text: so the options spec_bytes and stdin_queue, too. */
#define TEXT_BYTES_MAX (16 * MIB)

/* The largest limit of a command: what a double holds exactly; and of processors. */
#define LIMIT_MAX 9007199254740991.0
#define CPU_LIMIT_MAX 4096.0

/* Output kept for late readers, for each stream (option retain, spec key retain). */
#define RETAIN_BYTES_DEFAULT ((uint64_t)64 * MIB)
#define RETAIN_BYTES_MIN ((uint64_t)64 * KIB)
#define RETAIN_BYTES_MAX ((uint64_t)1 << 40)
/* The part of it held in memory, for each stream; the rest is in an unlinked file. */
#define SPOOL_MEMORY_DEFAULT (1 * MIB)
#define SPOOL_MEMORY_MIN (64 * KIB)
/*
 * What a stream may take over its bound once its command has ended, of what it left on the
 * way: a full pipe and a bit, and what an engine of containers holds (docs/docker.md).
 */
#define DRAIN_ALLOWANCE (4 * MIB)

/* A spool whose file could not grow is tried again after this. */
#define SPOOL_RETRY_MS 500

/* Input queued before the command has started. */
#define STDIN_QUEUE_DEFAULT (1 * MIB)

/*
 * After the command has ended, output that background children still hold open is
 * read until it has been quiet for the one, at most for the other.
 */
#define DRAIN_QUIET_MS_DEFAULT 500
#define DRAIN_LIMIT_MS_DEFAULT 2000

/* A kill that failed is tried again after a delay that doubles from the first to the last. */
#define KILL_RETRY_FIRST_MS 100
#define KILL_RETRY_LAST_MS 15000
/* After this long without an answer, readers are told; the kill goes on. */
#define KILL_TELL_MS 2000
/* After this long the kill is given up and the command's fate is "unknown". */
#define KILL_GIVE_UP_MS_DEFAULT 600000
/* How long the end of the mount waits for commands to be known dead. */
#define SHUTDOWN_MS_DEFAULT 5000

/* Execs in a mount at one time (mkdir then fails with ENOSPC). */
#define EXECS_DEFAULT 100000
/* Each has a number of its own, of 32 bits. */
#define EXECS_MAX 1000000000
/* NAME_MAX of the tree (limits.h). */
#define NAME_BYTES_MAX 255
/* One line written to ctl. */
#define CTL_BYTES_MAX 256

/* A pipe of a local command: as the kernel makes it, and after it was found full (pipe(7)). */
#define PIPE_BYTES_DEFAULT (64 * KIB)
#define PIPE_BYTES_GROWN (1 * MIB)
/* Output read from one command before the loop goes on with the next. */
#define READ_TURN_BYTES (256 * KIB)

/* The strings of a local command go to the keeper in the message up to this, else in a memfd. */
#define KEEPER_INLINE_BYTES (32 * KIB)
/* How long the end of local: waits for its keeper, which goes on killing for as long as it takes.
 */
#define KEEPER_END_MS 5000
/* How long a call that is told of the daemon's death may take to pass that on. */
#define KEEPER_FAREWELL_MS 2000
/* Orphans of local commands are reaped, and unfinished kills repeated, this often. */
#define KEEPER_SWEEP_MS 20
/* How long an orphan that has ended waits for it: a look at all children takes long with many. */
#define KEEPER_REAP_MS 200
/* A walk over a tree that keeps finding new processes goes on to kill after this many rounds. */
#define WALK_ROUNDS_MAX 1000
/* Of a tree in a cgroup, so many processes are asked whether they have left it. */
#define WALK_CHOOSE_MAX 10000

/* What a prefix says on its own account (via:) and is kept for a sentence. */
#define VIA_NOISE_BYTES ((size_t)1 * KIB)
/* How long the end of a call of the prefix is waited for when all is known that it can tell. */
#define VIA_LINGER_MS 2000
/* How long a call of the prefix that kills or signals may take. */
#define VIA_ERRAND_MS 30000
/*
 * How long commands on a far side live on without a guard (option lease): a network that was
 * away for less does not kill them.
 */
#define VIA_LEASE_S_DEFAULT 60u
#define VIA_LEASE_S_MAX 86400u
/* When a daemon is dead, what it sent last may still become a command for so long. */
#define VIA_LATE_S 5u
/* How long a guard may take until it stands, while commands wait for it. */
#define VIA_GUARD_MS 30000
/* It is asked whether it stands every quarter of the lease, within these. */
#define VIA_BEAT_FIRST_MS 1000
#define VIA_BEAT_LAST_MS 15000
/* When no guard came, the next is called after a delay that doubles from the first to the last. */
#define VIA_RETRY_FIRST_MS 500u
#define VIA_RETRY_LAST_MS 15000u
/* So many guards that came to another place than the commands' are sent away, one after another. */
#define VIA_GUARD_TRIES 4
/* A mount without commands lets its guard go after this, or after a shorter lease. */
#define VIA_IDLE_MS 60000u
/* How often, and how many times, it is looked whether a killed name space has ended. */
#define VIA_LOOK_MS 20
#define VIA_LOOKS_MAX 250
/* How many processes a prefix may have between its own and the init of a name space it makes. */
#define VIA_WRAPPERS_MAX 8

/* The most that one frame of an ssh master may have (OpenSSH's own limit of a packet, packet.c). */
#define SSH_FRAME_MAX (256 * KIB)
/*
 * Output that an ssh host may send ahead, for each command; what it leaves must fit
 * DRAIN_ALLOWANCE. Half of it makes bulk output slower by a tenth, twice no faster.
 */
#define SSH_WINDOW_BYTES (2 * MIB)
/* Data in one packet of an ssh channel, both ways: what sshd reads of a command at once. */
#define SSH_PACKET_BYTES (32 * KIB)
/* Input not yet taken by the ssh master, for all commands of a connection. */
#define SSH_OUTPUT_BYTES (1 * MIB)
/* What a login shell may print before our part begins. */
#define SSH_NOISE_BYTES (64 * KIB)
/* Connections to one host: more are made when the server's MaxSessions is reached. */
#define SSH_LINKS_MAX 32
/* A connection that could not be made is not tried again before this; it doubles up to the last. */
#define SSH_RETRY_FIRST_MS 500
#define SSH_RETRY_LAST_MS 15000
/* A command that has not begun when its connection breaks is started over another so often. */
#define SSH_START_TRIES 3
/* For ssh(1), where the user has not said otherwise: a dead network is noticed after 45 s. */
#define SSH_ALIVE_SECONDS "15"
#define SSH_ALIVE_COUNT "3"
#define SSH_CONNECT_SECONDS "15"
/* Ended commands are looked after together, this long after the first of them. */
#define SSH_CHECK_MS 100
/* So long a host does not give a process number out again: 32768 starts of processes. */
#define SSH_TRUST_MS 5000
/* Commands in one request to the helper. */
#define SSH_ERRAND_BATCH 64
/* A helper that has not answered for so long is given up. */
#define SSH_HELPER_MS 30000
/* One that somebody on the host has ended is started again so often, on each connection. */
#define SSH_HELPER_RESTARTS 3
/* After a kill has found nothing left, the end of the streams is waited for this long. */
#define SSH_CLOSE_MS 1000

/* The largest READ and WRITE asked of the kernel: its own limit of 256 pages. */
#define TRANSFER_BYTES_MAX (1 * MIB)
/* After the list of mounts has changed, it is looked at once in this time. */
#define MOUNT_LOOK_MS 50
/* How long the loop polls before it sleeps. */
#define SPIN_NS_DEFAULT 30000

/* HTTP (backend/http.c): the time for a connection, and when TCP asks whether the peer lives. */
#define HTTP_CONNECT_MS 10000
#define HTTP_TCP_KEEPALIVE_S 30
/* How long data that was sent may stay unacknowledged. */
#define HTTP_UNACKED_MS 90000
/* Connections kept for later calls, and for how long one may have been idle. */
#define HTTP_IDLE_CONNECTIONS 256
#define HTTP_IDLE_MAX_S 60u
/* Streams in one HTTP/2 connection, if the server allows as many. */
#define HTTP_STREAMS_MAX 1000
/* libcurl's receive buffer, one for each call under way. */
#define HTTP_BUFFER_BYTES (64 * KIB)
/* And its send buffer: one piece of input with what stands around it goes out in one write(2). */
#define HTTP_UPLOAD_BYTES (72 * KIB)

/* One envelope of a Connect stream; envd's own are under 64 KiB. */
#define ENVELOPE_BYTES_MAX (16 * MIB)

/* E2B. A stream is quiet for this long before envd sends a keepalive. */
#define E2B_KEEPALIVE_S 20
/* The answer to Start; a call; a call that passes on input, which waits for the command to read. */
#define E2B_START_LIMIT_MS 60000
#define E2B_CALL_LIMIT_MS 30000
#define E2B_CONTROL_LIMIT_MS 60000
#define E2B_INPUT_LIMIT_MS 86400000
/* Scripts in a sandbox: envd kills them at their limit; so much later nothing is waited for. */
#define E2B_PROBE_LIMIT_S 30
#define E2B_PROBE_TRIES 3
#define E2B_SWEEP_LIMIT_S 30
#define E2B_SIGNAL_LIMIT_S 10
#define E2B_LIMIT_GRACE_MS 5000
/* An answer that is kept whole (List tells the environment of all), and one that is an error. */
#define E2B_ANSWER_BYTES_MAX (8 * MIB)
#define E2B_REFUSAL_BYTES_MAX (64 * KIB)
/* envd's buffer: one read(2) of a command's output is one piece of it. */
#define E2B_READ_BYTES (32 * KIB)
/* One SendInput: a full pipe. A call that may be repeated is, after twice the delay each time. */
#define E2B_INPUT_BYTES (64 * KIB)
#define E2B_INPUT_TRIES 8
#define E2B_INPUT_RETRY_MS 250ull
/* A server's Retry-After is believed up to this. */
#define E2B_RETRY_AFTER_MAX_S 60u
/* Whether the leader is there is asked after a part (1/8) of its age, within these. */
#define E2B_WATCH_PART 8
#define E2B_WATCH_FIRST_MS 250
#define E2B_WATCH_LAST_MS 10000
/* Whether processes are left is asked after the end, and ever less often. */
#define E2B_CHECK_FIRST_MS 300
#define E2B_CHECK_LAST_MS 60000
/* When nothing of an ended leader's session was seen for so long, its number may be another's. */
#define E2B_NUMBER_MS 120000
/* Questions of many commands are gathered for so long. */
#define E2B_SWEEP_GATHER_MS 50
#define E2B_REMOVE_GATHER_MS 250
/* A process that ended in silence: when its stream is given up. */
#define E2B_SILENCE_MS 10000
/* A zombie without a child: longer than a stream that lives is silent (E2B_KEEPALIVE_S). */
#define E2B_STUCK_MS 30000
/* A child that holds output open: how often its silence is looked at; the least pause to count. */
#define E2B_DRAIN_STEP_MS 100
#define E2B_DRAIN_GAP_MS 100
#define E2B_FLUSH_RETRY_MS 2000
/* What may be under way from a command to here: pipes, 64 chunks of 32 KiB, sockets. */
#define E2B_IN_FLIGHT_MAX (8 * MIB)
/* After a kill was seen to have worked, the end event is waited for. */
#define E2B_END_WAIT_MS 1000
/* Sweeps that find nothing, and the least time, before a Start counts as never to come. */
#define E2B_UNSURE_SWEEPS 3
#define E2B_UNSURE_MS 3000
/* Time to live: of a sandbox of our own, of one that is attached to; the longest; a new try. */
#define E2B_CREATE_TTL_S 300
#define E2B_ATTACH_TTL_S 300
#define E2B_TTL_MAX_S 86400
#define E2B_RENEW_RETRY_S 10

/* ---- docker: ---- */

/* An answer of the engine: its head, and its body (a container's inspection is some 10 KiB). */
#define DOCKER_HEAD_BYTES_MAX (64 * KIB)
#define DOCKER_BODY_BYTES_MAX (4 * MIB)
/* What is received at a time, and how often before the loop has its turn. */
#define DOCKER_SCRATCH_BYTES (256 * KIB)
#define DOCKER_READS_PER_TURN 4
/* The payload of one TLS record (RFC 8446, 5.1). */
#define DOCKER_TLS_RECORD (16 * KIB)
/* A full backlog of the engine's socket is tried again. */
#define DOCKER_CONNECT_TRIES 500
#define DOCKER_CONNECT_RETRY_MS 10
/* A plain call, which an engine under load may keep waiting. */
#define DOCKER_CALL_MS 30000
/* To make a container, and to start it: an engine does one after the other. */
#define DOCKER_START_MS 120000
/* The whole id of a container. */
#define DOCKER_ID_HEX 64
/* A kill from this machine: rounds in one turn; turns until it has failed, and between them. */
#define DOCKER_NEAR_ROUNDS 3
#define DOCKER_NEAR_LOOKS 100
#define DOCKER_NEAR_LOOK_MS 5
/* In a container that is made for one command: its init and the shell that waits. */
#define DOCKER_ROOM_PROCESSES 2
/* The removal of an ended command's container, and how long the end of the mount waits for it. */
#define DOCKER_REMOVE_TRIES 20
#define DOCKER_REMOVE_RETRY_MS 200
#define DOCKER_CLOSE_MS 5000
/* What the helper in a container may take to come up, or to answer; and what it may say. */
#define DOCKER_HELPER_MS 30000
#define DOCKER_HELPER_BYTES_MAX (64 * KIB)
/* Looks at an exec: the delay doubles from the first to the last. */
#define DOCKER_LOOK_FIRST_MS 2
#define DOCKER_LOOK_LAST_MS 500
/* How often it is asked what an ended command has left, when there is no answer. */
#define DOCKER_CHECK_TRIES 20
/* Looks that fail before the result is given up. */
#define DOCKER_LOST_LOOKS 8
/*
 * So long after the end of a command the engine drops what is in its pipes (2 s: moby,
 * daemon/monitor.go), less what it takes to empty them; while output is held back, it is looked
 * at more often than that.
 */
#define DOCKER_CUT_MS 1800
#define DOCKER_HELD_LOOK_MS 250
/*
 * The engine ends the stream of an ended command in 2 s at the most; so long after that, no other
 * process has got the number that the command had (as SSH_TRUST_MS).
 */
#define DOCKER_TRUST_MS 3000
/* How long after its last process is gone an exec's stream must have ended. */
#define DOCKER_END_MS 3000

struct settings {
	size_t spec_bytes;
	uint64_t retain;
	size_t spool_memory;
	const char *spool_dir;
	size_t stdin_queue;
	uint64_t drain_quiet_ms;
	uint64_t drain_limit_ms;
	uint64_t kill_give_up_ms;
	uint64_t shutdown_ms;
	size_t execs;
	mode_t umask;
	uint64_t spin_ns;
};

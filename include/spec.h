/*
 * What a command is: the parsed and checked content of a spec file.
 *
 * Parsing has two parts. A frame finds, byte by byte, where the text ends:
 * a JSON object or array ends with its last bracket, a shell command with the
 * last close. Then spec_parse_*() reads the whole text, strictly: JSON by
 * RFC 8259 (cJSON underneath), and on top of it duplicate keys, unknown keys,
 * wrong types, NUL bytes and depth are errors that name the key.
 *
 * Strings are bytes as written; they need not be UTF-8 and hold no NUL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum spec_stderr { SPEC_STDERR_PASSTHROUGH, SPEC_STDERR_MERGED };
enum spec_stdin { SPEC_STDIN_AUTO, SPEC_STDIN_NONE, SPEC_STDIN_OPEN };

/* The keys of a spec as a set: what a spec uses, what a backend can do. */
enum spec_key {
	SPEC_KEY_CMD = 1 << 0,
	SPEC_KEY_ENV = 1 << 1,
	SPEC_KEY_CWD = 1 << 2,
	SPEC_KEY_STDERR = 1 << 3,
	SPEC_KEY_STDIN = 1 << 4,
	SPEC_KEY_USER = 1 << 5,
	SPEC_KEY_PTY = 1 << 6,
	SPEC_KEY_TIMEOUT = 1 << 7,
	SPEC_KEY_LIMITS = 1 << 8,
	SPEC_KEY_SANDBOX = 1 << 9,
	SPEC_KEY_RETAIN = 1 << 10,
};

/* What every backend does. */
#define SPEC_KEYS_BASIC                                                                            \
	(SPEC_KEY_CMD | SPEC_KEY_ENV | SPEC_KEY_CWD | SPEC_KEY_STDERR | SPEC_KEY_STDIN |           \
	 SPEC_KEY_RETAIN)

/* The name of the lowest key in the set, as it is written in a spec: "pty". */
const char *spec_key_name(unsigned keys);

struct spec_variable {
	char *name;
	char *value; /* NULL: unset it */
};

/* What a command may use; 0: not limited. */
struct spec_limits {
	uint64_t memory; /* bytes */
	uint64_t pids;
	uint64_t cpu_milli; /* thousandths of a processor */
	uint64_t nofile;
};

struct spec {
	unsigned keys; /* the keys that were given */

	char **argv; /* NULL-terminated; never empty */
	size_t argc;
	bool shell; /* cmd was a string: argv is /bin/sh -c STRING */

	struct spec_variable *env; /* no two of one name */
	size_t env_count;

	char *cwd;  /* NULL: the target's default */
	char *user; /* NULL: the target's default */
	char *sandbox;
	enum spec_stderr stderr_mode;
	enum spec_stdin stdin_mode;
	uint64_t retain;     /* bytes; meaningful with SPEC_KEY_RETAIN */
	uint64_t timeout_ms; /* 0: none */
	struct spec_limits limits;
	bool pty;
	unsigned pty_rows;
	unsigned pty_cols;
};

/* Where a text in progress stands. Zero-initialised is "nothing yet". */
enum frame_kind { FRAME_EMPTY, FRAME_JSON, FRAME_SHELL };
struct frame {
	enum frame_kind kind;
	unsigned depth;
	bool in_string;
	bool escaped;
	bool complete; /* the JSON value has ended; white space may follow */
};

/*
 * Feeds the next len bytes of a text. Returns 0, or -EINVAL with a sentence in
 * *why: bytes after the end of a JSON value, a NUL, too deep. f->complete says
 * whether the JSON value has ended. Linear in len, whatever the text.
 */
int frame_feed(struct frame *f, const char *data, size_t len, struct text *why);

/*
 * Parses a whole text, JSON or shell command as it begins. Returns 0 and *ret
 * (released by spec_free()), or -EINVAL or -ENOMEM with a sentence in *why that
 * names the key and the reason, and never quotes a value of env.
 */
int spec_parse(const char *data, size_t len, struct spec **ret, struct text *why);

/* Harmless for NULL. Overwrites the env values first. */
void spec_free(struct spec *spec);

/*
 * Appends the spec as JSON and a newline, with each env value that is set shown
 * as "[REDACTED]"; what an unset variable says (null) stays. Returns 0 or -ENOMEM.
 */
int spec_print(const struct spec *spec, struct text *ret);

/*
 * Parses a size: digits and an optional K, M, G or T (powers of 1024).
 * Returns 0 or -EINVAL.
 */
int size_parse(const char *s, uint64_t *ret);

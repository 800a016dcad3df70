/*
 * The command prefix of a via: target, split into words by the rules of a shell's
 * quoting, once, at the mount. No shell is run and nothing is expanded: what a
 * shell would expand, or take as an operator, is refused unless it is quoted, so
 * that no prefix means one thing here and another thing at a prompt.
 */
#pragma once

#include "text.h"

/*
 * Splits a prefix (POSIX XCU 2.2 Quoting and 2.3 Token Recognition: blanks, newlines,
 * '...', "...", backslash). Returns 0 and in *ret a NULL-terminated array of at
 * least one word, released by words_free(); or -EINVAL with a sentence in *why: an open
 * quote, no word at all, an unquoted or double-quoted $ or `, an unquoted operator, or ~ or #
 * at the start of a word; or -ENOMEM.
 */
int words_split(const char *prefix, char ***ret, struct text *why);

/* Harmless for NULL. */
void words_free(char **words);

/* JSON as strict as a spec needs it: cJSON, and what cJSON lets pass. */
#pragma once

#include <cjson/cJSON.h>

#include "text.h"

/*
 * Parses one JSON value that a frame has accepted (no NUL, bounded depth). Returns
 * 0 and *ret, released by json_free(), or -EINVAL or -ENOMEM with a sentence. Refuses
 * what RFC 8259 does, but for control bytes in strings: dash's echo expands \n.
 * Refuses also a key given twice in one object, and \u0000.
 */
int json_parse(const char *data, size_t len, cJSON **ret, struct text *why);

/* Overwrites every string first. Harmless for NULL. */
void json_free(cJSON *value);

/* What a value is, for a sentence: "a number". */
const char *json_kind(const cJSON *value);

/* Appends a key or name in quotes, fit for a person, long ones cut short. */
void json_quote(struct text *t, const char *name);

/* The key limits of a spec. */
#pragma once

#include <cjson/cJSON.h>

#include "spec.h"

/* Reads the object. Returns 0, or -EINVAL with a sentence that names the key. */
int spec_limits_take(struct spec_limits *ret, const cJSON *value, struct text *why);

/* Adds it to a spec that is shown. Returns whether there was memory. */
bool spec_limits_put(const struct spec_limits *limits, cJSON *object);

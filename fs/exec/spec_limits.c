#include "spec_limits.h"

#include <errno.h>
#include <string.h>

#include "bounds.h"
#include "spec_json.h"

/* A whole number from 1 on, or for bytes a size such as "512M". */
static int take_count(const cJSON *value, bool is_size, uint64_t *ret)
{
	if (is_size && cJSON_IsString(value))
		return size_parse(value->valuestring, ret) < 0 || !*ret ? -EINVAL : 0;
	if (!cJSON_IsNumber(value) || value->valuedouble < 1 || value->valuedouble > LIMIT_MAX ||
	    (double)(uint64_t)value->valuedouble != value->valuedouble)
		return -EINVAL;
	*ret = (uint64_t)value->valuedouble;
	return 0;
}

static int take_cpu(const cJSON *value, uint64_t *ret)
{
	if (!cJSON_IsNumber(value) || value->valuedouble < 0.01 ||
	    value->valuedouble > CPU_LIMIT_MAX)
		return -EINVAL;
	*ret = (uint64_t)(value->valuedouble * 1000);
	return 0;
}

static int take_one(struct spec_limits *limits, const cJSON *value, struct text *why)
{
	AUTO_TEXT struct text name = {0};
	const char *key = value->string;
	int err;

	if (strcmp(key, "memory") == 0) {
		err = take_count(value, true, &limits->memory);
	} else if (strcmp(key, "pids") == 0) {
		err = take_count(value, false, &limits->pids);
	} else if (strcmp(key, "nofile") == 0) {
		err = take_count(value, false, &limits->nofile);
	} else if (strcmp(key, "cpu") == 0) {
		err = take_cpu(value, &limits->cpu_milli);
	} else {
		json_quote(&name, key);
		return text_fail(
			why, -EINVAL,
			"spec: key \"limits\": there is no limit %s: only memory, pids, cpu "
			"and nofile",
			text_str(&name));
	}
	if (err < 0)
		return text_fail(why, err, "spec: key \"limits\": \"%s\" must be %s, not %s", key,
				 strcmp(key, "cpu") == 0 ? "a number of processors, such as 0.5"
				 : strcmp(key, "memory") == 0 ? "bytes, or a size such as \"512M\""
							      : "a whole number above 0",
				 json_kind(value));
	return 0;
}

int spec_limits_take(struct spec_limits *ret, const cJSON *value, struct text *why)
{
	struct spec_limits limits = {0};
	const cJSON *item;
	int err;

	if (!cJSON_IsObject(value))
		return text_fail(why, -EINVAL, "spec: key \"limits\" must be an object, not %s",
				 json_kind(value));
	cJSON_ArrayForEach (item, value) {
		err = take_one(&limits, item, why);
		if (err < 0)
			return err;
	}
	*ret = limits;
	return 0;
}

static bool put_number(cJSON *object, const char *key, uint64_t value, double unit)
{
	return !value || cJSON_AddNumberToObject(object, key, (double)value / unit);
}

bool spec_limits_put(const struct spec_limits *limits, cJSON *object)
{
	cJSON *o = cJSON_AddObjectToObject(object, "limits");

	return o && put_number(o, "memory", limits->memory, 1) &&
	       put_number(o, "pids", limits->pids, 1) &&
	       put_number(o, "cpu", limits->cpu_milli, 1000) &&
	       put_number(o, "nofile", limits->nofile, 1);
}

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "e2b_codec.h"

/* ---- Requests ---- */

static int add(struct text *t, const char *s)
{
	return text_append(t, s, strlen(s));
}

/* A JSON string (RFC 8259): only what must be escaped is. */
static int add_string(struct text *t, const char *s)
{
	int err = add(t, "\"");

	while (err == 0 && *s) {
		size_t plain = 0;

		while (s[plain] && s[plain] != '"' && s[plain] != '\\' &&
		       (unsigned char)s[plain] >= ' ')
			plain++;
		err = text_append(t, s, plain);
		s += plain;
		if (err == 0 && *s)
			err = text_printf(t, "\\u%04x", (unsigned char)*s++);
	}
	return err ? err : add(t, "\"");
}

static int add_member(struct text *t, const char *key, const char *value)
{
	int err = add(t, key);

	return err ? err : add_string(t, value);
}

static int add_args(struct text *t, const struct e2b_start *start)
{
	int err = add(t, ",\"args\":[");

	for (size_t i = 0; err == 0 && i < start->arg_count; i++)
		err = add_member(t, i ? "," : "", start->args[i]);
	return err ? err : add(t, "]");
}

static int add_envs(struct text *t, const struct e2b_start *start)
{
	const char *separator = "";
	int err = add(t, ",\"envs\":{");

	for (size_t i = 0; err == 0 && i < start->env_count; i++) {
		if (!start->envs[i].value)
			continue;
		err = add_member(t, separator, start->envs[i].name);
		if (err == 0)
			err = add_member(t, ":", start->envs[i].value);
		separator = ",";
	}
	return err ? err : add(t, "}");
}

static int encode_start(const struct e2b_start *start, struct text *t)
{
	int err = add_member(t, "{\"process\":{\"cmd\":", start->cmd);

	if (err == 0)
		err = add_args(t, start);
	if (err == 0)
		err = add_envs(t, start);
	if (err == 0 && start->cwd)
		err = add_member(t, ",\"cwd\":", start->cwd);
	if (err == 0)
		err = add_member(t, "},\"tag\":", start->tag);
	return err ? err : text_printf(t, ",\"stdin\":%s}", start->input ? "true" : "false");
}

static int encode_input(const struct e2b_request *r, struct text *t)
{
	int err = text_printf(t, "{\"process\":{\"pid\":%u},\"input\":{\"stdin\":\"", r->pid);

	if (err == 0)
		err = base64_append(t, r->input, r->input_len);
	return err ? err : add(t, "\"}}");
}

static int encode(const struct e2b_request *r, struct text *t)
{
	switch (r->method) {
	case E2B_START:
		return encode_start(r->start, t);
	case E2B_LIST:
		return add(t, "{}");
	case E2B_SEND_INPUT:
		return encode_input(r, t);
	case E2B_CLOSE_STDIN:
		return text_printf(t, "{\"process\":{\"pid\":%u}}", r->pid);
	case E2B_SEND_SIGNAL:
		return text_printf(t, "{\"process\":{\"pid\":%u},\"signal\":\"%s\"}", r->pid,
				   r->signo == SIGTERM ? "SIGNAL_SIGTERM" : "SIGNAL_SIGKILL");
	}
	return -EINVAL;
}

/* ---- Events: the fast way, for output ---- */

struct scan {
	const char *at;
	const char *end;
};

static void skip_space(struct scan *s)
{
	while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
		s->at++;
}

static bool scan_char(struct scan *s, char c)
{
	skip_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

/* A string without escapes: where it begins and how long it is. */
static bool scan_string(struct scan *s, const char **ret, size_t *ret_len)
{
	const char *quote;

	if (!scan_char(s, '"'))
		return false;
	quote = memchr(s->at, '"', (size_t)(s->end - s->at));
	if (!quote)
		return false;
	*ret = s->at;
	*ret_len = (size_t)(quote - s->at);
	s->at = quote + 1;
	return true;
}

static bool scan_key(struct scan *s, const char *key)
{
	const char *found;
	size_t len;

	return scan_char(s, '{') && scan_string(s, &found, &len) && len == strlen(key) &&
	       memcmp(found, key, len) == 0 && scan_char(s, ':');
}

/*
 * {"event":{"data":{"stdout":"..."}}} and nothing else, which is nearly all that a busy stream
 * consists of: the text of the bytes is found without copying it. Any other form of the same
 * message is left to cJSON. An escape in the text (base64 needs none) fails later, as bad base64,
 * except that cJSON would have read it: so it is left to cJSON, too.
 */
static bool decode_output(const char *data, size_t len, struct e2b_event *ret)
{
	struct scan s = {.at = data, .end = data + len};
	const char *name;
	const char *text;
	size_t name_len;
	size_t text_len;

	if (!scan_key(&s, "event") || !scan_key(&s, "data") || !scan_char(&s, '{') ||
	    !scan_string(&s, &name, &name_len) || !scan_char(&s, ':') ||
	    !scan_string(&s, &text, &text_len) || !scan_char(&s, '}') || !scan_char(&s, '}') ||
	    !scan_char(&s, '}'))
		return false;
	skip_space(&s);
	if (s.at != s.end || name_len != 6 || memchr(text, '\\', text_len))
		return false;
	if (memcmp(name, "stdout", 6) == 0)
		ret->kind = E2B_EVENT_STDOUT;
	else if (memcmp(name, "stderr", 6) == 0)
		ret->kind = E2B_EVENT_STDERR;
	else
		return false;
	ret->payload = (struct payload){.data = text, .len = text_len, .base64 = true};
	return true;
}

/* ---- Events: any ---- */

/* A field by its lowerCamelCase name, which protobuf's JSON writes, or its own, which it reads. */
static const cJSON *field(const cJSON *object, const char *camel, const char *snake)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, camel);

	return item || !snake ? item : cJSON_GetObjectItemCaseSensitive(object, snake);
}

static int read_output(const cJSON *data, struct e2b_event *ret)
{
	const cJSON *out = field(data, "stdout", NULL);
	const cJSON *text = out ? out : field(data, "stderr", NULL);

	if (!text)
		return 0;
	if (!cJSON_IsString(text))
		return -EPROTO;
	ret->kind = out ? E2B_EVENT_STDOUT : E2B_EVENT_STDERR;
	ret->payload = (struct payload){
		.data = text->valuestring, .len = strlen(text->valuestring), .base64 = true};
	return 0;
}

static int read_number(const cJSON *item, double min, double max, double *ret)
{
	if (!item || cJSON_IsNull(item))
		return 0;
	if (!cJSON_IsNumber(item) || item->valuedouble < min || item->valuedouble > max)
		return -EPROTO;
	*ret = item->valuedouble;
	return 0;
}

static int read_end(const cJSON *end, struct e2b_event *ret)
{
	const cJSON *status = field(end, "status", NULL);
	double code = 0;

	if (read_number(field(end, "exitCode", "exit_code"), INT32_MIN, INT32_MAX, &code) < 0)
		return -EPROTO;
	ret->kind = E2B_EVENT_END;
	ret->exit_code = (int)code;
	ret->exited = cJSON_IsTrue(field(end, "exited", NULL));
	if (cJSON_IsString(status))
		snprintf(ret->status, sizeof(ret->status), "%s", status->valuestring);
	return 0;
}

static int read_event(const cJSON *event, struct e2b_event *ret)
{
	const cJSON *start = field(event, "start", NULL);
	const cJSON *data = field(event, "data", NULL);
	const cJSON *end = field(event, "end", NULL);
	double pid = 0;

	if (cJSON_IsObject(start)) {
		if (read_number(field(start, "pid", NULL), 1, UINT32_MAX, &pid) < 0 || pid < 1)
			return -EPROTO;
		ret->kind = E2B_EVENT_START;
		ret->pid = (uint32_t)pid;
		return 0;
	}
	if (cJSON_IsObject(data))
		return read_output(data, ret);
	return cJSON_IsObject(end) ? read_end(end, ret) : 0;
}

static int decode(const char *data, size_t len, struct e2b_event *ret)
{
	const char *end = NULL;
	cJSON *json;
	int err;

	*ret = (struct e2b_event){.kind = E2B_EVENT_OTHER};
	if (decode_output(data, len, ret))
		return 0;
	json = cJSON_ParseWithLengthOpts(data, len, &end, false);
	if (!cJSON_IsObject(json)) {
		cJSON_Delete(json);
		return -EPROTO;
	}
	ret->message = json;
	err = read_event(field(json, "event", NULL), ret);
	if (err < 0)
		e2b_json.release(ret);
	return err;
}

static void release(struct e2b_event *event)
{
	cJSON_Delete(event->message);
	event->message = NULL;
}

const struct e2b_codec e2b_json = {
	.name = "json",
	.stream_type = "application/connect+json",
	.unary_type = "application/json",
	.encode = encode,
	.decode = decode,
	.release = release,
};

#include "e2b_control.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "e2b_rpc.h"
#include "e2b_sandbox.h"
#include "log.h"

/* ---- Calls ---- */

static size_t take_body(struct http_call *call, const char *data, size_t len)
{
	struct e2b_control *c = container_of(call, struct e2b_control, call);

	if (c->answer.len + len <= E2B_ANSWER_BYTES_MAX)
		text_append(&c->answer, data, len);
	return len;
}

static void call_done(struct http_call *call, int err)
{
	struct e2b_control *c = container_of(call, struct e2b_control, call);
	struct e2b_fault fault;

	if (err == 0 && call->status >= 200 && call->status < 300) {
		c->done(c, NULL);
		return;
	}
	e2b_fault_of_answer(&fault, c->what, call, err, &c->answer);
	c->done(c, &fault);
}

static int add_headers(struct e2b_control *c)
{
	const struct e2b_config *config = &c->e2b->config;
	struct http_headers *headers = &c->call.headers;
	int err = http_header(headers, "User-Agent: spawnfs/" SPAWNFS_VERSION);

	if (err == 0)
		err = http_header(headers, "Expect:");
	if (err == 0)
		err = http_header(headers, "Content-Type: application/json");
	if (err == 0 && config->api_key)
		err = http_header(headers, "X-API-Key: %s", config->api_key);
	if (err == 0 && config->access_token)
		err = http_header(headers, "Authorization: Bearer %s", config->access_token);
	return err;
}

int e2b_control_begin(struct e2b_control *c, const char *what, const char *method, const char *path,
		      const char *body)
{
	c->what = what;
	text_done(&c->answer);
	text_done(&c->url);
	text_done(&c->body);
	if (add_headers(c) < 0 || text_printf(&c->url, "%s%s", c->e2b->config.api_url, path) < 0 ||
	    (body && text_append(&c->body, body, strlen(body)) < 0)) {
		http_headers_done(&c->call.headers);
		return -ENOMEM;
	}
	c->call.method = method;
	c->call.url = text_str(&c->url);
	c->call.body = body ? text_str(&c->body) : NULL;
	c->call.body_len = c->body.len;
	c->call.limit_ms = c->limit_ms ? c->limit_ms : E2B_CONTROL_LIMIT_MS;
	c->call.on_body = take_body;
	c->call.on_done = call_done;
	return http_begin(c->e2b->http, &c->call);
}

bool e2b_control_says_gone(const struct e2b_control *c, const struct e2b_fault *fault)
{
	cJSON *json;
	bool gone;

	if (!fault || fault->status != 404)
		return false;
	json = cJSON_ParseWithLength(text_str(&c->answer), c->answer.len);
	gone = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(json, "code")) == 404;
	cJSON_Delete(json);
	return gone;
}

void e2b_control_cancel(struct e2b_control *c)
{
	http_cancel(&c->call);
	text_wipe(&c->answer);
	text_done(&c->url);
	text_done(&c->body);
}

/* ---- Calls that wait for their answer ---- */

struct waiting_call {
	struct e2b_control control;
	bool ended;
	struct e2b_fault fault;
};

static void waiting_done(struct e2b_control *c, const struct e2b_fault *fault)
{
	struct waiting_call *w = container_of(c, struct waiting_call, control);

	w->ended = true;
	if (fault)
		w->fault = *fault;
	loop_stop(c->e2b->base.loop);
}

/* Returns 0 with the answer in w->control.answer, or -errno with a sentence. */
static int call_and_wait(struct e2b *e2b, struct waiting_call *w, const char *what,
			 const char *method, const char *path, const char *body, struct text *why)
{
	int err;

	*w = (struct waiting_call){.control = {.e2b = e2b, .done = waiting_done}};
	err = e2b_control_begin(&w->control, what, method, path, body);
	while (err == 0 && !w->ended)
		err = loop_run(e2b->base.loop);
	if (err < 0)
		return text_fail(why, err, "e2b: %s: %s", what, strerror(-err));
	return w->fault.err ? text_fail(why, w->fault.err, "%s", w->fault.text) : 0;
}

int e2b_control_create(struct e2b *e2b, const char *template_name, unsigned ttl_s,
		       struct e2b_sandbox **ret, struct text *why)
{
	cJSON *body = cJSON_CreateObject();
	struct waiting_call w = {0};
	char *text;
	cJSON *answer;
	const char *id;
	int err;

	cJSON_AddStringToObject(body, "templateID", template_name);
	cJSON_AddNumberToObject(body, "timeout", ttl_s);
	cJSON_AddBoolToObject(body, "secure", true);
	text = cJSON_PrintUnformatted(body);
	cJSON_Delete(body);
	if (!text)
		return -ENOMEM;
	err = call_and_wait(e2b, &w, "creating a sandbox", "POST", "/sandboxes", text, why);
	free(text);
	if (err == 0) {
		answer = cJSON_ParseWithLength(text_str(&w.control.answer), w.control.answer.len);
		id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "sandboxID"));
		*ret = id ? e2b_sandbox_get(e2b, id) : NULL;
		if (!*ret) {
			err = text_fail(why, -EPROTO, "e2b: creating a sandbox: %s",
					id ? "no memory" : "the answer names none");
		} else {
			/* Before it is learned, which starts the renewal by these. */
			(*ret)->owned = true;
			(*ret)->ttl_s = ttl_s;
			err = e2b_control_learn(*ret, &w.control.answer);
		}
		cJSON_Delete(answer);
	}
	e2b_control_cancel(&w.control);
	return err;
}

int e2b_control_delete(struct e2b *e2b, const struct e2b_sandbox *sandbox, struct text *why)
{
	struct waiting_call w = {0};
	AUTO_TEXT struct text path = {0};
	int err = text_printf(&path, "/sandboxes/%s", sandbox->id);

	if (err == 0)
		err = call_and_wait(e2b, &w, "deleting the sandbox", "DELETE", text_str(&path),
				    NULL, why);
	if (e2b_control_says_gone(&w.control, &w.fault))
		err = 0;
	e2b_control_cancel(&w.control);
	return err;
}

/* ---- Attaching ---- */

int e2b_control_attach(struct e2b_control *c, const struct e2b_sandbox *s)
{
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text body = {0};

	if (text_printf(&path, "/sandboxes/%s/connect", s->id) < 0 ||
	    text_printf(&body, "{\"timeout\":%u}", E2B_ATTACH_TTL_S) < 0)
		return -ENOMEM;
	return e2b_control_begin(c, "attaching to the sandbox", "POST", text_str(&path),
				 text_str(&body));
}

static const char *string_of(const cJSON *object, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

int e2b_control_learn(struct e2b_sandbox *s, const struct text *answer)
{
	cJSON *json = cJSON_ParseWithLength(text_str(answer), answer->len);
	int err = -EPROTO;

	if (cJSON_IsObject(json))
		err = e2b_sandbox_learn(s, string_of(json, "domain"),
					string_of(json, "envdAccessToken"),
					string_of(json, "envdVersion"));
	cJSON_Delete(json);
	return err;
}

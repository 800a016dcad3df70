#include "e2b_rpc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "e2b_sandbox.h"

int e2b_rpc_url(struct text *url, const struct e2b_sandbox *sandbox, enum e2b_method method)
{
	text_done(url);
	return text_printf(url, "%s/process.Process/%s", sandbox->url, e2b_method_name(method));
}

/* The user is selected by basic authentication without a password; it is no secret. */
static int add_user(struct http_headers *headers, const struct e2b_sandbox *sandbox,
		    const char *user)
{
	AUTO_TEXT struct text encoded = {0};
	AUTO_TEXT struct text plain = {0};

	/* An envd before 0.4.0 has no default user of its own; the SDKs name this one to it. */
	if (!user && e2b_sandbox_older(sandbox, 0, 4, 0))
		user = "user";
	if (!user)
		return 0;
	if (text_printf(&plain, "%s:", user) < 0 ||
	    base64_append(&encoded, plain.data, plain.len) < 0)
		return -ENOMEM;
	return http_header(headers, "Authorization: Basic %s", text_str(&encoded));
}

int e2b_rpc_headers(struct http_headers *headers, const struct e2b_sandbox *sandbox,
		    const char *user, const char *content_type)
{
	int err = http_header(headers, "Content-Type: %s", content_type);

	if (err == 0)
		err = http_header(headers, "Connect-Protocol-Version: 1");
	if (err == 0)
		err = http_header(headers, "User-Agent: spawnfs/" SPAWNFS_VERSION);
	/* libcurl would wait a second for "100 Continue" before a longer body. */
	if (err == 0)
		err = http_header(headers, "Expect:");
	if (err == 0)
		err = http_header(headers, "E2b-Sandbox-Id: %s", sandbox->id);
	if (err == 0)
		err = http_header(headers, "E2b-Sandbox-Port: %d", E2B_ENVD_PORT);
	if (err == 0 && sandbox->token)
		err = http_header(headers, "X-Access-Token: %s", sandbox->token);
	return err ? err : add_user(headers, sandbox, user);
}

bool e2b_rpc_answered(const struct http_call *call, const char *content_type)
{
	size_t len = strlen(content_type);
	const char *found = call->content_type;

	return call->status == 200 && strncasecmp(found, content_type, len) == 0 &&
	       (!found[len] || strchr("; ", found[len]));
}

bool e2b_rpc_turn_to_json(struct e2b_sandbox *sandbox, const struct e2b_codec *used, int status)
{
	if (status != 415 || used != &e2b_proto)
		return false;
	sandbox->codec = &e2b_json;
	return true;
}

static int make_call(struct e2b_unary *u)
{
	/* The answer to List is read as JSON; the others have none. */
	u->codec = u->request.method == E2B_LIST ? &e2b_json : u->sandbox->codec;
	text_wipe(&u->body);
	text_done(&u->answer);
	if (e2b_rpc_url(&u->url, u->sandbox, u->request.method) < 0 ||
	    e2b_rpc_headers(&u->call.headers, u->sandbox, NULL, u->codec->unary_type) < 0 ||
	    u->codec->encode(&u->request, &u->body) < 0) {
		http_headers_done(&u->call.headers);
		return -ENOMEM;
	}
	u->call.method = "POST";
	u->call.url = text_str(&u->url);
	u->call.body = text_str(&u->body);
	u->call.body_len = u->body.len;
	u->call.limit_ms = u->limit_ms;
	return http_begin(u->sandbox->e2b->http, &u->call);
}

static size_t unary_body(struct http_call *call, const char *data, size_t len)
{
	struct e2b_unary *u = container_of(call, struct e2b_unary, call);

	/* Past the bound the rest is dropped; what is left is no valid JSON, and fails as that. */
	if (u->answer.len + len <= E2B_ANSWER_BYTES_MAX)
		text_append(&u->answer, data, len);
	return len;
}

static void unary_done(struct http_call *call, int err)
{
	struct e2b_unary *u = container_of(call, struct e2b_unary, call);
	struct e2b_fault fault;

	text_wipe(&u->body);
	/* A page that somebody on the way puts up is no word that envd has done anything. */
	if (err == 0 && e2b_rpc_answered(call, u->codec->unary_type)) {
		u->done(u, NULL);
		return;
	}
	if (err == 0 && e2b_rpc_turn_to_json(u->sandbox, u->codec, call->status) &&
	    make_call(u) == 0)
		return;
	e2b_fault_of_answer(&fault, e2b_method_name(u->request.method), call, err, &u->answer);
	u->done(u, &fault);
}

int e2b_unary_begin(struct e2b_unary *u)
{
	u->call.on_body = unary_body;
	u->call.on_done = unary_done;
	return make_call(u);
}

void e2b_unary_cancel(struct e2b_unary *u)
{
	http_cancel(&u->call);
	text_wipe(&u->body);
	text_done(&u->answer);
	text_done(&u->url);
}

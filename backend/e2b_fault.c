/* What an answer that is no success means, for the one who wrote a spec and for a person. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "e2b_rpc.h"

static bool says(const struct e2b_error *error, const char *part)
{
	return strcasestr(error->message, part);
}

/* envd: "cwd '/x' does not exist", "invalid username: 'x'", "... home directory ...". */
static int error_of_code(const struct e2b_error *error)
{
	const char *code = error->code;

	/* execve(2)'s own word, of the wrapper or of the shell around it. */
	if (says(error, "argument list too long"))
		return -E2BIG;
	if (strcmp(code, "invalid_argument") == 0)
		return says(error, "cwd") || says(error, "home") || says(error, "not exist")
			       ? -ENOENT
			       : -EINVAL;
	if (strcmp(code, "unauthenticated") == 0)
		return says(error, "username") ? -ENOENT : -EACCES;
	if (strcmp(code, "permission_denied") == 0)
		return -EACCES;
	if (strcmp(code, "not_found") == 0)
		return -ESRCH;
	if (strcmp(code, "resource_exhausted") == 0)
		return -EUSERS;
	if (strcmp(code, "unimplemented") == 0)
		return -EOPNOTSUPP;
	if (strcmp(code, "unavailable") == 0)
		return -EHOSTUNREACH;
	return -EIO;
}

/*
 * What is said of a call that was not acted upon. The others may come after it was: envd's
 * "unknown" is that the word of the start was lost on the way, with a command that runs.
 */
static bool is_refusal(const char *code)
{
	static const char *const codes[] = {
		"invalid_argument",  "not_found",	    "already_exists",
		"permission_denied", "resource_exhausted",  "out_of_range",
		"unauthenticated",   "failed_precondition", "unimplemented",
	};

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (strcmp(code, codes[i]) == 0)
			return true;
	return false;
}

static int error_of_status(int status)
{
	switch (status) {
	case 400:
		return -EINVAL;
	case 401:
	case 403:
		return -EACCES;
	case 404:
		return -ENXIO;
	case 409:
		return -EBUSY;
	case 429:
		return -EUSERS;
	case 502:
	case 503:
	case 504:
		return -EHOSTUNREACH;
	default:
		return -EIO;
	}
}

/* Whether an answer of this status leaves open that the call was acted upon. */
static bool unsure_status(int status)
{
	/* 408: Envoy's, when the one behind it has the request and does not answer. */
	return status < 300 || status == 408 || status == 499 || status >= 500;
}

static const char *advice(int status)
{
	switch (status) {
	case 401:
	case 403:
		return "check E2B_API_KEY and that it belongs to the sandbox's team";
	case 404:
		return "check the sandbox's id and E2B_SANDBOX_URL";
	case 429:
		return "a rate or concurrency limit: try again later";
	default:
		return NULL;
	}
}

static bool is_html(const char *s)
{
	return s[strspn(s, " \t\r\n")] == '<';
}

/* A text body is short on purpose ("Failed to route request to sandbox"); a page is not shown. */
static void read_error(struct e2b_fault *fault, const struct text *body)
{
	if (e2b_error_parse(text_str(body), body->len, &fault->error) >= 0)
		return;
	fault->error = (struct e2b_error){0};
	if (!is_html(text_str(body)))
		snprintf(fault->error.message, sizeof(fault->error.message), "%.*s",
			 (int)strcspn(text_str(body), "\r\n"), text_str(body));
}

static void fill_without_answer(struct e2b_fault *fault, const char *what,
				const struct http_call *call, int err)
{
	fault->unsure = call->sent;
	if (err == -ENOMEM)
		fault->err = err;
	else
		fault->err = call->sent ? -EIO : -EHOSTUNREACH;
	snprintf(fault->text, sizeof(fault->text), "e2b: %s at %s: %s", what, call->url, call->why);
}

/* What a server says may be anything, and goes to terminals. */
static void clean(struct e2b_fault *fault)
{
	AUTO_TEXT struct text printable = {0};

	if (text_append_printable(&printable, fault->text, strlen(fault->text)) == 0)
		snprintf(fault->text, sizeof(fault->text), "%s", text_str(&printable));
}

void e2b_fault_of_answer(struct e2b_fault *fault, const char *what, const struct http_call *call,
			 int err, const struct text *body)
{
	const char *hint = advice(call->status);
	size_t len;

	*fault = (struct e2b_fault){.status = call->status, .retry_after_s = call->retry_after_s};
	if (!call->status) {
		fill_without_answer(fault, what, call, err);
		return;
	}
	read_error(fault, body);
	fault->err =
		fault->error.code[0] ? error_of_code(&fault->error) : error_of_status(call->status);
	/* The proxy's word for a sandbox that was killed, has expired or is paused. */
	fault->sandbox_gone = call->status == 502 && says(&fault->error, "sandbox was not found");
	if (fault->sandbox_gone)
		fault->err = -ENXIO;
	fault->unsure = err < 0 || (unsure_status(call->status) && !fault->sandbox_gone &&
				    !says(&fault->error, "port is not open"));
	if (call->status == 200)
		snprintf(fault->error.message, sizeof(fault->error.message),
			 "the answer is \"%s\", which was not asked for", call->content_type);
	len = (size_t)snprintf(fault->text, sizeof(fault->text), "e2b: %s at %s: HTTP %d: %s", what,
			       call->url, call->status,
			       fault->error.message[0] ? fault->error.message : "no message");
	if (fault->retry_after_s && len < sizeof(fault->text))
		len += (size_t)snprintf(fault->text + len, sizeof(fault->text) - len,
					" (again in %u s)", fault->retry_after_s);
	if (hint && len < sizeof(fault->text))
		snprintf(fault->text + len, sizeof(fault->text) - len, ": %s", hint);
	clean(fault);
}

void e2b_fault_of_trailer(struct e2b_fault *fault, const char *what, const struct e2b_error *error)
{
	*fault = (struct e2b_fault){
		.err = error_of_code(error),
		.status = 200,
		.unsure = !is_refusal(error->code),
		.error = *error,
	};
	snprintf(fault->text, sizeof(fault->text), "e2b: %s: %s: %s", what,
		 error->code[0] ? error->code : "error", error->message);
	clean(fault);
}

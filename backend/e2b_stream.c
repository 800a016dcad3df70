/* The stream of a Start: envelopes into events, with one event held when there is no room. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bounds.h"
#include "e2b_rpc.h"
#include "e2b_sandbox.h"

/* A Start with one envelope before its message, as the streaming form wants. */
static int encode_start(struct e2b_stream *s)
{
	struct e2b_request request = {.method = E2B_START, .start = s->start};
	uint8_t header[ENVELOPE_HEADER_BYTES] = {0};
	int err = text_append(&s->body, header, sizeof(header));

	if (err == 0)
		err = s->codec->encode(&request, &s->body);
	if (err < 0)
		return err;
	envelope_header(header, 0, s->body.len - sizeof(header));
	memcpy(s->body.data, header, sizeof(header));
	return 0;
}

static int add_headers(struct e2b_stream *s)
{
	struct http_headers *headers = &s->call.headers;
	int err = e2b_rpc_headers(headers, s->sandbox, s->user, s->codec->stream_type);

	if (err == 0)
		err = http_header(headers, "Keepalive-Ping-Interval: %d", E2B_KEEPALIVE_S);
	/* To envd this is the limit of the process, too: only helpers get one. */
	if (err == 0 && s->kill_s)
		err = http_header(headers, "Connect-Timeout-Ms: %u", s->kill_s * 1000);
	return err;
}

static int make_call(struct e2b_stream *s)
{
	s->codec = s->sandbox->codec;
	text_wipe(&s->body);
	text_done(&s->refusal);
	if (e2b_rpc_url(&s->url, s->sandbox, E2B_START) < 0 || add_headers(s) < 0 ||
	    encode_start(s) < 0) {
		http_headers_done(&s->call.headers);
		text_wipe(&s->body);
		return -ENOMEM;
	}
	s->call.method = "POST";
	s->call.url = text_str(&s->url);
	s->call.body = text_str(&s->body);
	s->call.body_len = s->body.len;
	s->call.limit_ms = s->limit_ms;
	s->heard_ns = monotonic_ns();
	return http_begin(s->sandbox->e2b->http, &s->call);
}

/* Ends a stream that cannot be read on. */
static void fail(struct e2b_stream *s, int err, const char *what)
{
	struct e2b_fault fault = {.err = err, .status = 200, .unsure = true};

	snprintf(fault.text, sizeof(fault.text),
		 "the stream of Start from sandbox %s was broken off: %s", s->sandbox->id, what);
	e2b_stream_cancel(s);
	s->done(s, &fault);
}

static const char *framing_text(int err)
{
	if (err == -E2BIG)
		return "an envelope is longer than any that this program takes";
	if (err == -ENOMEM)
		return "no memory";
	return "unknown flags, a compressed envelope or bytes after the end";
}

/* Keeps what the owner did not take: a payload in the codec's own memory stays there. */
static int hold(struct e2b_stream *s, const struct e2b_event *event)
{
	s->held = *event;
	if (!event->message) {
		text_done(&s->held_text);
		if (text_append(&s->held_text, event->payload.data, event->payload.len) < 0)
			return -ENOMEM;
		s->held.payload.data = s->held_text.data;
	}
	s->holding = true;
	http_hold(&s->call);
	return 0;
}

/* Returns 1 when the stream goes on, 0 when it is held or was ended. */
static int take_message(struct e2b_stream *s, const struct envelope *envelope)
{
	struct e2b_event event;
	int err = s->codec->decode(envelope->data, envelope->len, &event);
	bool taken;

	if (err < 0) {
		fail(s, err, err == -ENOMEM ? "no memory" : "a message cannot be read");
		return 0;
	}
	taken = s->event(s, &event);
	if (!http_active(&s->call)) {
		s->codec->release(&event);
		return 0;
	}
	if (!taken) {
		if (hold(s, &event) == 0)
			return 0;
		s->codec->release(&event);
		fail(s, -ENOMEM, "no memory");
		return 0;
	}
	s->codec->release(&event);
	return 1;
}

static bool offer_held(struct e2b_stream *s)
{
	if (!s->event(s, &s->held)) {
		http_hold(&s->call);
		return false;
	}
	s->holding = false;
	s->codec->release(&s->held);
	return true;
}

/* The body of an answer that is not the stream asked for: kept for its message. */
static size_t keep_refusal(struct e2b_stream *s, const char *data, size_t len)
{
	if (s->refusal.len + len <= E2B_REFUSAL_BYTES_MAX)
		text_append(&s->refusal, data, len);
	return len;
}

static bool is_stream(const struct e2b_stream *s)
{
	return e2b_rpc_answered(&s->call, s->codec->stream_type);
}

/* Not the stream asked for, and its end may never come: the command may run behind it. */
static void refuse_type(struct e2b_stream *s)
{
	struct e2b_fault fault;

	e2b_fault_of_answer(&fault, "Start", &s->call, 0, &s->refusal);
	e2b_stream_cancel(s);
	s->done(s, &fault);
}

static size_t stream_body(struct http_call *call, const char *data, size_t len)
{
	struct e2b_stream *s = container_of(call, struct e2b_stream, call);
	const char *rest = data;
	size_t left = len;
	struct envelope envelope;
	int r;

	s->heard_ns = monotonic_ns();
	if (s->call.status == 200 && !is_stream(s)) {
		refuse_type(s);
		return len;
	}
	if (!is_stream(s))
		return keep_refusal(s, data, len);
	if (s->holding && !offer_held(s))
		return 0;
	while (http_active(call) && (r = envelope_next(&s->reader, &rest, &left, &envelope)) != 0) {
		if (r < 0) {
			fail(s, r, framing_text(r));
			return len;
		}
		if (envelope.flags & ENVELOPE_END) {
			s->saw_end = true;
			keep_refusal(s, envelope.data, envelope.len);
		} else if (!take_message(s, &envelope)) {
			break;
		}
	}
	return len - left;
}

static void fail_without_end(struct e2b_stream *s, int err)
{
	char what[300];

	if (err < 0)
		snprintf(what, sizeof(what), "%s", s->call.why);
	else if (!envelope_at_border(&s->reader))
		snprintf(what, sizeof(what), "it ended within an envelope");
	else
		snprintf(what, sizeof(what), "it ended without the envelope that ends a stream");
	fail(s, err < 0 ? err : -ECONNRESET, what);
}

static void end_well(struct e2b_stream *s)
{
	struct e2b_error error;
	struct e2b_fault fault;
	int r = e2b_error_parse(text_str(&s->refusal), s->refusal.len, &error);

	if (r == 0) {
		s->done(s, NULL);
	} else if (r < 0) {
		fail(s, -EPROTO, "its last envelope is not a JSON object");
	} else {
		e2b_fault_of_trailer(&fault, "Start", &error);
		s->done(s, &fault);
	}
}

static void stream_done(struct http_call *call, int err)
{
	struct e2b_stream *s = container_of(call, struct e2b_stream, call);
	struct e2b_fault fault;

	text_wipe(&s->body);
	if (s->saw_end) {
		end_well(s);
	} else if (call->status == 0 || (err == 0 && !is_stream(s))) {
		if (err == 0 && e2b_rpc_turn_to_json(s->sandbox, s->codec, call->status) &&
		    make_call(s) == 0)
			return;
		e2b_fault_of_answer(&fault, "Start", call, err, &s->refusal);
		s->done(s, &fault);
	} else {
		fail_without_end(s, err);
	}
}

int e2b_stream_begin(struct e2b_stream *s)
{
	s->call.on_body = stream_body;
	s->call.on_done = stream_done;
	return make_call(s);
}

void e2b_stream_cancel(struct e2b_stream *s)
{
	http_cancel(&s->call);
	if (s->holding)
		s->codec->release(&s->held);
	s->holding = false;
	text_done(&s->held_text);
	text_wipe(&s->body);
	text_done(&s->refusal);
	text_done(&s->url);
	envelope_reader_done(&s->reader);
}

bool e2b_stream_is_within(const struct e2b_stream *s)
{
	return http_active(&s->call) && !envelope_at_border(&s->reader);
}

void e2b_stream_resume(struct e2b_stream *s)
{
	http_resume(&s->call);
}

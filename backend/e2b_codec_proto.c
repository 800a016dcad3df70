/* The schema is e2b_process.proto; protobuf-c makes e2b_process.pb-c.h of it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "e2b_codec.h"
#include "e2b_process.pb-c.h"

/* A struct text that protobuf-c can append to; the first error stays. */
struct sink {
	ProtobufCBuffer base;
	struct text *text;
	int err;
};

static void sink_append(ProtobufCBuffer *buffer, size_t len, const uint8_t *data)
{
	struct sink *sink = (struct sink *)buffer;

	if (sink->err == 0)
		sink->err = text_append(sink->text, data, len);
}

static int pack(const ProtobufCMessage *message, struct text *ret)
{
	struct sink sink = {.base.append = sink_append, .text = ret};

	protobuf_c_message_pack_to_buffer(message, &sink.base);
	return sink.err;
}

/* The messages only point at what the request has: they are packed at once. */
static int pack_start(Process__StartRequest *message, Process__ProcessConfig *config,
		      const struct e2b_start *start, struct text *ret)
{
	size_t count = start->env_count;
	AUTO_FREE Process__ProcessConfig__EnvsEntry *entries = calloc(count + 1, sizeof(*entries));
	AUTO_FREE Process__ProcessConfig__EnvsEntry **envs = calloc(count + 1, sizeof(void *));

	if (!entries || !envs)
		return -ENOMEM;
	config->envs = envs;
	for (size_t i = 0; i < count; i++) {
		if (!start->envs[i].value)
			continue;
		process__process_config__envs_entry__init(&entries[i]);
		entries[i].key = start->envs[i].name;
		entries[i].value = start->envs[i].value;
		envs[config->n_envs++] = &entries[i];
	}
	return pack(&message->base, ret);
}

static int encode_start(const struct e2b_start *start, struct text *ret)
{
	Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
	Process__StartRequest message = PROCESS__START_REQUEST__INIT;

	config.cmd = (char *)start->cmd;
	config.n_args = start->arg_count;
	config.args = (char **)start->args;
	if (start->cwd) {
		config.cwd_given_case = PROCESS__PROCESS_CONFIG__CWD_GIVEN_CWD;
		config.cwd = (char *)start->cwd;
	}
	message.process = &config;
	message.tag_given_case = PROCESS__START_REQUEST__TAG_GIVEN_TAG;
	message.tag = (char *)start->tag;
	message.stdin_given_case = PROCESS__START_REQUEST__STDIN_GIVEN_STDIN;
	message.stdin = start->input;
	return pack_start(&message, &config, start, ret);
}

static int encode(const struct e2b_request *r, struct text *ret)
{
	Process__ProcessSelector process = PROCESS__PROCESS_SELECTOR__INIT;
	Process__ProcessInput input;
	Process__SendInputRequest send_input = PROCESS__SEND_INPUT_REQUEST__INIT;
	Process__CloseStdinRequest close_stdin = PROCESS__CLOSE_STDIN_REQUEST__INIT;
	Process__SendSignalRequest send_signal = PROCESS__SEND_SIGNAL_REQUEST__INIT;

	process__process_input__init(&input);
	process.selector_case = PROCESS__PROCESS_SELECTOR__SELECTOR_PID;
	process.pid = r->pid;
	switch (r->method) {
	case E2B_START:
		return encode_start(r->start, ret);
	case E2B_LIST:
		return 0;
	case E2B_SEND_INPUT:
		input.input_case = PROCESS__PROCESS_INPUT__INPUT_STDIN;
		input.stdin.data = (uint8_t *)r->input;
		input.stdin.len = r->input_len;
		send_input.process = &process;
		send_input.input = &input;
		return pack(&send_input.base, ret);
	case E2B_CLOSE_STDIN:
		close_stdin.process = &process;
		return pack(&close_stdin.base, ret);
	case E2B_SEND_SIGNAL:
		send_signal.process = &process;
		send_signal.signal = r->signo == SIGTERM ? PROCESS__SIGNAL__SIGNAL_SIGTERM
							 : PROCESS__SIGNAL__SIGNAL_SIGKILL;
		return pack(&send_signal.base, ret);
	}
	return -EINVAL;
}

/* A length-delimited field of that number which is all there is in [*at, end). */
static bool enter(const uint8_t **at, const uint8_t *end, unsigned field)
{
	const uint8_t *p = *at;
	size_t len = 0;

	if (p == end || *p++ != (field << 3 | 2))
		return false;
	for (unsigned shift = 0;; shift += 7) {
		if (p == end || shift > 28)
			return false;
		len |= (size_t)(*p & 0x7f) << shift;
		if (!(*p++ & 0x80))
			break;
	}
	*at = p;
	return len == (size_t)(end - p);
}

/*
 * StartResponse{event{data{stdout}}} and nothing else, which is nearly all that a busy stream
 * consists of: the bytes are found without copying them. All else is left to protobuf-c.
 */
static bool decode_output(const uint8_t *data, size_t len, struct e2b_event *ret)
{
	const uint8_t *at = data;
	const uint8_t *end = data + len;

	if (!enter(&at, end, 1) || !enter(&at, end, 2) || at == end)
		return false;
	ret->kind = *at >> 3 == 1 ? E2B_EVENT_STDOUT : E2B_EVENT_STDERR;
	if (!enter(&at, end, ret->kind == E2B_EVENT_STDOUT ? 1 : 2)) {
		ret->kind = E2B_EVENT_OTHER;
		return false;
	}
	ret->payload = (struct payload){.data = (const char *)at, .len = (size_t)(end - at)};
	return true;
}

static void read_output(const Process__ProcessEvent__DataEvent *data, struct e2b_event *ret)
{
	const ProtobufCBinaryData *bytes;

	if (data->output_case == PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT) {
		ret->kind = E2B_EVENT_STDOUT;
		bytes = &data->stdout;
	} else if (data->output_case == PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR) {
		ret->kind = E2B_EVENT_STDERR;
		bytes = &data->stderr;
	} else {
		return;
	}
	ret->payload = (struct payload){.data = (const char *)bytes->data, .len = bytes->len};
}

static int read_event(const Process__ProcessEvent *event, struct e2b_event *ret)
{
	if (event->event_case == PROCESS__PROCESS_EVENT__EVENT_START) {
		if (!event->start->pid)
			return -EPROTO;
		ret->kind = E2B_EVENT_START;
		ret->pid = event->start->pid;
	} else if (event->event_case == PROCESS__PROCESS_EVENT__EVENT_DATA) {
		read_output(event->data, ret);
	} else if (event->event_case == PROCESS__PROCESS_EVENT__EVENT_END) {
		ret->kind = E2B_EVENT_END;
		ret->exit_code = event->end->exit_code;
		ret->exited = event->end->exited;
		snprintf(ret->status, sizeof(ret->status), "%s", event->end->status);
	}
	return 0;
}

static int decode(const char *data, size_t len, struct e2b_event *ret)
{
	Process__StartResponse *message;
	int err = 0;

	*ret = (struct e2b_event){.kind = E2B_EVENT_OTHER};
	if (decode_output((const uint8_t *)data, len, ret))
		return 0;
	message = process__start_response__unpack(NULL, len, (const uint8_t *)data);
	if (!message)
		return -EPROTO;
	ret->message = message;
	if (message->event)
		err = read_event(message->event, ret);
	if (err < 0)
		e2b_proto.release(ret);
	return err;
}

static void release(struct e2b_event *event)
{
	if (event->message)
		process__start_response__free_unpacked(event->message, NULL);
	event->message = NULL;
}

const struct e2b_codec e2b_proto = {
	.name = "proto",
	.stream_type = "application/connect+proto",
	.unary_type = "application/proto",
	.encode = encode,
	.decode = decode,
	.release = release,
};

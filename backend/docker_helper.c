#include "docker_helper.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "docker_body.h"
#include "docker_failure.h"
#include "log.h"
#include "random_hex.h"

static void timer_fired(struct timer *timer);
static void task_run(struct task *task);
static void fail(struct docker_helper *h, int err, const char *why);

void docker_helper_init(struct docker_helper *h, struct docker_api *api, const char *name,
			const char *user, const char *prefix)
{
	*h = (struct docker_helper){
		.privileged = true,
		.api = api,
		.name = name,
		.user = user,
		.prefix = prefix,
		.timer = {.fire = timer_fired},
	};
	task_init(&h->task, task_run);
	list_init(&h->ensures);
	list_init(&h->asks);
}

static void let_go(struct docker_helper *h)
{
	docker_call_cancel(&h->call);
	docker_stream_close(&h->stream);
	timer_cancel(&h->timer);
	text_done(&h->unsent);
	text_done(&h->heard);
	text_done(&h->complaint);
	h->state = DOCKER_HELPER_OFF;
}

void docker_helper_done(struct docker_helper *h)
{
	if (!h->api)
		return;
	let_go(h);
	task_cancel(&h->task);
	free(h->container);
	h->container = NULL;
	/* Signals that were not sent yet: there is nobody left to get them. */
	while (!list_empty(&h->asks)) {
		struct docker_ask *ask = list_first(&h->asks, struct docker_ask, link);

		docker_ask_cancel(ask);
		ask->done(ask, 1, "");
	}
}

/* ---- Asking ---- */

static int print_request(struct text *ret, const struct docker_ask *ask)
{
	static const char *const words[] = {"check", "kill", "signal"};
	int err = text_printf(ret, "%s %u ", words[ask->kind], ask->number);

	if (!err && ask->kind == DOCKER_ASK_SIGNAL)
		err = text_printf(ret, "%d ", ask->signo);
	if (!err)
		err = text_printf(ret, "%s %" PRId64 " %" PRIu64 " ", ask->mark, ask->pid,
				  ask->ticks);
	if (err)
		return err;
	err = ask->runs ? text_printf(ret, "y") : text_printf(ret, "%" PRIu64, ask->until);
	if (!err)
		err = far_survivors(ret, ask->mark, text_str(&ask->survivors));
	return err ? err : text_append(ret, "\n", 1);
}

static void flush(struct docker_helper *h)
{
	while (h->unsent.len && h->stream.up) {
		ssize_t n = docker_stream_write(&h->stream, h->unsent.data, h->unsent.len);

		/* The end of the stream tells of errors. */
		if (n <= 0)
			return;
		docker_drop(&h->unsent, (size_t)n);
	}
}

/* Sends what has not been sent, and watches that an answer comes. */
static void send_asks(struct docker_helper *h)
{
	if (h->state != DOCKER_HELPER_UP)
		return;
	list_for_each (ask, &h->asks, struct docker_ask, link) {
		if (ask->sent)
			continue;
		ask->number = ++h->number;
		if (print_request(&h->unsent, ask) < 0)
			break;
		ask->sent = true;
	}
	flush(h);
	if (!list_empty(&h->asks) && !timer_armed(&h->timer))
		timer_arm(h->api->loop, &h->timer, DOCKER_HELPER_MS);
}

/* "NUMBER none|some|unsure|blind|sent|gone", and for a check when the session was its own. */
static int parse_answer(const char *word, char *why, size_t why_size)
{
	if (strcmp(word, "none") == 0 || strcmp(word, "sent") == 0)
		return 0;
	if (strcmp(word, "unsure") == 0) {
		snprintf(why, why_size,
			 "processes are left there that cannot be told from another's: they have "
			 "cleared their environment, and the command has ended");
		return -EBUSY;
	}
	if (strcmp(word, "some") == 0 || strcmp(word, "gone") == 0)
		return 1;
	snprintf(why, why_size, "docker: the shell in the container cannot look into its /proc");
	return -EOPNOTSUPP;
}

/* Later its session alone would prove less. */
static void note_found(struct docker_ask *ask, uint64_t until, const char *survivors)
{
	if (ask->kind != DOCKER_ASK_CHECK)
		return;
	ask->until = MAX(ask->until, until);
	ask->survivors.len = 0;
	text_printf(&ask->survivors, "%s", survivors);
}

static void take_answer(struct docker_helper *h, const char *line)
{
	unsigned number;
	char word[16];
	char why[160] = "";
	uint64_t until = 0;
	int n = 0;

	if (sscanf(line, "%u %15s %" SCNu64 "%n", &number, word, &until, &n) < 2)
		return;
	timer_cancel(&h->timer);
	list_for_each_safe (ask, &h->asks, struct docker_ask, link) {
		if (!ask->sent || ask->number != number)
			continue;
		docker_ask_cancel(ask);
		note_found(ask, until, n ? line + n : "");
		ask->done(ask, parse_answer(word, why, sizeof(why)), why);
		break;
	}
	send_asks(h);
}

void docker_helper_ask(struct docker_helper *h, struct docker_ask *ask, enum docker_ask_kind kind)
{
	docker_ask_cancel(ask);
	ask->kind = kind;
	ask->sent = false;
	ask->queued = true;
	list_init(&ask->link);
	list_append(&h->asks, &ask->link);
	loop_defer(h->api->loop, &h->task);
}

void docker_ask_cancel(struct docker_ask *ask)
{
	if (ask->queued)
		list_remove(&ask->link);
	ask->queued = false;
}

/* ---- Ends ---- */

static void tell_ensures(struct docker_helper *h, int err, const char *why)
{
	while (!list_empty(&h->ensures)) {
		struct docker_ensure *ensure = list_first(&h->ensures, struct docker_ensure, link);

		docker_ensure_cancel(ensure);
		ensure->done(ensure, err, why);
	}
}

/* The helper is lost, or is not to be had: whoever waits is told, and may ask again. */
static void fail(struct docker_helper *h, int err, const char *why)
{
	struct list asks;

	let_go(h);
	list_init(&asks);
	list_splice(&asks, &h->asks);
	while (!list_empty(&asks)) {
		struct docker_ask *ask = list_first(&asks, struct docker_ask, link);

		docker_ask_cancel(ask);
		ask->done(ask, err, why);
	}
	tell_ensures(h, err, why);
}

static void up(struct docker_helper *h)
{
	h->state = DOCKER_HELPER_UP;
	h->shell = true;
	timer_cancel(&h->timer);
	tell_ensures(h, 0, "");
	send_asks(h);
}

/* What came instead of the helper's first line: the engine's reason, on stdout or stderr. */
static void never_came_up(struct docker_helper *h)
{
	const char *said = text_str(h->heard.len ? &h->heard : &h->complaint);
	AUTO_TEXT struct text why = {0};
	struct docker_failure failure = docker_failure_parse(said);
	bool no_shell = failure.program;

	text_printf(&why, "docker: /bin/sh does not start in the container %s: %.*s", h->name,
		    (int)strcspn(said, "\r\n"), said);
	if (!no_shell && !h->privileged) {
		/* A user that is not there, say. */
		fail(h, failure.err == -EIO ? -ENXIO : failure.err, text_str(&why));
		return;
	}
	/* An engine without privileges of its own has none to give. */
	if (!no_shell)
		log_debug("%s", text_str(&why));
	h->privileged = h->privileged && no_shell;
	/* Without a shell, commands can be run all the same; docs/docker.md says what is lost. */
	h->shell = false;
	h->no_shell = no_shell;
	let_go(h);
	loop_defer(h->api->loop, &h->task);
}

static void timer_fired(struct timer *timer)
{
	struct docker_helper *h = container_of(timer, struct docker_helper, timer);

	fail(h, -ETIMEDOUT, "docker: the helper in the container does not answer");
}

/* ---- The stream ---- */

static void stream_answered(struct docker_stream *s, int err)
{
	struct docker_helper *h = container_of(s, struct docker_helper, stream);
	AUTO_TEXT struct text why = {0};

	if (s->up) {
		flush(h);
		return;
	}
	err = docker_why(h->api, err, &s->answer, &s->body, &why,
			 "docker: cannot start the helper in the container");
	fail(h, err, text_str(&why));
}

static size_t stream_output(struct docker_stream *s, enum stream_id id, const char *data,
			    size_t len)
{
	struct docker_helper *h = container_of(s, struct docker_helper, stream);
	struct text *into = id == STREAM_STDOUT ? &h->heard : &h->complaint;

	if (into->len + len <= DOCKER_HELPER_BYTES_MAX && text_append(into, data, len) == 0)
		loop_defer(h->api->loop, &h->task);
	return len;
}

static void stream_room(struct docker_stream *s)
{
	flush(container_of(s, struct docker_helper, stream));
}

static void stream_ended(struct docker_stream *s, int err)
{
	struct docker_helper *h = container_of(s, struct docker_helper, stream);

	/* Nothing of it ran: what the engine says instead stands in the stream. */
	if (h->state == DOCKER_HELPER_MAKING && !err)
		never_came_up(h);
	else
		fail(h, -ENXIO, "docker: the helper in the container has ended");
}

static const struct docker_stream_events stream_events = {
	.answered = stream_answered,
	.output = stream_output,
	.room = stream_room,
	.ended = stream_ended,
};

/* Takes whole lines of what the helper said. */
static void hear(struct docker_helper *h)
{
	for (;;) {
		char *end = h->heard.len ? memchr(h->heard.data, '\n', h->heard.len) : NULL;
		AUTO_FREE char *line = NULL;

		if (!end)
			return;
		line = strndup(h->heard.data, (size_t)(end - h->heard.data));
		docker_drop(&h->heard, (size_t)(end - h->heard.data) + 1);
		if (!line)
			continue;
		if (h->state == DOCKER_HELPER_UP)
			take_answer(h, line);
		else if (strncmp(line, h->mark, strlen(h->mark)) == 0)
			up(h);
		else
			text_printf(&h->complaint, "%s\n", line);
	}
}

/* ---- Making it ---- */

static void made(struct docker_call *call, int err)
{
	struct docker_helper *h = container_of(call, struct docker_helper, call);
	AUTO_TEXT struct text why = {0};
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text body = {0};
	AUTO_FREE char *id = NULL;

	if (!err && call->answer.status == 201)
		id = docker_call_string(call, "Id");
	if (!id) {
		err = docker_why(call->api, err, &call->answer, &call->body, &why,
				 "docker: cannot make a helper in the container");
		fail(h, err, text_str(&why));
		return;
	}
	err = text_printf(&path, "/exec/%s/start", id);
	if (!err)
		err = text_printf(&body, "{\"Detach\":false,\"Tty\":false}");
	if (!err)
		err = docker_stream_open(&h->stream, h->api, text_str(&path), &body,
					 &stream_events);
	if (err < 0)
		fail(h, err, "docker: out of memory");
}

static void found(struct docker_call *call, int err)
{
	struct docker_helper *h = container_of(call, struct docker_helper, call);
	AUTO_TEXT struct text why = {0};
	AUTO_TEXT struct text path = {0};
	AUTO_TEXT struct text body = {0};
	cJSON *json = err ? NULL : docker_call_json(call);
	const cJSON *state = cJSON_GetObjectItemCaseSensitive(json, "State");
	bool running = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(state, "Running"));
	char *id = docker_call_string(call, "Id");

	cJSON_Delete(json);
	if (err < 0 || call->answer.status != 200 || !id) {
		free(id);
		text_printf(&path, "docker: cannot use the container %s", h->name);
		err = docker_why(call->api, err, &call->answer, &call->body, &why, text_str(&path));
		fail(h, err, text_str(&why));
		return;
	}
	free(h->container);
	h->container = id;
	if (!running) {
		text_printf(&why, "docker: the container %s does not run: start it", h->name);
		fail(h, -ENXIO, text_str(&why));
		return;
	}
	text_printf(&path, "/containers/%s/exec", id);
	docker_shell_body(&body, h->mark, h->user, h->privileged);
	docker_call_start(&h->call, h->api, "POST", text_str(&path), &body, DOCKER_CALL_MS, made);
}

static int make(struct docker_helper *h)
{
	AUTO_TEXT struct text path = {0};
	int err = random_hex(h->mark, FAR_MARK_HEX);

	if (!err)
		err = far_helper(&h->unsent, h->prefix);
	if (!err)
		err = text_printf(&path, "/containers/%s/json", h->name);
	if (err < 0)
		return err;
	h->state = DOCKER_HELPER_MAKING;
	docker_call_start(&h->call, h->api, "GET", text_str(&path), NULL, DOCKER_CALL_MS, found);
	timer_arm(h->api->loop, &h->timer, DOCKER_HELPER_MS);
	return 0;
}

static void task_run(struct task *task)
{
	struct docker_helper *h = container_of(task, struct docker_helper, task);
	int err;

	hear(h);
	if (h->state == DOCKER_HELPER_UP) {
		tell_ensures(h, 0, "");
		send_asks(h);
		return;
	}
	if (h->state == DOCKER_HELPER_OFF && h->no_shell) {
		tell_ensures(h, 0, "");
		if (!list_empty(&h->asks))
			fail(h, -EOPNOTSUPP, "docker: the container has no /bin/sh");
		return;
	}
	if (h->state != DOCKER_HELPER_OFF || (list_empty(&h->ensures) && list_empty(&h->asks)))
		return;
	err = make(h);
	if (err < 0)
		fail(h, err, "docker: out of memory");
}

void docker_helper_ensure(struct docker_helper *h, struct docker_ensure *ensure)
{
	docker_ensure_cancel(ensure);
	list_init(&ensure->link);
	list_append(&h->ensures, &ensure->link);
	ensure->queued = true;
	loop_defer(h->api->loop, &h->task);
}

void docker_helper_forget(struct docker_helper *h)
{
	h->no_shell = false;
}

void docker_ensure_cancel(struct docker_ensure *ensure)
{
	if (ensure->queued)
		list_remove(&ensure->link);
	ensure->queued = false;
}

/* ---- Signals ---- */

/* One outlives the call that asked for it, and nobody waits for what becomes of it. */
struct sent_signal {
	struct docker_ask ask;
	char mark[DOCKER_MARK_SIZE];
};

static void signal_answered(struct docker_ask *ask, int answer, const char *why)
{
	struct sent_signal *sent = container_of(ask, struct sent_signal, ask);

	if (answer < 0)
		log_warning("docker: signal %d was not sent: %s", ask->signo, why);
	free(sent);
}

int docker_helper_signal(struct docker_helper *h, const struct docker_ask *leader, const char *mark,
			 int signo)
{
	struct sent_signal *sent = calloc(1, sizeof(*sent));

	if (!sent)
		return -ENOMEM;
	snprintf(sent->mark, sizeof(sent->mark), "%s", mark);
	sent->ask = (struct docker_ask){
		.mark = sent->mark,
		.pid = leader->pid,
		.ticks = leader->ticks,
		.signo = signo,
		.done = signal_answered,
	};
	docker_helper_ask(h, &sent->ask, DOCKER_ASK_SIGNAL);
	return 0;
}

/*
 * The helper: one far shell for each connection that answers questions about the commands of it
 * (far_helper()). It keeps its session, so that a kill never waits for a free one or for a
 * login shell; and when its input ends, since the connection broke or the daemon died, it kills all
 * that was started over this connection, whether or not anybody comes back.
 *
 * One request at a time is on its way; what is asked meanwhile is asked together, since one walk
 * over /proc does for all.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "log.h"
#include "random_hex.h"
#include "ssh.h"

static struct ssh_command *command_of(struct ssh_errand *errand)
{
	return container_of(errand, struct ssh_command, errand);
}

/* ---- Sending ---- */

static void send_line(struct ssh_helper *h)
{
	if (!h->channel || !h->there)
		return;
	h->line_at +=
		ssh_channel_send(h->channel, h->line.data + h->line_at, h->line.len - h->line_at);
	if (h->line_at < h->line.len)
		return;
	h->line.len = h->line_at = 0;
}

/*
 * What a leader's number is worth (far_walk()). When it has ended, its session is the command's own
 * for a while: as long as the host cannot have given the number to another process, over a
 * connection that has held. After that, what was known once is all.
 */
static int add_worth(struct text *line, const struct ssh_command *c)
{
	if (!c->lost && !c->held_ns)
		return text_printf(line, " r");
	if (!c->lost && monotonic_ns() - c->held_ns < (uint64_t)SSH_TRUST_MS * 1000000)
		return text_printf(line, " y");
	return text_printf(line, " %" PRIu64, c->until);
}

/* The leader, and what a look has found before: each as MARK PID TICKS and a letter. */
static int add_command(struct text *line, const struct ssh_command *c)
{
	int err = text_printf(line, " %s %lld %s", c->mark, (long long)c->pid,
			      *c->ticks ? c->ticks : "0");

	err = err ? err : add_worth(line, c);
	return err ? err : far_survivors(line, c->mark, text_str(&c->survivors));
}

static int add_errands(struct ssh_helper *h)
{
	struct ssh_errand *first = list_first(&h->queue, struct ssh_errand, link);
	enum ssh_errand_kind kind = first->kind;
	bool alone = first->alone;
	size_t count = 0;
	int err = text_printf(&h->line, "%s %u", kind == SSH_KILL ? "kill" : "check", ++h->number);

	list_for_each_safe (errand, &h->queue, struct ssh_errand, link) {
		if (count && (alone || errand->alone || errand->kind != kind))
			continue;
		if (count == SSH_ERRAND_BATCH)
			break;
		err = err ? err : add_command(&h->line, command_of(errand));
		list_remove(&errand->link);
		list_append(&h->asked, &errand->link);
		count++;
	}
	return err ? err : text_append(&h->line, "\n", 1);
}

static void answer_all(struct list *errands, enum ssh_answer answer);
static void give_up(struct ssh_helper *h, const char *why);

static void ask_next(struct ssh_helper *h)
{
	if (!h->ready || h->failed || !list_empty(&h->asked) || list_empty(&h->queue) ||
	    timer_armed(&h->together))
		return;
	if (add_errands(h) < 0 || timer_arm(h->ssh->backend.loop, &h->patience, SSH_HELPER_MS) < 0)
		give_up(h, "no memory");
	else
		send_line(h);
}

static void on_together(struct timer *timer)
{
	ask_next(container_of(timer, struct ssh_helper, together));
}

void ssh_helper_ask(struct ssh_helper *h, struct ssh_errand *errand)
{
	struct ssh_command *c = command_of(errand);

	/* Nobody waits for what has ended; what runs is killed now. */
	bool hurry = errand->kind == SSH_KILL && !c->closed;

	list_remove(&errand->link);
	list_append(&h->queue, &errand->link);
	if (hurry)
		timer_cancel(&h->together);
	else if (!timer_armed(&h->together) && list_empty(&h->asked))
		timer_arm(h->ssh->backend.loop, &h->together, SSH_CHECK_MS);
	ask_next(h);
}

int ssh_helper_signal(struct ssh_helper *h, const struct ssh_command *c, int signo)
{
	int err;

	if (!h || !h->ready || h->failed)
		return -EHOSTUNREACH;
	err = text_printf(&h->line, "signal 0 %d", signo);
	err = err ? err : add_command(&h->line, c);
	err = err ? err : text_append(&h->line, "\n", 1);
	send_line(h);
	return err;
}

/* ---- Answers ---- */

static void answer_all(struct list *errands, enum ssh_answer answer)
{
	while (!list_empty(errands)) {
		struct ssh_errand *errand = list_first(errands, struct ssh_errand, link);

		list_remove(&errand->link);
		errand->done(errand, answer);
	}
}

/* What is said about many says nothing about any: each is asked about by itself. */
static void split(struct ssh_helper *h)
{
	list_for_each (errand, &h->asked, struct ssh_errand, link)
		errand->alone = true;
	list_splice(&h->queue, &h->asked);
}

/* Who they are is kept: later their session alone would prove less. words: "UNTIL PID TICKS..." */
static void note_survivors(struct ssh_helper *h, const char *words)
{
	struct ssh_errand *errand = list_first(&h->asked, struct ssh_errand, link);
	struct ssh_command *c = command_of(errand);
	char *pids;
	uint64_t until = strtoull(words, &pids, 10);

	if (errand->kind == SSH_CHECK) {
		c->until = MAX(c->until, until);
		c->survivors.len = 0;
		text_printf(&c->survivors, "%s", pids);
	}
}

/*
 * Whether what is not found there has ended. Behind one name there may be several hosts, and
 * a session may have a PID name space of its own. A machine that was started anew has nothing of
 * before; so much is said only of real ones, in whose first name space it is looked.
 */
static bool proves_end(const struct ssh_place *there, const struct ssh_place *of_command)
{
	static const char first_space[] = "pid:[4026531836]";
	const struct ssh_place *a = there;
	const struct ssh_place *b = of_command;

	if (strcmp(a->boot, b->boot) == 0)
		return strcmp(a->space, b->space) == 0;
	return strlen(a->machine) == 32 && strcmp(a->machine, b->machine) == 0 &&
	       strcmp(a->space, first_space) == 0 && strcmp(b->space, first_space) == 0;
}

static void tell_none(struct ssh_helper *h, struct list *errands)
{
	while (!list_empty(errands)) {
		struct ssh_errand *errand = list_first(errands, struct ssh_errand, link);

		list_remove(&errand->link);
		errand->done(errand, proves_end(&h->place, &command_of(errand)->place)
					     ? SSH_NONE_LEFT
					     : SSH_ELSEWHERE);
	}
}

static void take_answer(struct ssh_helper *h, const char *word, const char *rest)
{
	struct list asked;
	bool one = list_empty(&h->asked) || h->asked.next->next == &h->asked;
	enum ssh_answer answer = SSH_BLIND;

	timer_cancel(&h->patience);
	if (strcmp(word, "none") == 0)
		answer = SSH_NONE_LEFT;
	else if (strcmp(word, "some") == 0)
		answer = SSH_SOME_LEFT;
	else if (strcmp(word, "unsure") == 0)
		answer = SSH_UNSURE;
	if ((answer == SSH_SOME_LEFT || answer == SSH_UNSURE) && !one) {
		split(h);
	} else {
		if (answer == SSH_SOME_LEFT && !list_empty(&h->asked))
			note_survivors(h, rest);
		list_init(&asked);
		list_splice(&asked, &h->asked);
		if (answer == SSH_NONE_LEFT)
			tell_none(h, &asked);
		else
			answer_all(&asked, answer);
	}
	ask_next(h);
}

static void take_readiness(struct ssh_helper *h, const char *way, const char *self)
{
	timer_cancel(&h->patience);
	h->ready = true;
	h->sees = strcmp(way, "blind") != 0 &&
		  sscanf(self, "%" SCNd64 " %" SCNu64 " %39s %31s %39s", &h->pid, &h->ticks,
			 h->place.boot, h->place.space, h->place.machine) == 5;
	if (!h->sees)
		ssh_note_blind(h->ssh);
	ssh_pool_helper_changed(h->ssh);
	ask_next(h);
}

/* Lines are "MARK PID", "0 WAY PID TICKS", then "NUMBER WORD [UNTIL [PID TICKS]...]". */
static void take_line(struct ssh_helper *h, const char *line)
{
	unsigned number;
	char word[16];
	int n = 0;

	if (!h->there) {
		const char *mark = strstr(line, h->mark);

		h->there = mark && mark[FAR_MARK_HEX] == ' ';
		if (h->there)
			send_line(h);
		return;
	}
	if (sscanf(line, "%u %15s%n", &number, word, &n) != 2)
		return;
	if (!h->ready && number == 0)
		take_readiness(h, word, line + n);
	else if (h->ready && number == h->number)
		take_answer(h, word, line + n);
}

/* It is given no secret, so it can tell none. */
static void log_complaint(struct ssh_helper *h, const char *data, size_t len)
{
	AUTO_TEXT struct text line = {0};

	if (h->there && text_append_printable(&line, data, MIN(len, (size_t)200)) == 0)
		log_info("ssh: %s: the helper shell said: %s", h->ssh->options.host,
			 text_str(&line));
}

static void on_data(void *owner, enum stream_id stream, const char *data, size_t len)
{
	struct ssh_helper *h = owner;
	char *newline;

	ssh_channel_consumed(h->channel, len);
	if (stream == STREAM_STDERR) {
		log_complaint(h, data, len);
		return;
	}
	if (text_append(&h->said, data, len) < 0)
		return;
	while (h->said.len && (newline = memchr(h->said.data, '\n', h->said.len))) {
		size_t n = (size_t)(newline + 1 - h->said.data);

		*newline = '\0';
		take_line(h, h->said.data);
		memmove(h->said.data, h->said.data + n, h->said.len - n);
		h->said.len -= n;
	}
	if (h->said.len > SSH_NOISE_BYTES)
		h->said.len = 0;
}

/* ---- Its end ---- */

/* Its channel stays open: the end of its input would be the end of commands that are well. */
static void give_up(struct ssh_helper *h, const char *why)
{
	if (h->failed)
		return;
	h->failed = true;
	log_warning("ssh: %s: the helper shell on this connection is out of service (%s): kills "
		    "go over another",
		    h->ssh->options.host, why);
	list_splice(&h->ssh->errands, &h->asked);
	list_splice(&h->ssh->errands, &h->queue);
	ssh_pool_helper_changed(h->ssh);
}

static void on_patience(struct timer *timer)
{
	give_up(container_of(timer, struct ssh_helper, patience), "it does not answer");
}

static void on_room(void *owner)
{
	send_line(owner);
}

static void on_refused(void *owner, bool full, const char *why)
{
	struct ssh_helper *h = owner;

	h->channel = NULL;
	give_up(h, why);
}

static void on_exited(void *owner, int code)
{
	struct ssh_helper *h = owner;

	snprintf(h->end, sizeof(h->end), "it exited with %d", code);
}

static void on_signaled(void *owner, const char *name)
{
	struct ssh_helper *h = owner;

	snprintf(h->end, sizeof(h->end), "it was ended by signal %s", name);
}

/* Somebody on the host has ended it: without one, nobody there kills when the connection breaks. */
static void on_closed(void *owner)
{
	struct ssh_helper *h = owner;

	h->channel = NULL;
	timer_cancel(&h->patience);
	if (!h->ready || h->failed || h->restarts == SSH_HELPER_RESTARTS) {
		give_up(h, h->end);
		return;
	}
	log_warning("ssh: %s: the helper shell on this connection is started again: %s",
		    h->ssh->options.host, h->end);
	h->restarts++;
	list_splice(&h->queue, &h->asked);
	ssh_helper_start(h);
}

/* The link tells its owner, who frees us. */
static void on_lost(void *owner, const char *why)
{
	struct ssh_helper *h = owner;

	h->channel = NULL;
}

static void ignore(void *owner)
{
}

static const struct ssh_channel_events helper_events = {
	.refused = on_refused,
	.data = on_data,
	.room = on_room,
	.input_closed = ignore,
	.exited = on_exited,
	.signaled = on_signaled,
	.eof = ignore,
	.pong = ignore,
	.closed = on_closed,
	.lost = on_lost,
};

/* ---- Its beginning ---- */

int ssh_helper_new(struct ssh *ssh, struct ssh_helper **ret)
{
	struct ssh_helper *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->ssh = ssh;
	/* Not of the prefix, by which it kills. */
	if (random_hex(h->mark, FAR_MARK_HEX) < 0 || random_hex(h->prefix, SSH_PREFIX_HEX) < 0) {
		free(h);
		return -EIO;
	}
	list_init(&h->commands);
	list_init(&h->queue);
	list_init(&h->asked);
	h->patience.fire = on_patience;
	h->together.fire = on_together;
	*ret = h;
	return 0;
}

void ssh_helper_start(struct ssh_helper *h)
{
	AUTO_TEXT struct text command = {0};

	h->there = h->ready = h->sees = false;
	h->said.len = h->line.len = h->line_at = 0;
	strcpy(h->end, "the server ended its session");
	if (far_ready_command(&command, h->mark) < 0 || far_helper(&h->line, h->prefix) < 0 ||
	    ssh_channel_open(h->link, &helper_events, h, text_str(&command), &h->channel) < 0 ||
	    timer_arm(h->ssh->backend.loop, &h->patience, SSH_HELPER_MS) < 0)
		give_up(h, "no memory");
}

bool ssh_helper_settled(const struct ssh_helper *h)
{
	return !h->channel || h->ready || h->failed;
}

void ssh_helper_join(struct ssh_helper *h, struct ssh_command *c)
{
	c->helper = h;
	list_append(&h->commands, &c->of_helper);
}

void ssh_helper_leave(struct ssh_command *c)
{
	list_remove(&c->of_helper);
	c->helper = NULL;
}

bool ssh_helper_usable(const struct ssh_helper *h)
{
	return h->channel && !h->failed;
}

/*
 * Commands whose channel had ended before are not told of the link's death by it; nor those on
 * another connection, which die by the end of the helper's input all the same.
 */
void ssh_helper_free(struct ssh_helper *h, const char *why)
{
	list_for_each_safe (c, &h->commands, struct ssh_command, of_helper) {
		ssh_helper_leave(c);
		c->lost = true;
		ssh_command_note_held(c, h->link ? h->link->heard_ns : 0);
		if (c->channel)
			ssh_command_lose(c, why);
	}
	list_splice(&h->ssh->errands, &h->asked);
	list_splice(&h->ssh->errands, &h->queue);
	timer_cancel(&h->patience);
	timer_cancel(&h->together);
	if (h->channel)
		ssh_channel_release(h->channel);
	text_done(&h->said);
	text_done(&h->line);
	free(h);
}

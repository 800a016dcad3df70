/*
 * The connections to the host. The first is made at the mount; another when the server has no
 * session left on those there are (MaxSessions of sshd_config(5)), or when the last
 * has broken and something is to be done. All but the first never ask anything.
 */
#include <errno.h>
#include <string.h>

#include "bounds.h"
#include "log.h"
#include "ssh.h"

static const struct ssh_link_events link_events;

static struct ssh_helper *helper_of(const struct ssh_link *link)
{
	return link->owner;
}

bool ssh_pool_up(const struct ssh *ssh)
{
	list_for_each (link, &ssh->links, struct ssh_link, link)
		if (link->up)
			return true;
	return false;
}

/* Commands on it would outlive a connection that breaks before its helper is there. */
static bool settled(const struct ssh_link *link)
{
	return link->up && ssh_helper_settled(helper_of(link));
}

static bool making(const struct ssh *ssh)
{
	list_for_each (link, &ssh->links, struct ssh_link, link)
		if (!settled(link))
			return true;
	return false;
}

/* ---- Making one ---- */

int ssh_pool_connect(struct ssh *ssh, struct text *why)
{
	struct ssh_helper *helper;
	struct ssh_link *link;
	int err = ssh_helper_new(ssh, &helper);

	if (err < 0)
		return text_fail(why, err, "no memory");
	err = ssh_link_start(ssh->backend.loop, &link_events, helper, &ssh->options,
			     ssh->opening ? SSH_MASTER_ASKING : SSH_MASTER_SILENT, &link, why);
	if (err < 0) {
		ssh_helper_free(helper, "");
		return err;
	}
	helper->link = link;
	list_append(&ssh->links, &link->link);
	ssh->link_count++;
	return 0;
}

/* What a failure to connect is for those who wanted to use the connection. */
static int failure_errno(const char *why)
{
	if (strstr(why, "Permission denied") || strstr(why, "verification failed") ||
	    strstr(why, "Too many authentication failures"))
		return -EACCES;
	if (strstr(why, "Could not resolve"))
		return -ENXIO;
	return -EHOSTUNREACH;
}

static void set_failure(struct ssh *ssh, int err, const char *why)
{
	ssh->failure_err = err;
	text_done(&ssh->failure);
	text_printf(&ssh->failure, "%s", why);
	ssh->retry_ms = MIN(MAX(2 * ssh->retry_ms, (uint64_t)SSH_RETRY_FIRST_MS),
			    (uint64_t)SSH_RETRY_LAST_MS);
	ssh->not_before_ns = monotonic_ns() + ssh->retry_ms * 1000000;
}

/* Nothing can be done over a connection, and none is on its way. */
static void fail_waiting(struct ssh *ssh)
{
	struct list queue, errands;

	list_init(&queue);
	list_init(&errands);
	list_splice(&queue, &ssh->queue);
	list_splice(&errands, &ssh->errands);
	list_for_each_safe (c, &queue, struct ssh_command, link) {
		list_remove(&c->link);
		ssh_command_no_link(c, ssh->failure_err, text_str(&ssh->failure));
	}
	list_for_each_safe (errand, &errands, struct ssh_errand, link) {
		list_remove(&errand->link);
		errand->done(errand, SSH_NO_ANSWER);
	}
}

/*
 * Makes a connection for what waits, unless one is being made. After a failure not at
 * once: those who have no other way are told, and ask again.
 */
static void connect_for_waiting(struct ssh *ssh)
{
	AUTO_TEXT struct text why = {0};
	int err;

	if (making(ssh) || (list_empty(&ssh->queue) && list_empty(&ssh->errands)))
		return;
	if (ssh->link_count < SSH_LINKS_MAX && monotonic_ns() >= ssh->not_before_ns) {
		err = ssh_pool_connect(ssh, &why);
		if (!err)
			return;
		set_failure(ssh, err, text_str(&why));
	}
	if (!ssh_pool_up(ssh))
		fail_waiting(ssh);
	else if (ssh->link_count < SSH_LINKS_MAX)
		timer_arm(ssh->backend.loop, &ssh->retry, ssh->retry_ms);
}

/* ---- Using them ---- */

static struct ssh_helper *any_helper(const struct ssh *ssh)
{
	list_for_each (link, &ssh->links, struct ssh_link, link)
		if (link->up && ssh_helper_usable(helper_of(link)))
			return helper_of(link);
	return NULL;
}

/* Who kills its commands when nobody is there any more. Another's, where it has no session left. */
static struct ssh_helper *guard_of(const struct ssh *ssh, const struct ssh_link *link)
{
	struct ssh_helper *own = helper_of(link);

	return own->channel || !ssh->helpers_apart ? own : any_helper(ssh);
}

static struct ssh_link *link_with_room(const struct ssh *ssh)
{
	list_for_each (link, &ssh->links, struct ssh_link, link) {
		struct ssh_helper *guard = guard_of(ssh, link);

		if (ssh_link_has_room(link) && guard && ssh_helper_settled(guard))
			return link;
	}
	return NULL;
}

static void serve_queue(struct ssh *ssh)
{
	while (!list_empty(&ssh->queue)) {
		struct ssh_command *c = list_first(&ssh->queue, struct ssh_command, link);
		struct ssh_link *link = link_with_room(ssh);

		if (!link)
			break;
		list_remove(&c->link);
		ssh_helper_join(guard_of(ssh, link), c);
		ssh_command_open(c, link);
	}
	connect_for_waiting(ssh);
}

void ssh_pool_queue(struct ssh *ssh, struct ssh_command *command)
{
	list_remove(&command->link);
	list_append(&ssh->queue, &command->link);
	serve_queue(ssh);
}

void ssh_pool_ask(struct ssh *ssh, struct ssh_helper *own, struct ssh_errand *errand)
{
	struct ssh_helper *h = own && ssh_helper_usable(own) ? own : any_helper(ssh);

	list_remove(&errand->link);
	if (h) {
		ssh_helper_ask(h, errand);
		return;
	}
	list_append(&ssh->errands, &errand->link);
	connect_for_waiting(ssh);
}

/* One that breaks before is as one that could not be made. */
static void note_use(struct ssh *ssh)
{
	ssh->retry_ms = 0;
	ssh->not_before_ns = 0;
}

void ssh_pool_helper_changed(struct ssh *ssh)
{
	struct ssh_helper *h = any_helper(ssh);

	if (h && h->ready)
		note_use(ssh);
	while (h && !list_empty(&ssh->errands))
		ssh_helper_ask(h, list_first(&ssh->errands, struct ssh_errand, link));
	if (ssh->opening)
		loop_stop(ssh->backend.loop);
	serve_queue(ssh);
}

/* ---- What becomes of them ---- */

static void on_up(struct ssh_link *link)
{
	struct ssh_helper *h = helper_of(link);
	struct ssh *ssh = h->ssh;

	log_info("ssh: %s: connected", ssh->options.host);
	/* Before any command: it must not be left without a session. */
	if (!ssh->helpers_apart || !any_helper(ssh))
		ssh_helper_start(h);
	else
		note_use(ssh);
	serve_queue(ssh);
}

static void on_room(struct ssh_link *link)
{
	struct ssh *ssh = helper_of(link)->ssh;

	/* The server counts sessions whose processes live on; when all are gone it starts anew. */
	if (link->open <= 1)
		link->limit = SIZE_MAX;
	serve_queue(ssh);
}

static void on_dead(struct ssh_link *link, const char *why)
{
	struct ssh_helper *h = helper_of(link);
	struct ssh *ssh = h->ssh;

	if (!ssh->opening)
		log_warning("ssh: %s: %s", ssh->options.host, why);
	set_failure(ssh, failure_errno(why), why);
	/* One that broke may be made anew at once; one that could not be made, after a while. */
	if (link->was_up && (h->ready || ssh->helpers_apart))
		note_use(ssh);
	ssh_helper_free(h, why);
	ssh->link_count--;
	ssh_link_free(link);
	if (ssh->opening)
		loop_stop(ssh->backend.loop);
	else
		serve_queue(ssh);
}

static const struct ssh_link_events link_events = {
	.up = on_up,
	.room = on_room,
	.dead = on_dead,
};

static void on_retry(struct timer *timer)
{
	connect_for_waiting(container_of(timer, struct ssh, retry));
}

void ssh_pool_init(struct ssh *ssh)
{
	list_init(&ssh->links);
	list_init(&ssh->queue);
	list_init(&ssh->errands);
	ssh->retry.fire = on_retry;
}

void ssh_pool_close(struct ssh *ssh)
{
	timer_cancel(&ssh->retry);
	list_for_each_safe (link, &ssh->links, struct ssh_link, link) {
		ssh_helper_free(helper_of(link), "");
		ssh_link_free(link);
	}
}

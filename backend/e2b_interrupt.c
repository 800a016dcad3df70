#include "e2b_interrupt.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "log.h"
#include "util.h"

static sigset_t ending_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	return set;
}

/* As if it had never been blocked. */
static void give_way(int signo)
{
	sigset_t set = ending_signals();

	log_warning(
		"e2b: a second signal: if the sandbox was made, it runs until its time is over");
	raise(signo);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void on_signal(struct source *source, uint32_t events)
{
	struct e2b_interrupt *i = container_of(source, struct e2b_interrupt, source);
	struct signalfd_siginfo info;

	if (read(source->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (i->signals++)
		give_way((int)info.ssi_signo);
	log_warning("e2b: signal %u: ending as soon as the new sandbox is known and deleted",
		    info.ssi_signo);
	loop_stop(i->loop);
}

int e2b_interrupt_open(struct e2b_interrupt *i, struct loop *loop)
{
	sigset_t set = ending_signals();

	*i = (struct e2b_interrupt){.loop = loop, .source = {.ready = on_signal}};
	sigprocmask(SIG_BLOCK, &set, NULL);
	i->source.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return i->source.fd < 0 ? -errno : loop_watch(loop, &i->source, EPOLLIN);
}

void e2b_interrupt_close(struct e2b_interrupt *i)
{
	if (i->source.fd < 0)
		return;
	loop_unwatch(&i->source);
	close_fd(&i->source.fd);
}

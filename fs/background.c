/* A fork with a pipe in between. */
#include "background.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

int background_enter(struct background *bg, struct text *why)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return text_fail(why, -errno, "cannot go into the background: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		int err = -errno;

		close(ends[0]);
		close(ends[1]);
		return text_fail(why, err, "cannot go into the background: %s", strerror(-err));
	}
	bg->child = pid;
	bg->ready = pid ? ends[0] : ends[1];
	close(pid ? ends[1] : ends[0]);
	if (pid)
		return 1;
	return 0;
}

void background_ready(struct background *bg)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Until now the terminal was there for a password and for sentences. */
	setsid();

	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
	if (chdir("/") < 0 || write(bg->ready, "", 1) != 1)
		close_fd(&bg->ready);
	close_fd(&bg->ready);
}

int background_wait(struct background *bg)
{
	char byte;
	int status;
	ssize_t n;

	do
		n = read(bg->ready, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		return EXIT_SUCCESS;
	/* It has ended, and has said why on the terminal that we share. */
	if (waitpid(bg->child, &status, 0) != bg->child || !WIFEXITED(status))
		return EXIT_FAILURE;
	return WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

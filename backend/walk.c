#include "walk.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "util.h"

/* PID_MAX_LIMIT of the kernel. */
#define PIDS ((size_t)4 << 20)

/* The tree in breadth-first order. */
struct tree {
	pid_t *pids;
	size_t count;
	size_t capacity;
};

static void cleanup_tree(struct tree *tree)
{
	free(tree->pids);
}

#define AUTO_TREE __attribute__((cleanup(cleanup_tree)))

static int tree_add(struct tree *tree, pid_t pid)
{
	/* 0 would be a parent outside the pid namespace, 1 its init: never ours. */
	if (pid <= 1)
		return 0;
	if (tree->count == tree->capacity) {
		size_t capacity = tree->capacity ? 2 * tree->capacity : 64;
		pid_t *pids = realloc(tree->pids, capacity * sizeof(*pids));

		if (!pids)
			return -ENOMEM;
		tree->pids = pids;
		tree->capacity = capacity;
	}
	tree->pids[tree->count++] = pid;
	return 0;
}

bool walk_works(void)
{
	return access("/proc/thread-self/children", R_OK) == 0;
}

/* Reads "12 345 " to its end; a number can be cut by the end of the buffer. */
static int add_children_of_thread(struct tree *tree, int tasks, const char *thread)
{
	char path[NAME_BYTES_MAX + 16];
	char buf[4096];
	AUTO_CLOSE int fd = -1;
	pid_t pid = 0;
	int err = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/children", thread);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	while (err == 0 && (n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n && err == 0; i++) {
			if (isdigit((unsigned char)buf[i])) {
				pid = pid * 10 + (buf[i] - '0');
			} else {
				err = tree_add(tree, pid);
				pid = 0;
			}
		}
	}
	if (err == 0 && n < 0 && errno != ESRCH)
		err = -errno;
	return err;
}

/* A process that is gone has no children: they have a new parent. */
static int add_children(struct tree *tree, pid_t pid)
{
	char path[32];
	struct dirent *entry;
	DIR *tasks;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	if (!tasks)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	while (err == 0 && (entry = readdir(tasks)))
		if (isdigit((unsigned char)entry->d_name[0]))
			err = add_children_of_thread(tree, dirfd(tasks), entry->d_name);
	closedir(tasks);
	return err;
}

static bool test_and_set(uint8_t *bits, size_t pid)
{
	uint8_t bit = (uint8_t)(1 << pid % 8);
	bool was;

	if (!bits || pid >= PIDS)
		return false;
	was = bits[pid / 8] & bit;
	bits[pid / 8] |= bit;
	return was;
}

/* Fills an empty tree; each process is stopped before its children are asked for. */
static int walk_and_stop(struct tree *tree, pid_t root, uint8_t *stopped, size_t *fresh)
{
	int err = add_children(tree, root);

	*fresh = 0;
	for (size_t i = 0; err == 0 && i < tree->count; i++) {
		size_t pid = (size_t)tree->pids[i];

		if (!test_and_set(stopped, pid) && kill((pid_t)pid, SIGSTOP) == 0)
			(*fresh)++;
		err = add_children(tree, (pid_t)pid);
	}
	return err;
}

static int kill_tree(const struct tree *tree)
{
	int err = 0;

	for (size_t i = 0; i < tree->count; i++)
		if (kill(tree->pids[i], SIGKILL) < 0 && errno == EPERM)
			err = -EPERM;
	return err < 0 ? err : (int)tree->count;
}

int walk_kill(pid_t root)
{
	AUTO_TREE struct tree tree = {0};
	/* Pages that are not written to cost nothing. */
	AUTO_FREE uint8_t *stopped = calloc(PIDS / 8, 1);
	size_t fresh = 1;
	int rounds = stopped ? WALK_ROUNDS_MAX : 1;
	int err = 0;
	int killed;

	for (int round = 0; err == 0 && fresh && round < rounds; round++) {
		tree.count = 0;
		err = walk_and_stop(&tree, root, stopped, &fresh);
	}
	/* Without memory for all, those that were found are killed first. */
	killed = kill_tree(&tree);
	return err < 0 ? err : killed;
}

int walk_kill_chosen(pid_t root, enum walk_choice (*choose)(pid_t pid, void *arg), void *arg)
{
	AUTO_TREE struct tree tree = {0};
	AUTO_TREE struct tree chosen = {0};
	int err = add_children(&tree, root);
	int killed;

	for (size_t i = 0; err == 0 && i < tree.count && i < WALK_CHOOSE_MAX; i++) {
		enum walk_choice choice = choose(tree.pids[i], arg);

		if (choice == WALK_KILL)
			err = tree_add(&chosen, tree.pids[i]);
		if (err == 0 && choice != WALK_SKIP)
			err = add_children(&tree, tree.pids[i]);
	}
	killed = kill_tree(&chosen);
	return err < 0 ? err : killed;
}

/*
 * The numbers of the tree. A nodeid is exec id << 32 | serial << 8 | file; ids are
 * never used twice in the life of a mount, so a nodeid that outlived its exec is
 * simply unknown, and no lookup needs counting.
 *
 * serial is 0 but for stdin, where each lookup gets a new one: a blocked WRITE
 * holds its inode's lock in the kernel, and whoever needs that inode would wait
 * for it, unkillable. So nobody else ever gets the same inode.
 *
 * Exec id 0 stands for what is not an exec: the root (FUSE_ROOT_ID, which is 1)
 * and .spawnfs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The files of an exec's directory; FILE_DIR is the directory itself. */
enum file_kind {
	FILE_DIR,
	FILE_SPEC,
	FILE_STDIN,
	FILE_STDOUT,
	FILE_STDERR,
	FILE_EXIT,
	FILE_STATUS,
	FILE_CTL,
	FILE_OWNER,
	FILE_KINDS,
};

/* Nodeids that belong to no exec. NODE_INFO_FILE + i is the i-th file of .spawnfs. */
#define NODE_ROOT 1
#define NODE_INFO 2
#define NODE_INFO_FILE 16

static inline uint64_t node_make(uint32_t exec_id, uint32_t serial, enum file_kind kind)
{
	return (uint64_t)exec_id << 32 | (uint64_t)(serial & 0xffffff) << 8 | kind;
}

static inline uint32_t node_exec_id(uint64_t node)
{
	return (uint32_t)(node >> 32);
}

static inline enum file_kind node_kind(uint64_t node)
{
	return (enum file_kind)(node & 0xff);
}

/* The same file's st_ino: a nodeid without the serial. */
static inline uint64_t node_inode(uint64_t node)
{
	return node & ~((uint64_t)0xffffff << 8);
}

/* The name of a file in an exec's directory. */
const char *node_name(enum file_kind kind);

/* Finds it by name. Returns FILE_DIR when there is no such file. */
enum file_kind node_find(const char *name);

/* Its permission bits before the umask: 0666, 0444 or 0222. */
mode_t node_mode(enum file_kind kind);

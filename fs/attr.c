/* What stat(2) and statfs(2) say. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "info.h"
#include "mount.h"
#include "util.h"

/* Names and modes change only through the mount itself: the kernel may keep them. */
#define LONG_TIMEOUT 3600.0

/* stdio sizes its buffers by st_blksize; the kernel's own reads are as large. */
#define BLOCK_SIZE (128 * KIB)

static void fill_directory(const struct mount *m, struct stat *st, uid_t uid, gid_t gid)
{
	st->st_mode = S_IFDIR | (0777 & ~m->settings.umask);
	st->st_nlink = 2;
	st->st_uid = uid;
	st->st_gid = gid;
	st->st_mtim = m->since;
}

static void fill_file(struct stat *st, mode_t mode, uint64_t size)
{
	st->st_mode = S_IFREG | mode;
	st->st_nlink = 1;
	st->st_size = (off_t)size;
	/* Size without blocks would look like a hole to cp and tar. */
	st->st_blocks = (blkcnt_t)((size + 511) / 512);
}

/* Who owns an exec may end it: that is for those who may write to ctl, not for all who read. */
static mode_t file_mode(const struct mount *m, enum file_kind kind)
{
	if (kind == FILE_OWNER)
		return (node_mode(FILE_CTL) & ~m->settings.umask) << 1;
	return node_mode(kind) & ~m->settings.umask;
}

static int fill_exec(struct mount *m, fuse_ino_t node, struct stat *st)
{
	struct entry *e = entry_by_id(&m->entries, node_exec_id(node));
	enum file_kind kind = node_kind(node);

	if (!e || kind >= FILE_KINDS)
		return -ENOENT;
	fill_directory(m, st, e->uid, e->gid);
	if (kind != FILE_DIR)
		fill_file(st, file_mode(m, kind), file_size(e, kind));
	if (e->exec->started.tv_sec)
		st->st_mtim = e->exec->started;
	if (e->exec->ended.tv_sec)
		st->st_mtim = e->exec->ended;
	return 0;
}

static int fill_info(struct mount *m, fuse_ino_t node, struct stat *st)
{
	if (node == NODE_ROOT || node == NODE_INFO) {
		fill_directory(m, st, m->uid, m->gid);
		return 0;
	}
	if (node < NODE_INFO_FILE || node - NODE_INFO_FILE >= info_count)
		return -ENOENT;
	fill_directory(m, st, m->uid, m->gid);
	fill_file(st, 0444 & ~m->settings.umask, info_size(m, (unsigned)(node - NODE_INFO_FILE)));
	return 0;
}

int attr_fill(struct mount *m, fuse_ino_t node, struct stat *st)
{
	int err;

	memset(st, 0, sizeof(*st));
	err = node_exec_id(node) ? fill_exec(m, node, st) : fill_info(m, node, st);
	st->st_ino = node_inode(node);
	st->st_blksize = BLOCK_SIZE;
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
	return err;
}

double attr_timeout(fuse_ino_t node)
{
	if (!node_exec_id(node))
		return node < NODE_INFO_FILE ? LONG_TIMEOUT : 0;
	return node_kind(node) == FILE_DIR ? LONG_TIMEOUT : 0;
}

double entry_timeout(fuse_ino_t node)
{
	return node_exec_id(node) && node_kind(node) == FILE_STDIN ? 0 : LONG_TIMEOUT;
}

/*
 * Directories: the root with one directory an exec, .spawnfs, and the fixed files
 * in each. Everything here is answered from memory at once: a directory
 * operation that waited would lock the directory for everybody.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "info.h"
#include "mount.h"
#include "util.h"

static int fill_entry_param(struct mount *m, fuse_ino_t node, struct fuse_entry_param *ep)
{
	memset(ep, 0, sizeof(*ep));
	ep->ino = node;
	ep->attr_timeout = attr_timeout(node);
	ep->entry_timeout = entry_timeout(node);
	return attr_fill(m, node, &ep->attr);
}

static struct entry *present_entry(struct mount *m, fuse_ino_t node)
{
	struct entry *e = entry_by_id(&m->entries, node_exec_id(node));

	return e && !e->removed ? e : NULL;
}

/* ---- Names ---- */

static fuse_ino_t find_in_root(struct mount *m, const char *name)
{
	struct entry *e;

	if (strcmp(name, INFO_NAME) == 0)
		return NODE_INFO;
	e = entry_find(&m->entries, name);
	return e ? node_make(e->id, 0, FILE_DIR) : 0;
}

static fuse_ino_t find_in_info(const char *name)
{
	for (unsigned i = 0; i < info_count; i++)
		if (strcmp(info_name(i), name) == 0)
			return NODE_INFO_FILE + i;
	return 0;
}

static fuse_ino_t find_in_exec(struct mount *m, fuse_ino_t parent, const char *name)
{
	struct entry *e = present_entry(m, parent);
	enum file_kind kind = node_find(name);
	uint32_t serial = 0;

	if (!e || kind == FILE_DIR || (e->hidden & 1U << kind))
		return 0;
	if (kind == FILE_STDIN)
		serial = ++e->stdin_serial;
	return node_make(e->id, serial, kind);
}

static fuse_ino_t find(struct mount *m, fuse_ino_t parent, const char *name)
{
	if (parent == NODE_ROOT)
		return find_in_root(m, name);
	if (parent == NODE_INFO)
		return find_in_info(name);
	return find_in_exec(m, parent, name);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mount *m = mount_of(req);
	struct fuse_entry_param ep;
	fuse_ino_t node;

	if (strlen(name) > NAME_BYTES_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	node = find(m, parent, name);
	if (!node || fill_entry_param(m, node, &ep) < 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &ep);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct stat st;
	int err = attr_fill(mount_of(req), node, &st);

	if (err < 0)
		fuse_reply_err(req, -err);
	else
		fuse_reply_attr(req, &st, attr_timeout(node));
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct mount *m = mount_of(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct fuse_entry_param ep;
	struct entry *e;
	int err;

	if (parent != NODE_ROOT) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (m->ending) {
		fuse_reply_err(req, ESHUTDOWN);
		return;
	}
	err = entry_new(m, name, ctx->uid, ctx->gid, &e);
	if (!err)
		err = fill_entry_param(m, node_make(e->id, 0, FILE_DIR), &ep);
	if (err < 0)
		fuse_reply_err(req, -err);
	else
		fuse_reply_entry(req, &ep);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mount *m = mount_of(req);
	struct entry *e;

	if (parent != NODE_ROOT) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	if (strcmp(name, INFO_NAME) == 0) {
		fuse_reply_err(req, EPERM);
		return;
	}
	e = entry_find(&m->entries, name);
	if (!e) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	/* The kill is on its way before the caller goes on. */
	entry_remove(e);
	fuse_reply_err(req, 0);
}

/* Only hides: rm -r must reach its rmdir, and a removed name ends nothing by itself. */
static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct entry *e = present_entry(mount_of(req), parent);
	enum file_kind kind = node_find(name);

	if (parent == NODE_ROOT) {
		fuse_reply_err(req, EISDIR);
	} else if (parent == NODE_INFO) {
		fuse_reply_err(req, EPERM);
	} else if (!e || kind == FILE_DIR || (e->hidden & 1U << kind)) {
		fuse_reply_err(req, ENOENT);
	} else {
		e->hidden |= 1U << kind;
		fuse_reply_err(req, 0);
	}
}

/*
 * Files cannot be made; one that is hidden is shown again, since install(1) and mv(1) unlink what
 * they are to write, and make it anew. Without an op_create() the kernel calls this for open(2),
 * too.
 */
static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	struct entry *e = present_entry(mount_of(req), parent);
	enum file_kind kind = node_find(name);

	if (!S_ISREG(mode)) {
		fuse_reply_err(req, EPERM);
	} else if (!e || kind == FILE_DIR) {
		fuse_reply_err(req, EACCES);
	} else if (!(e->hidden & 1U << kind)) {
		fuse_reply_err(req, EEXIST);
	} else {
		e->hidden &= ~(1U << kind);
		op_lookup(req, parent, name);
	}
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	struct mount *m = mount_of(req);
	struct entry *e = entry_find(&m->entries, name);
	int err;

	if (parent != NODE_ROOT || new_parent != NODE_ROOT || strcmp(name, INFO_NAME) == 0) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (flags & ~(unsigned)RENAME_NOREPLACE) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	if (!e) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	/* An exec is never empty, so it is never replaced. */
	err = entry_rename(e, new_name);
	if (err == -EEXIST && !(flags & RENAME_NOREPLACE))
		err = -ENOTEMPTY;
	fuse_reply_err(req, -err);
}

/* ---- Listings ---- */

/* A listing being written: one reply of at most size bytes. */
struct listing {
	fuse_req_t req;
	struct mount *mount;
	bool plus;
	char *buf;
	size_t size;
	size_t len;
};

/* Adds a name; next is where a later READDIR goes on after it. Returns false when it is full. */
static bool add(struct listing *l, const char *name, fuse_ino_t node, off_t next)
{
	struct fuse_entry_param ep;
	size_t room = l->size - l->len;
	size_t need;

	if (fill_entry_param(l->mount, node, &ep) < 0)
		return true;
	if (l->plus) {
		/* A listing makes no lookups of stdin: its inode must be nobody else's. */
		if (node_exec_id(node) && node_kind(node) == FILE_STDIN)
			ep.ino = 0;
		need = fuse_add_direntry_plus(l->req, l->buf + l->len, room, name, &ep, next);
	} else {
		need = fuse_add_direntry(l->req, l->buf + l->len, room, name, &ep.attr, next);
	}
	if (need > room)
		return false;
	l->len += need;
	return true;
}

/* Offsets in a listing of the root: ".", "..", .spawnfs, then exec ids from FIRST_ID on. */
#define FIRST_ID 16

static void list_root(struct listing *l, off_t off)
{
	struct entry_table *t = &l->mount->entries;
	struct entry *e;

	if (off < 1 && !add(l, INFO_NAME, NODE_INFO, 1))
		return;
	e = entry_after(t, off < FIRST_ID ? 0 : (uint32_t)(off - FIRST_ID));
	while (e && add(l, e->name, node_make(e->id, 0, FILE_DIR), (off_t)e->id + FIRST_ID))
		e = entry_after(t, e->id);
}

static void list_info(struct listing *l, off_t off)
{
	for (off_t i = off; i < info_count; i++)
		if (!add(l, info_name((unsigned)i), NODE_INFO_FILE + (fuse_ino_t)i, i + 1))
			return;
}

static void list_exec(struct listing *l, const struct entry *e, off_t off)
{
	for (int i = MAX(FILE_SPEC, (int)off); i < FILE_KINDS; i++)
		if (!(e->hidden & 1U << i) && !add(l, node_name((enum file_kind)i),
						   node_make(e->id, 0, (enum file_kind)i), i + 1))
			return;
}

static void list(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, bool plus)
{
	struct listing l = {.req = req, .mount = mount_of(req), .plus = plus, .size = size};
	AUTO_FREE char *buf = malloc(size);
	struct entry *e = present_entry(l.mount, node);

	l.buf = buf;
	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (node == NODE_ROOT)
		list_root(&l, off);
	else if (node == NODE_INFO)
		list_info(&l, off);
	else if (e)
		list_exec(&l, e, off);
	fuse_reply_buf(req, buf, l.len);
}

static void op_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	list(req, node, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	list(req, node, size, off, true);
}

static void op_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);

	if (node_exec_id(node) && !present_entry(m, node))
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_open(req, fi);
}

/* ---- What a tree of processes does not have ---- */

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_statfs(fuse_req_t req, fuse_ino_t node)
{
	const struct mount *m = mount_of(req);
	size_t left = m->settings.execs - m->entries.count;
	struct statvfs st = {
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_files = m->settings.execs,
		.f_ffree = left,
		.f_favail = left,
		.f_namemax = NAME_BYTES_MAX,
	};

	fuse_reply_statfs(req, &st);
}

void dir_ops_add(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->getattr = op_getattr;
	ops->mkdir = op_mkdir;
	ops->rmdir = op_rmdir;
	ops->unlink = op_unlink;
	ops->rename = op_rename;
	ops->opendir = op_opendir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
	ops->mknod = op_mknod;
	ops->symlink = op_symlink;
	ops->link = op_link;
	ops->statfs = op_statfs;
}

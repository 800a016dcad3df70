/*
 * Operations on open files: each decodes the request and passes it to the kind of
 * file it is for (file.h).
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>

#include "info.h"
#include "mount.h"
#include "park.h"
#include "util.h"

static const struct file_ops no_file;

const struct file_ops *file_ops_of(enum file_kind kind)
{
	static const struct file_ops *const table[FILE_KINDS] = {
		[FILE_DIR] = &no_file,	      [FILE_SPEC] = &spec_file,
		[FILE_STDIN] = &stdin_file,   [FILE_STDOUT] = &stdout_file,
		[FILE_STDERR] = &stderr_file, [FILE_EXIT] = &exit_file,
		[FILE_STATUS] = &status_file, [FILE_CTL] = &ctl_file,
		[FILE_OWNER] = &owner_file,
	};

	return table[kind];
}

static const struct file_ops *ops_of(const struct handle *h)
{
	return h->entry ? file_ops_of(h->kind) : &info_file;
}

/* Makes the handle of an open. Returns 0 or -errno. */
static int open_handle(struct mount *m, fuse_ino_t node, int flags, struct handle **ret)
{
	struct entry *e = NULL;
	struct handle *h;
	int err;

	if (node_exec_id(node)) {
		e = entry_by_id(&m->entries, node_exec_id(node));
		if (!e)
			return -ENOENT;
	} else if ((flags & O_ACCMODE) != O_RDONLY) {
		return -EACCES;
	}
	h = handle_new(m, e, e ? node_kind(node) : FILE_DIR);
	if (!h)
		return -ENOMEM;
	h->node = node;
	h->info = e ? 0 : (unsigned)(node - NODE_INFO_FILE);
	h->writer = (flags & O_ACCMODE) != O_RDONLY;
	h->append = flags & O_APPEND;
	err = h->writer && !ops_of(h)->write ? -EACCES : 0;
	if (!err && ops_of(h)->open)
		err = ops_of(h)->open(h, flags);
	if (err < 0) {
		handle_free(h);
		return err;
	}
	*ret = h;
	return 0;
}

static void close_handle(struct handle *h)
{
	if (ops_of(h)->release)
		ops_of(h)->release(h);
	handle_free(h);
}

static void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct handle *h;
	int err = open_handle(mount_of(req), node, fi->flags, &h);

	if (err < 0) {
		fuse_reply_err(req, -err);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->direct_io = 1;
	fi->noflush = !ops_of(h)->flush;
	/* The caller was interrupted and will never close what it does not have. */
	if (fuse_reply_open(req, fi) == -ENOENT)
		close_handle(h);
}

static void op_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	close_handle(handle_of(fi));
	fuse_reply_err(req, 0);
}

static void read_printed(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
	/* tail(1) begins where it has been told that the end is near. */
	if (off == 0 || !h->was_read) {
		h->was_read = true;
		text_done(&h->text);
		if (ops_of(h)->print(h->entry, &h->text) < 0) {
			fuse_reply_err(req, ENOMEM);
			return;
		}
	}
	reply_text(req, &h->text, size, off);
}

uint64_t file_size(struct entry *e, enum file_kind kind)
{
	const struct file_ops *ops = file_ops_of(kind);
	AUTO_TEXT struct text t = {0};

	if (ops->size)
		return ops->size(e);
	return ops->print && ops->print(e, &t) == 0 ? t.len : 0;
}

/*
 * A read without a lock owner is the kernel's, for its page cache: for sendfile(2), splice(2) or a
 * private mmap(2). It fills up with zeros what it does not get of a page, and shows them when
 * somebody's stat(2) has told it since that the file has grown.
 */
static bool fills_page_cache(const struct fuse_file_info *fi)
{
	return !fi->lock_owner;
}

static void op_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	/* sendfile(2) says so of a file that it cannot be used on: programs read such a one. */
	if (fills_page_cache(fi) && h->entry && !exec_told(h->entry->exec))
		fuse_reply_err(req, EINVAL);
	else if (ops_of(h)->read)
		ops_of(h)->read(req, h, size, off, fi->flags & O_NONBLOCK);
	else if (ops_of(h)->print)
		read_printed(req, h, size, off);
	else
		fuse_reply_err(req, EBADF);
}

static void op_write(fuse_req_t req, fuse_ino_t node, const char *data, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	if (ops_of(h)->write)
		ops_of(h)->write(req, h, data, size, fi->flags & O_NONBLOCK);
	else
		fuse_reply_err(req, EBADF);
}

static void op_flush(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	fuse_reply_err(req, ops_of(h)->flush ? -ops_of(h)->flush(h) : 0);
}

/* Who opens a file to change its times or size does not mean to write it. */
static void mark_touched(struct mount *m, fuse_ino_t node)
{
	if (node_kind(node) != FILE_STDIN)
		return;
	list_for_each (h, &m->handles, struct handle, link)
		if (h->node == node)
			h->touched = true;
}

static bool changes_owner_or_mode(const struct stat *now, const struct stat *attr, int to_set)
{
	return ((to_set & FUSE_SET_ATTR_MODE) && ((attr->st_mode ^ now->st_mode) & 07777)) ||
	       ((to_set & FUSE_SET_ATTR_UID) && attr->st_uid != now->st_uid) ||
	       ((to_set & FUSE_SET_ATTR_GID) && attr->st_gid != now->st_gid);
}

/* touch and truncate may; the rest of what an inode has is not for changing. */
static void op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct entry *e = entry_by_id(&m->entries, node_exec_id(node));
	const struct file_ops *ops = e ? file_ops_of(node_kind(node)) : &no_file;
	struct stat st;
	int err = attr_fill(m, node, &st);

	if (!err && changes_owner_or_mode(&st, attr, to_set)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if ((to_set & FUSE_SET_ATTR_SIZE) && !ops->write) {
		fuse_reply_err(req, EACCES);
		return;
	}
	if ((to_set & FUSE_SET_ATTR_SIZE) && ops->truncate)
		ops->truncate(e);
	if (to_set & (FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME))
		mark_touched(m, node);
	err = attr_fill(m, node, &st);
	if (err < 0)
		fuse_reply_err(req, -err);
	else
		fuse_reply_attr(req, &st, attr_timeout(node));
}

/* Without an answer posix_fallocate(3) writes NULs itself: the command would read them as input. */
static void op_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	fuse_reply_err(req, ESPIPE);
}

/* Registers before it looks, so that a change in between is not missed. */
static void op_poll(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi,
		    struct fuse_pollhandle *ph)
{
	struct handle *h = handle_of(fi);
	const struct file_ops *ops = ops_of(h);

	if (!ops->poll || !h->entry) {
		if (ph)
			fuse_pollhandle_destroy(ph);
		fuse_reply_poll(req, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
		return;
	}
	if (ph)
		handle_set_poll(h, ph);
	fuse_reply_poll(req, ops->poll(h));
}

void file_ops_add(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->release = op_release;
	ops->read = op_read;
	ops->write = op_write;
	ops->flush = op_flush;
	ops->setattr = op_setattr;
	ops->fallocate = op_fallocate;
	ops->poll = op_poll;
}

/* ---- What execs report ---- */

static void on_output(struct exec *exec, enum stream_id stream)
{
	stream_changed(exec->owner, stream);
}

static void on_input(struct exec *exec)
{
	stdin_changed(exec->owner);
}

static void on_started(struct exec *exec, int err)
{
	spec_started(exec->owner, err);
}

static void on_told(struct exec *exec)
{
	exit_told(exec->owner);
}

static void on_over(struct exec *exec)
{
	struct entry *e = exec->owner;

	mount_check_ended(e->mount);
}

static void on_freed(struct exec *exec)
{
	entry_free(exec->owner);
}

const struct exec_observer file_observer = {
	.output = on_output,
	.input = on_input,
	.started = on_started,
	.told = on_told,
	.over = on_over,
	.freed = on_freed,
};

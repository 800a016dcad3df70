/*
 * An entry: an exec's directory as the tree shows it, with the requests that wait
 * for it. It lives as long as its exec; its name is taken only while it is in
 * the tree.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "exec.h"
#include "list.h"
#include "node.h"
#include "spec.h"
#include "text.h"

struct mount;
struct park;

struct entry {
	struct mount *mount;
	struct exec *exec;
	uint32_t id;
	char *name;
	bool removed; /* not in the tree any more */
	uid_t uid;
	gid_t gid;
	unsigned hidden;	 /* files that were unlinked: 1 << enum file_kind */
	uint32_t stdin_serial;	 /* of the last lookup of stdin */
	struct list link;	 /* in the table, oldest first; while in the tree */
	struct entry *next_id;	 /* in the table's chain by id */
	struct entry *next_name; /* in the table's chain by name; while in the tree */

	unsigned owners;	/* open handles of owner */
	unsigned stdin_writers; /* open handles of stdin */
	bool stdin_serving;	/* stdin_changed() is at work */
	bool stdin_given;	/* one that was all of the input has been closed */
	unsigned spec_writers;	/* open handles of spec */
	struct text spec_text;	/* what has been written of it so far */
	struct frame spec_frame;

	/* struct park, in order of arrival */
	struct list stream_reads[STREAM_COUNT];
	struct list exit_reads;
	struct list stdin_writes;
	struct list spec_writes; /* the one that started the command */
	struct list polls;	 /* struct handle: who wants to be told */
};

struct entry_table {
	struct entry **by_id;
	struct entry **by_name;
	size_t buckets; /* of both; a power of two */
	size_t count;	/* in the tree */
	size_t total;	/* with those that were removed but still have an exec */
	uint32_t last_id;
	struct list entries; /* in the tree, ids ascending */
};

int entry_table_init(struct entry_table *t);
void entry_table_done(struct entry_table *t);

/*
 * Makes a directory with an exec in it. Returns 0, -EEXIST, -ENAMETOOLONG, -ENOSPC or
 * -ENOMEM. The entry belongs to its exec and goes with it (entry_free()).
 */
int entry_new(struct mount *mount, const char *name, uid_t uid, gid_t gid, struct entry **ret);

/* For the observer of a freed exec. */
void entry_free(struct entry *e);

/* Finds an entry of the tree by its name, or any by its id. NULL: none. */
struct entry *entry_find(struct entry_table *t, const char *name);
struct entry *entry_by_id(struct entry_table *t, uint32_t id);

/* The first entry of the tree with an id above id; NULL: none. */
struct entry *entry_after(struct entry_table *t, uint32_t id);

/* Gives it another name. Returns 0, -EEXIST, -ENAMETOOLONG or -ENOMEM. */
int entry_rename(struct entry *e, const char *name);

/* Takes it out of the tree and kills its command. e may be gone at the end of this turn. */
void entry_remove(struct entry *e);

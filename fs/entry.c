/* The table of entries: hashed by name and by id, and listed in order of creation. */
#include "entry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mount.h"

#define FIRST_BUCKETS 256

/* FNV-1a: names are short, and an enemy could only slow down his own mount. */
static size_t name_bucket(const struct entry_table *t, const char *name)
{
	uint64_t hash = 14695981039346656037U;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 1099511628211U;
	return (hash ^ hash >> 32) & (t->buckets - 1);
}

static size_t id_bucket(const struct entry_table *t, uint32_t id)
{
	return id & (t->buckets - 1);
}

int entry_table_init(struct entry_table *t)
{
	*t = (struct entry_table){.buckets = FIRST_BUCKETS};
	t->by_id = calloc(t->buckets, sizeof(struct entry *));
	t->by_name = calloc(t->buckets, sizeof(struct entry *));
	list_init(&t->entries);
	if (!t->by_id || !t->by_name) {
		entry_table_done(t);
		return -ENOMEM;
	}
	return 0;
}

void entry_table_done(struct entry_table *t)
{
	free(t->by_id);
	free(t->by_name);
	t->by_id = NULL;
	t->by_name = NULL;
}

static void link_id(struct entry_table *t, struct entry *e)
{
	size_t bucket = id_bucket(t, e->id);

	e->next_id = t->by_id[bucket];
	t->by_id[bucket] = e;
}

static void link_name(struct entry_table *t, struct entry *e)
{
	size_t bucket = name_bucket(t, e->name);

	e->next_name = t->by_name[bucket];
	t->by_name[bucket] = e;
}

static void unlink_id(struct entry_table *t, struct entry *e)
{
	struct entry **at = &t->by_id[id_bucket(t, e->id)];

	while (*at != e)
		at = &(*at)->next_id;
	*at = e->next_id;
}

static void unlink_name(struct entry_table *t, struct entry *e)
{
	struct entry **at = &t->by_name[name_bucket(t, e->name)];

	while (*at != e)
		at = &(*at)->next_name;
	*at = e->next_name;
}

/* Doubles the buckets. Without memory for it the chains just get longer. */
static void grow(struct entry_table *t)
{
	size_t old_buckets = t->buckets;
	struct entry **old_ids = t->by_id;
	struct entry **ids = calloc(2 * old_buckets, sizeof(struct entry *));
	struct entry **names = calloc(2 * old_buckets, sizeof(struct entry *));

	if (!ids || !names) {
		free(ids);
		free(names);
		return;
	}
	free(t->by_name);
	t->by_id = ids;
	t->by_name = names;
	t->buckets = 2 * old_buckets;
	for (size_t i = 0; i < old_buckets; i++) {
		for (struct entry *e = old_ids[i], *next; e; e = next) {
			next = e->next_id;
			link_id(t, e);
			if (!e->removed)
				link_name(t, e);
		}
	}
	free(old_ids);
}

struct entry *entry_find(struct entry_table *t, const char *name)
{
	struct entry *e = t->by_name[name_bucket(t, name)];

	while (e && strcmp(e->name, name) != 0)
		e = e->next_name;
	return e;
}

struct entry *entry_by_id(struct entry_table *t, uint32_t id)
{
	struct entry *e = t->by_id[id_bucket(t, id)];

	while (e && e->id != id)
		e = e->next_id;
	return e;
}

struct entry *entry_after(struct entry_table *t, uint32_t id)
{
	struct entry *at = entry_by_id(t, id);

	/* The usual case: a listing goes on where it stopped. */
	if (at && !at->removed)
		return at->link.next == &t->entries ? NULL
						    : list_entry(at->link.next, struct entry, link);
	list_for_each (e, &t->entries, struct entry, link)
		if (e->id > id)
			return e;
	return NULL;
}

static int check_name(struct entry_table *t, const char *name)
{
	if (strlen(name) > NAME_BYTES_MAX)
		return -ENAMETOOLONG;
	if (strcmp(name, INFO_NAME) == 0 || entry_find(t, name))
		return -EEXIST;
	return 0;
}

static uint32_t next_id(struct entry_table *t)
{
	do
		t->last_id++;
	while (!t->last_id || entry_by_id(t, t->last_id));
	return t->last_id;
}

static void init_lists(struct entry *e)
{
	for (int i = 0; i < STREAM_COUNT; i++)
		list_init(&e->stream_reads[i]);
	list_init(&e->exit_reads);
	list_init(&e->stdin_writes);
	list_init(&e->spec_writes);
	list_init(&e->polls);
}

int entry_new(struct mount *mount, const char *name, uid_t uid, gid_t gid, struct entry **ret)
{
	struct entry_table *t = &mount->entries;
	AUTO_FREE struct entry *e = calloc(1, sizeof(*e));
	AUTO_FREE char *copy = strdup(name);
	int err = check_name(t, name);

	/* Those that are removed and still being killed count no more: their room is free at once.
	 */
	if (!err && t->count >= mount->settings.execs)
		err = -ENOSPC;
	if (!err && (!e || !copy))
		err = -ENOMEM;
	if (!err)
		err = exec_new(&mount->execs, e, copy, &e->exec);
	if (err)
		return err;
	if (t->total >= t->buckets)
		grow(t);
	e->mount = mount;
	e->name = TAKE_PTR(copy);
	e->uid = uid;
	e->gid = gid;
	e->id = next_id(t);
	init_lists(e);
	link_id(t, e);
	link_name(t, e);
	list_append(&t->entries, &e->link);
	t->count++;
	t->total++;
	*ret = TAKE_PTR(e);
	return 0;
}

void entry_free(struct entry *e)
{
	struct entry_table *t = &e->mount->entries;

	unlink_id(t, e);
	t->total--;
	text_wipe(&e->spec_text);
	free(e->name);
	free(e);
}

int entry_rename(struct entry *e, const char *name)
{
	struct entry_table *t = &e->mount->entries;
	int err = check_name(t, name);
	char *copy;

	if (err)
		return err;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	unlink_name(t, e);
	free(e->name);
	e->name = copy;
	e->exec->name = copy;
	link_name(t, e);
	return 0;
}

void entry_remove(struct entry *e)
{
	struct entry_table *t = &e->mount->entries;

	if (e->removed)
		return;
	e->removed = true;
	unlink_name(t, e);
	list_remove(&e->link);
	t->count--;
	exec_remove(e->exec);
}

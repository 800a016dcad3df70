/*
 * A spool is a queue of chunks in memory, with a ring file for what is older. Bytes
 * enter at the tail; when memory is full, the oldest chunk is written to the file
 * and becomes the new tail, so a steady stream allocates nothing, and a reader
 * that keeps up is served from memory.
 *
 * `first` is moved in one place (trim), after bytes were added. Chunks below it are
 * released when the next tail is needed.
 */
#include "spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "spool_file.h"

#define CHUNK_FIRST (4 * KIB)
#define CHUNK_LAST (256 * KIB)
#define CHUNK_GROWTH 4
/* Memory is at least so many chunks, so that most of it stays in use while one moves on. */
#define CHUNKS_MIN 4
/* A full spool takes bytes again once so many can come: each time wakes the source. */
#define ROOM_MIN (4 * KIB)
/* An ended spool gives the rest of its last chunk back if it is more than this. */
#define SLACK_MAX 512

struct chunk {
	struct list link;
	uint64_t off; /* of data[0] in the stream */
	size_t len;   /* filled */
	size_t size;
	char data[];
};

static uint64_t chunk_end(const struct chunk *c)
{
	return c->off + c->len;
}

static struct chunk *head_of(struct spool *s)
{
	return list_empty(&s->chunks) ? NULL : list_first(&s->chunks, struct chunk, link);
}

static struct chunk *tail_of(struct spool *s)
{
	return list_empty(&s->chunks) ? NULL : list_entry(s->chunks.prev, struct chunk, link);
}

static size_t tail_space(struct spool *s)
{
	const struct chunk *tail = tail_of(s);

	return tail ? tail->size - tail->len : 0;
}

/* Takes the chunk off the queue; its memory is the caller's. */
static struct chunk *take_chunk(struct spool *s, struct chunk *c)
{
	list_remove(&c->link);
	s->memory_used -= c->size;
	return c;
}

static void set_sizes(struct spool *s)
{
	/* What retain allows, what may go beyond it, and the chunk that is being filled. */
	s->file_size = s->retain + DRAIN_ALLOWANCE + CHUNK_LAST;
	s->chunk_max = MIN((uint64_t)s->memory_max, s->retain) / CHUNKS_MIN;
	s->chunk_max = MAX(MIN(s->chunk_max, CHUNK_LAST), CHUNK_FIRST);
}

void spool_init(struct spool *s, size_t memory, uint64_t retain, const char *dir)
{
	*s = (struct spool){
		.memory_max = memory,
		.retain = retain,
		.dir = dir,
		.file = -1,
	};
	list_init(&s->chunks);
	list_init(&s->readers);
	set_sizes(s);
}

void spool_set_retain(struct spool *s, uint64_t retain)
{
	s->retain = retain;
	set_sizes(s);
}

void spool_done(struct spool *s)
{
	list_for_each_safe (c, &s->chunks, struct chunk, link)
		free(take_chunk(s, c));
	list_for_each_safe (r, &s->readers, struct spool_reader, link)
		spool_reader_close(r);
	close_fd(&s->file);
}

/* ---- What may go ---- */

/* The offset below which every open reader has passed; first when there is none. */
static uint64_t passed(const struct spool *s)
{
	uint64_t pos = s->next;

	if (list_empty(&s->readers))
		return s->first;
	list_for_each (r, &s->readers, struct spool_reader, link)
		pos = MIN(pos, r->pos);
	return pos;
}

/* Lets go of what is beyond retain and passed by all. */
static void trim(struct spool *s)
{
	if (s->next - s->first <= s->retain)
		return;
	s->first = MIN(passed(s), s->next - s->retain);
}

/* How many bytes more may be held, going by the bound alone. */
static uint64_t bound_room(struct spool *s)
{
	uint64_t bound = s->retain + s->overdraft;
	uint64_t held = s->next - s->first;
	uint64_t room;

	/* Far from the bound the readers need not be asked. */
	if (held + CHUNK_LAST <= bound) {
		s->full = false;
		return CHUNK_LAST;
	}
	held = s->next - passed(s);
	room = bound > held ? bound - held : 0;
	if (s->full && room < MIN(ROOM_MIN, s->retain) && !s->overdraft)
		return 0;
	s->full = room == 0;
	return room;
}

/* ---- Memory ---- */

/*
 * The file cannot take the oldest chunk. If all readers have passed it, it is dropped: they go
 * on, and who comes later is told that it is gone.
 */
static bool drop(struct spool *s, const struct chunk *c)
{
	if (list_empty(&s->readers) || passed(s) < chunk_end(c))
		return false;
	s->first = chunk_end(c);
	spool_file_clear(s);
	return true;
}

/* Writes what is left of the oldest chunk to the file. Returns 0 or -errno. */
static int spill(struct spool *s, const struct chunk *c)
{
	s->file_next = MAX(s->file_next, s->first);
	s->file_next = MAX(s->file_next, c->off);
	while (s->file_next < chunk_end(c)) {
		ssize_t n;

		if (chunk_end(c) - s->first > s->file_size)
			return -EAGAIN;
		n = spool_file_write(s, s->file_next, c->data + (s->file_next - c->off),
				     chunk_end(c) - s->file_next);
		if (n < 0) {
			s->file_error = (int)n;
			return (int)n;
		}
		s->file_next += (uint64_t)n;
	}
	s->file_error = 0;
	return 0;
}

/* Keeps a chunk of the wanted size in *spare for the next tail; frees it else. */
static void recycle(struct chunk *c, size_t size, struct chunk **spare)
{
	if (c->size == size && !*spare)
		*spare = c;
	else
		free(c);
}

static bool fits_in_memory(const struct spool *s, size_t more)
{
	/* All that it may ever hold is meant for memory: there is no file. */
	return s->retain <= s->memory_max || s->memory_used + more <= s->memory_max;
}

/* The oldest chunk, if it can be moved: it is not the one being filled. */
static struct chunk *movable(struct spool *s)
{
	struct chunk *c = head_of(s);

	return c && (c != tail_of(s) || c->len == c->size) ? c : NULL;
}

/*
 * Whether size bytes more of memory may be taken although the file refuses: what an ended command
 * left has its allowance. What was taken before (0 more) may be filled.
 */
static bool may_exceed(const struct spool *s, size_t size)
{
	size_t limit = s->memory_max + (s->overdraft ? DRAIN_ALLOWANCE : 0);

	return s->memory_used + size <= limit + (size ? 0 : s->chunk_max);
}

/*
 * Makes place in memory for a chunk of size bytes (0: for none), which *spare is then, if one
 * could be had from the old ones. Returns 0 or -errno: the file refuses.
 */
static int make_place(struct spool *s, size_t size, bool force, struct chunk **spare)
{
	struct chunk *c;

	while ((c = movable(s)) && chunk_end(c) <= s->first)
		recycle(take_chunk(s, c), size, spare);
	while (!fits_in_memory(s, size) && (c = movable(s))) {
		int err = spill(s, c);

		if (err < 0 && (force || may_exceed(s, size)))
			return 0;
		if (err < 0 && !drop(s, c))
			return err;
		recycle(take_chunk(s, c), size, spare);
	}
	return 0;
}

static size_t next_chunk_size(struct spool *s)
{
	const struct chunk *tail = tail_of(s);
	size_t size = tail ? tail->size * CHUNK_GROWTH : CHUNK_FIRST;

	return MIN(size, s->chunk_max);
}

/*
 * Sees to it that the tail has space. force: a refusing file or a full memory is no
 * reason not to. Returns 0, -ENOMEM, or another -errno: not now.
 */
static int make_tail(struct spool *s, bool force)
{
	size_t size = tail_space(s) ? 0 : next_chunk_size(s);
	struct chunk *spare = NULL;
	int err = make_place(s, size, force, &spare);

	if (err < 0 || tail_space(s)) {
		free(spare);
		return err;
	}
	if (!spare)
		spare = malloc(sizeof(*spare) + size);
	if (!spare)
		return -ENOMEM;
	spare->off = s->next;
	spare->len = 0;
	spare->size = size;
	list_append(&s->chunks, &spare->link);
	s->memory_used += size;
	return 0;
}

/* ---- Adding ---- */

static void filled(struct spool *s, size_t len)
{
	tail_of(s)->len += len;
	s->next += len;
}

/* Makes room if there can be some. Returns its bytes, 0 or -ENOMEM. */
static ssize_t make_room(struct spool *s)
{
	uint64_t room;
	int err;

	if (s->ended)
		return 0;
	trim(s);
	room = bound_room(s);
	if (!room)
		return 0;
	err = make_tail(s, false);
	if (err < 0)
		return err == -ENOMEM ? err : 0;
	return (ssize_t)MIN(room, tail_space(s));
}

ssize_t spool_reserve(struct spool *s, void **ret)
{
	ssize_t room = make_room(s);
	struct chunk *tail = tail_of(s);

	if (room > 0)
		*ret = tail->data + tail->len;
	return room;
}

void spool_commit(struct spool *s, size_t len)
{
	if (!len)
		return;
	filled(s, len);
	trim(s);
}

/* Takes back what was added beyond offset next. */
static void take_back(struct spool *s, uint64_t next)
{
	struct chunk *tail;

	while ((tail = tail_of(s)) && tail->off >= next)
		free(take_chunk(s, tail));
	if (tail)
		tail->len = MIN(tail->len, next - tail->off);
	s->next = next;
	s->file_next = MIN(s->file_next, next);
}

int spool_append(struct spool *s, const void *data, size_t len)
{
	const char *p = data;
	uint64_t before = s->next;
	ssize_t room = len ? make_room(s) : 0;

	if (!len)
		return 0;
	if (room <= 0)
		return room < 0 ? (int)room : -EAGAIN;
	while (len) {
		int err = make_tail(s, true);
		struct chunk *tail = tail_of(s);
		size_t n = MIN(len, tail_space(s));

		if (err < 0 || !tail) {
			take_back(s, before);
			return err;
		}
		memcpy(tail->data + tail->len, p, n);
		filled(s, n);
		p += n;
		len -= n;
	}
	trim(s);
	return 0;
}

bool spool_has_room(struct spool *s)
{
	/* A spool that has never held anything is not given memory for the question. */
	if (!s->next && !s->ended && s->retain)
		return true;
	return make_room(s) > 0;
}

void spool_overdraw(struct spool *s, uint64_t bytes)
{
	s->overdraft = MIN(s->overdraft + bytes, DRAIN_ALLOWANCE);
}

void spool_end(struct spool *s)
{
	struct chunk *tail = tail_of(s);
	struct chunk *smaller;

	s->ended = true;
	if (!tail || tail->size - tail->len <= SLACK_MAX)
		return;
	take_chunk(s, tail);
	if (!tail->len) {
		free(tail);
		return;
	}
	smaller = realloc(tail, sizeof(*tail) + tail->len);
	if (smaller) {
		tail = smaller;
		tail->size = tail->len;
	}
	list_append(&s->chunks, &tail->link);
	s->memory_used += tail->size;
}

/* ---- Reading ---- */

/* Points at up to len bytes from off on, which are in memory from chunk c on. */
static size_t add_chunks(struct chunk *c, uint64_t off, size_t len, struct spool_slice *ret)
{
	size_t done = 0;

	for (; done < len && ret->count < SPOOL_SLICES;
	     off = chunk_end(c), c = list_entry(c->link.next, struct chunk, link)) {
		size_t n = MIN(len - done, chunk_end(c) - off);

		ret->iov[ret->count++] = (struct iovec){c->data + (off - c->off), n};
		done += n;
	}
	return done;
}

/* Reads len bytes from off on, which are in the file. Returns the bytes read, or -errno. */
static ssize_t add_file(struct spool *s, uint64_t off, size_t len, char *bounce,
			struct spool_slice *ret)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = spool_file_read(s, off + done, bounce + done, len - done);

		if (n < 0 && !done)
			return n;
		if (n < 0)
			break;
		done += (size_t)n;
	}
	ret->iov[ret->count++] = (struct iovec){bounce, done};
	return (ssize_t)done;
}

/* The chunk that has offset off; NULL: it is in the file. Readers are mostly near the tail. */
static struct chunk *find_chunk(struct spool *s, uint64_t off)
{
	for (struct list *l = s->chunks.prev; l != &s->chunks; l = l->prev) {
		struct chunk *c = list_entry(l, struct chunk, link);

		if (c->off <= off)
			return c;
	}
	return NULL;
}

ssize_t spool_peek(struct spool *s, uint64_t off, size_t len, void *bounce, struct spool_slice *ret)
{
	struct chunk *c;
	size_t in_file;
	ssize_t n = 0;

	ret->count = 0;
	if (off < s->first)
		return -ENODATA;
	if (off >= s->next)
		return s->ended ? 0 : -EAGAIN;
	len = MIN(len, s->next - off);
	c = find_chunk(s, off);
	if (!c) {
		c = head_of(s);
		in_file = c ? MIN(len, c->off - off) : len;
		n = add_file(s, off, in_file, bounce, ret);
		if (n < 0 || (size_t)n < in_file)
			return n;
	}
	return n + (ssize_t)add_chunks(c, off + (uint64_t)n, len - (size_t)n, ret);
}

void spool_reader_open(struct spool *s, struct spool_reader *r)
{
	r->spool = s;
	r->pos = s->first;
	list_append(&s->readers, &r->link);
}

void spool_reader_close(struct spool_reader *r)
{
	if (!r->spool)
		return;
	list_remove(&r->link);
	r->spool = NULL;
}

void spool_reader_move(struct spool_reader *r, uint64_t pos)
{
	r->pos = MAX(r->pos, pos);
}

/*
 * Intrusive doubly linked list. A head and an unlinked node point at
 * themselves, so list_remove() of an unlinked node is harmless and
 * list_empty(node) says whether it is on a list.
 */
#pragma once

#include <stdbool.h>

#include "util.h"

struct list {
	struct list *prev;
	struct list *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l;
	l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
	node->prev = at->prev;
	node->next = at;
	at->prev->next = node;
	at->prev = node;
}

static inline void list_append(struct list *head, struct list *node)
{
	list_insert_before(head, node);
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* Moves all of from to the end of to; from is empty afterwards. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(node, type, member) container_of(node, type, member)

#define list_first(head, type, member) list_entry((head)->next, type, member)

#define list_for_each(var, head, type, member)                                                     \
	for (type *var = list_first(head, type, member); &var->member != (head);                   \
	     var = list_entry(var->member.next, type, member))

/* As list_for_each, and the body may remove and free var. */
#define list_for_each_safe(var, head, type, member)                                                \
	for (type *var = list_first(head, type, member),                                           \
		  *var##_next = list_entry(var->member.next, type, member);                        \
	     &var->member != (head);                                                               \
	     var = var##_next, var##_next = list_entry(var->member.next, type, member))

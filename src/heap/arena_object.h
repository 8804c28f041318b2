/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a heap that an arena owns. Each has whole pages, so its span record can name the
 * owner: a free or resize by address is reported as SW_MISUSE_ARENA. Callers: arena/own.c. */
#ifndef SW_HEAP_ARENA_OBJECT_H
#define SW_HEAP_ARENA_OBJECT_H

#include "heap/heap.h"

/* As sw_heap_alloc_aligned. *usable: the bytes of the object's pages. */
void *sw_arena_object_alloc(sw_heap *heap, size_t size, size_t align, unsigned flags,
                            size_t *usable);
/* Frees the object at p. If there is no memory for a cache, the object is leaked. */
void sw_arena_object_free(sw_heap *heap, void *p);

#endif

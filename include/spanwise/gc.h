/* SPDX-License-Identifier: Apache-2.0 */
/* Collected heaps: objects that no root reaches any more are freed by a mark-sweep collector.
 *
 *   sw_gc *gc;                                   a heap with a collector
 *   sw_gc_create(NULL, &gc);
 *   uint64_t pointers = 3;                       words 0 and 1 of a node are pointers
 *   sw_gc_type node = {.name = "node", .bytes = 32, .pointers = &pointers};
 *   uint32_t node_type;
 *   sw_gc_add_type(gc, &node, &node_type);
 *   void *list = NULL;                           a root: one word that may hold a pointer
 *   uint32_t root;
 *   sw_gc_add_roots(gc, &list, sizeof list, &root);
 *   list = sw_gc_new(gc, node_type, 1);
 *   sw_gc_collect(gc, NULL);                     frees what `list` does not reach
 *   sw_gc_destroy(gc);
 *
 * Marking is precise inside typed objects: only the words that the type names are followed. A word that
 * points anywhere into an object, not only at its start, keeps the object. Words that point nowhere into
 * the heap are ignored, so a range of roots may be a range of any words.
 *
 * The objects are those of an ordinary heap (sw_gc_heap): sw_heap_free frees one at once and is validated,
 * sw_heap_alloc makes objects without a type. Without SW_SCAN they hold no pointers; with SW_SCAN every
 * aligned word of them is followed if it points into the heap.
 *
 * While sw_gc_collect runs, no other thread may be inside a call on the heap or change its objects.
 */
#ifndef SPANWISE_GC_H
#define SPANWISE_GC_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_gc sw_gc;

/* What the objects of a type look like. */
typedef struct sw_gc_type {
    const char *name; /* copied */
    size_t bytes;     /* of one object, 1 .. 2^31 */
    const uint64_t
        *pointers; /* bit i % 64 of word i / 64: bytes 8 i .. 8 i + 7 hold a pointer. Copied; NULL:
                               * no pointers. No bit may be set behind the object's last whole word */
} sw_gc_type;

/* A collected heap. options may be NULL; `dry`, `tiny` and `tracked` are not supported (SW_INVALID). */
SW_API sw_status sw_gc_create(const sw_heap_options *options, sw_gc **out);
/* Ends the collector and its heap, with all objects. NULL is ignored. */
SW_API sw_status sw_gc_destroy(sw_gc *gc);
SW_API sw_heap *sw_gc_heap(sw_gc *gc);

/* Registers a type; *id is its number, 1 or more. Types stay for the collector's life.
 * Errors: SW_INVALID, SW_NOMEM, SW_LIMIT (2^24 - 1 types). */
SW_API sw_status sw_gc_add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id);

/* An array of `count` objects of the type, all bytes zero if the type has pointers. NULL with errno ENOMEM when there is no
 * memory, EINVAL when the type is unknown, count is 0 or the size overflows. */
SW_API void *sw_gc_new(sw_gc *gc, uint32_t type, size_t count);

/* Roots: every aligned word of [start, start + bytes) may hold a pointer into the heap. *id names the
 * range for its removal. Errors: SW_INVALID (NULL, not aligned to 8, no whole word), SW_NOMEM. */
SW_API sw_status sw_gc_add_roots(sw_gc *gc, const void *start, size_t bytes, uint32_t *id);
/* SW_INVALID: no such range, or it was removed already. */
SW_API sw_status sw_gc_remove_roots(sw_gc *gc, uint32_t id);

/* One collection. */
typedef struct sw_gc_cycle {
    uint64_t number;         /* 1, 2, ... */
    uint64_t mark_ns;        /* elapsed time of marking */
    uint64_t sweep_ns;       /* and of sweeping */
    uint64_t marked_objects; /* that a root reaches */
    uint64_t marked_bytes;   /* their slots */
    uint64_t freed_objects;  /* that none reached */
    uint64_t freed_bytes;
    uint64_t
        overflows; /* times that the mark stack was refused memory, and objects were looked for */
} sw_gc_cycle;

/* Marks what the roots reach and frees everything else. cycle may be NULL.
 * Errors: SW_NOMEM when the calling thread can have no cache of the heap. */
SW_API sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle);

#ifdef __cplusplus
}
#endif
#endif

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
 * A cycle marks, then sweeps. It may run at once (sw_gc_collect) or in steps, between which the program goes
 * on (sw_gc_start, sw_gc_step, sw_gc_finish). While a cycle marks, each pointer inside an object must be
 * written by sw_gc_write: what it replaces is marked, so that everything that was reachable when the
 * cycle began stays (snapshot at the beginning: Yuasa, "Real-time garbage collection on general-purpose
 * machines", 1990). Roots are read once, when the cycle begins, and may be written at any time. What is
 * allocated while a cycle runs survives it.
 *
 * While a call of this header that starts, steps or finishes a cycle runs, no other thread may be inside a
 * call on the heap or change its objects.
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

/* --- cycles ----------------------------------------------------------------------------------- */

/* One cycle. While it runs, the figures are those so far. Calls that fill one in want its struct_bytes to be
 * sizeof(sw_gc_cycle); later versions may add fields (docs/stability.md), and SW_INVALID says that it is no
 * such size. */
typedef struct sw_gc_cycle {
    uint64_t struct_bytes;
    uint64_t number;         /* 1, 2, ... */
    uint64_t steps;          /* calls that did work of it */
    uint64_t mark_ns;        /* elapsed time of marking, in those calls */
    uint64_t sweep_ns;       /* and of sweeping */
    uint64_t longest_ns;     /* of the longest such call */
    uint64_t marked_objects; /* that a root reached, or that were allocated since */
    uint64_t marked_bytes;   /* their slots */
    uint64_t freed_objects;  /* that none reached */
    uint64_t freed_bytes;
    uint64_t pending_objects; /* that the program freed meanwhile, and the sweep gave back */
    uint64_t pending_bytes;
    uint64_t overflows; /* objects for which the mark stack was refused memory */
    uint64_t given_up;  /* 1: nothing was freed but pending objects (sw_gc_abandon) */
} sw_gc_cycle;

typedef enum sw_gc_phase { SW_GC_IDLE = 0, SW_GC_MARKING = 1, SW_GC_SWEEPING = 2 } sw_gc_phase;

/* Marks what the roots reach and frees everything else. A cycle that is under way is finished before. cycle
 * may be NULL. Errors: SW_NOMEM when the calling thread can have no cache of the heap; those of
 * sw_gc_step. */
SW_API sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle);

/* Begins a cycle: reads the roots. Errors: SW_STATE when one is under way; SW_NOMEM. */
SW_API sw_status sw_gc_start(sw_gc *gc);
/* Works on the cycle that is under way; nothing when there is none. work: objects to scan, where 512 bytes of
 * a longer one count as one, or words of 64 slots to sweep; at least one of them is. One call marks
 * or sweeps, not both. Errors: SW_NOMEM; SW_STATE with SW_GC_CHECKMARK: marking has missed an object, and the
 * cycle is given up. */
SW_API sw_status sw_gc_step(sw_gc *gc, size_t work);
/* Does what is left of the cycle. Errors: SW_STATE when none is under way; those of sw_gc_step. */
SW_API sw_status sw_gc_finish(sw_gc *gc, sw_gc_cycle *cycle);
/* Gives the cycle up: the sweep frees what the program has freed meanwhile and nothing else. Errors: SW_STATE
 * unless a cycle marks. */
SW_API sw_status sw_gc_abandon(sw_gc *gc);
/* What a step would do now. SW_GC_IDLE if the collector has ended. */
SW_API sw_gc_phase sw_gc_current_phase(const sw_gc *gc);
/* The cycle under way, or the last one. SW_STATE: there was none. */
SW_API sw_status sw_gc_last_cycle(sw_gc *gc, sw_gc_cycle *cycle);

/* Writes a pointer into an object of the heap: *at = value. Threads may call it at once. */
SW_API void sw_gc_write(sw_gc *gc, void *at, void *value);

/* Writes `count` pointers to words in a row, as sw_gc_write does. */
SW_API void sw_gc_write_all(sw_gc *gc, void *at, void *const *values, size_t count);

/* Makes a graph, for studies and tests: `nodes` objects of the type, allocated in order. Edge e of object i, which is in the
 * type's e-th pointer word, goes to object edges[i * degree + e]; SW_GC_NO_EDGE: it is NULL. addresses, of
 * `nodes` words: gets the objects. No root reaches them yet: nothing else may start a cycle before that.
 * Errors: SW_INVALID: no such type, it has fewer than `degree` pointer words among its first 64 words, or an edge goes
 * to no object; nothing is made. SW_NOMEM: the objects that were made are left to the collector. */
#define SW_GC_NO_EDGE UINT32_MAX
SW_API sw_status sw_gc_build(sw_gc *gc, uint32_t type, uint32_t degree, size_t nodes,
                             const uint32_t *edges, void **addresses);

/* --- looking for mistakes --------------------------------------------------------------------- */

enum {
    SW_GC_CHECKMARK = 1, /* each marking is compared with a second one, made in another way */
    SW_GC_CLOBBER = 2,   /* what a sweep frees is filled with the byte 0xDB */
    SW_GC_ALWAYS = 4,    /* sw_gc_new collects before each allocation */
};
/* Sets the options, a sum of SW_GC_...; 0 at first. SW_INVALID: another bit is set. */
SW_API sw_status sw_gc_set_debug(sw_gc *gc, unsigned options);
/* Checks the rules of the collector's marks, in every span: SW_OK or SW_STATE, with the text of the first broken
 * one. sw_heap_verify has those of the heap. No other thread may be inside a call on the heap. */
SW_API sw_status sw_gc_verify(sw_gc *gc);

#ifdef __cplusplus
}
#endif
#endif

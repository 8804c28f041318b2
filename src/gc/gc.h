/* SPDX-License-Identifier: Apache-2.0 */
/* The collector, from the inside.
 *
 * Nouns. The *collector* of a heap frees what no root reaches. A *mark* is a bit a slot; marks lie dense
 * and out of line, 64 slots a word, so that marking writes to few cache lines. A *cycle* is one marking and
 * the sweep behind it. The *layout* of a type says which words of its objects are pointers; an *annex* is
 * what the collector knows of one span. The *mark stack* has objects that are marked and not scanned yet.
 *
 * What a mark says, and when. A span is *prepared* in a cycle before its first mark is looked at: its marks
 * become its free bits. So a free slot counts as marked, no stale pointer can lead into it, and an object that is
 * allocated there while the cycle lasts is black from its birth. After marking, a slot whose mark is clear and
 * which is not free is dead: that is what the sweep frees.
 *
 * When things happen. Marking and the starts of cycles run while no other thread is inside the heap (the
 * contract of sw_gc_start and sw_gc_step); everything in between is done by the threads that use the heap,
 * through the hooks: they prepare a span before they take slots of it while a cycle marks, sweep it
 * before that while a cycle sweeps, and leave explicit frees to the sweep.
 *
 * Files, the lowest first: type (layouts), annex (of spans), place (a walk over annexes), stack, mark,
 * second_mark (the check of a marking), sweep, hooks (what the heap calls), cycle (the driver), roots, graph, verify,
 * collector (making, ending, typed new).
 */
#ifndef SW_GC_GC_H
#define SW_GC_GC_H

#include "gc/stack.h"
#include "heap/heap.h"
#include "spanwise/gc.h"

/* A registered type; number 0 is that of objects without one, whose words all may be pointers.
 *   words == bytes / 8;  pattern is the map's first 64 words, repeated if an object is shorter */
typedef struct sw_gc_layout {
    uint64_t pattern;    /* of an array of such objects: bit i, word i is a pointer */
    const uint64_t *map; /* NULL: every word may be a pointer */
    size_t bytes;
    size_t words;
    bool scan;     /* it has pointers */
    char name[32]; /* cut */
} sw_gc_layout;

enum { SW_GC_TYPES_MAX = 1 << 24, SW_GC_UNTYPED = 0 };
#define SW_GC_TYPE_UNSET UINT32_MAX /* of a span that has had no object yet */

/* A range of roots; bytes 0: removed. */
typedef struct sw_gc_roots {
    const void *start;
    size_t bytes;
} sw_gc_roots;

/* An array that grows by doubling, in a mapping of its own.
 *   count <= capacity;  (items == NULL) == (capacity == 0) */
typedef struct sw_gc_array {
    void *items;
    uint32_t count, capacity;
} sw_gc_array;

/* A place in a walk over all span records of the heap, batch by batch.
 *   first == 0: the end;  else first <= id < first + SW_SPAN_BATCH */
typedef struct sw_gc_place {
    uint32_t first; /* record of the batch */
    uint32_t id;    /* of the next record */
} sw_gc_place;

/* The lock covers every field but those marked atomic, which are written under it.
 *   types.count >= 1: that of objects without a type;  heap->collector == the record
 *   phase == SW_GC_MARKING if and only if epoch is even
 *   the stack is empty unless phase == SW_GC_MARKING */
struct sw_gc {
    uint64_t mark;   /* ds/handle.h */
    uint32_t phase;  /* atomic: sw_gc_phase */
    uint32_t epoch;  /* 2 n while cycle n marks, 2 n + 1 from its sweep on */
    sw_os_lock lock; /* taken before the heap's */
    sw_heap *heap;
    sw_gc_array types;  /* sw_gc_layout */
    sw_gc_array roots;  /* sw_gc_roots; id: index + 1 */
    sw_gc_stack stack;  /* objects that are marked and not scanned */
    bool overflowed;    /* a push was refused: some marked object is on no stack */
    bool lost;          /* a value that a write replaced is neither marked nor on the stack */
    bool given_up;      /* what is not marked is not known to be dead */
    unsigned debug;     /* SW_GC_... */
    sw_gc_place rescan; /* spans whose marked objects are still to be scanned again */
    sw_gc_place sweep;  /* spans that steps have not swept */
    sw_gc_place sought; /* spans that allocations have not looked at */
    sw_gc_cycle cycle;  /* under way, or the last one */
    bool traced;        /* SPANWISE_DEBUG=gctrace=1: a line at each end of a cycle */
    uint64_t born_ns;   /* when the collector was made */
    uint64_t start_ns;  /* of the cycle: what its start took */
    uint64_t spent_ns;  /* in the cycles that have ended */
};

/* What an annex is stamped with in this epoch of the collector. */
static inline uint64_t sw_gc_stamp(const sw_gc *gc, uint32_t epoch) {
    return (uint64_t)gc->heap->id << 32 | epoch;
}
static inline sw_gc_phase sw_gc_phase_seen(const sw_gc *gc) {
    return (sw_gc_phase)__atomic_load_n(&gc->phase, __ATOMIC_RELAXED);
}

enum { SW_GC_CLOBBER_BYTE = 0xDB };

/* SW_OK, or what to say of a handle that is no live collector. */
#define SW_GC_STATUS(gc, op) sw_handle_status(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, op)

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_record_check(const sw_gc *gc);

#endif

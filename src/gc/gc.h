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
 * Files, the lowest first: type (layouts), annex (of spans), stack, mark, roots, sweep, cycle (the driver).
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

/*   types.count >= 1: that of objects without a type;  heap->collector == the record */
struct sw_gc {
    uint64_t mark;   /* ds/handle.h */
    sw_os_lock lock; /* types, roots, and one collection at a time */
    sw_heap *heap;
    sw_gc_array types; /* sw_gc_layout */
    sw_gc_array roots; /* sw_gc_roots; id: index + 1 */
    sw_gc_stack stack; /* of marked objects; empty between collections */
    uint32_t cycles;   /* finished or under way */
};

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_record_check(const sw_gc *gc);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Marking: from roots to everything that they reach. Callers: the cycle. */
#ifndef SW_GC_MARK_H
#define SW_GC_MARK_H

#include "gc/annex.h"
#include "gc/stack.h"

enum { SW_GC_AHEAD = 32 }; /* objects between their prefetch and their scan; a power of two */

/* One marker. */
typedef struct sw_gc_marker {
    sw_gc_annex *annexes; /* what the discovery of a pointer reads, together */
    sw_space_view view;
    uint64_t stamp; /* of this cycle: sw_gc_annex.stamp */
    sw_gc_stack stack;
    sw_gc *gc;
    uint64_t overflows;
    bool overflowed; /* the stack was refused memory: some marked object is on no stack */
} sw_gc_marker;

/* Takes the collector's stack, which is empty, and gives it back in the end. */
void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc);
void sw_gc_marker_end(sw_gc_marker *marker);
/* Marks what the words [start, start + bytes) point into. */
void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes);
/* Scans marked objects until there is none left that is not scanned. */
void sw_gc_mark_drain(sw_gc_marker *marker);

#endif

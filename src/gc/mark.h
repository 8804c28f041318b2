/* SPDX-License-Identifier: Apache-2.0 */
/* Marking: from roots to everything that they reach. Callers: the cycle. */
#ifndef SW_GC_MARK_H
#define SW_GC_MARK_H

#include "gc/place.h"
#include "gc/stack.h"

enum { SW_GC_AHEAD = 32 }; /* objects between their prefetch and their scan; a power of two */
enum { SW_GC_PIECE_BYTES = 16 << 10, SW_GC_WORK_BYTES = 512 };

/* One marker, while one call marks. */
typedef struct sw_gc_marker {
    sw_gc_annex *annexes; /* what the discovery of a pointer reads, together */
    sw_space_view view;
    uint64_t stamp; /* of this cycle: sw_gc_annex.stamp */
    sw_gc_stack stack;
    sw_gc *gc;
    int64_t work; /* that is left; at most 0: none */
} sw_gc_marker;

#define SW_GC_ALL_WORK INT64_MAX

/* Takes the collector's stack, and gives it back in the end. Under the collector's lock. */
void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc, int64_t work);
void sw_gc_marker_end(sw_gc_marker *marker);
/* Marks what the words [start, start + bytes) point into. */
void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes);
/* Scans marked objects until no work is left. True: there is no object left that is not scanned. */
bool sw_gc_mark_drain(sw_gc_marker *marker);
/* Under the collector's lock, while a cycle marks and other threads may be inside the heap: the object that
 * the word points into is marked, or will be by the next step. */
void sw_gc_mark_word(sw_gc *gc, uintptr_t value);

#endif

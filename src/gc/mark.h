/* SPDX-License-Identifier: Apache-2.0 */
/* Marking: from roots to everything reachable. Callers: the cycle. */
#ifndef SW_GC_MARK_H
#define SW_GC_MARK_H

#include "gc/span_cursor.h"
#include "gc/stack.h"

enum { SW_GC_AHEAD = 32 }; /* objects between their prefetch and their scan; a power of two */
enum { SW_GC_PIECE_BYTES = 16 << 10, SW_GC_WORK_BYTES = 512 };

/* SW_GC_BATCH objects are scanned before their referents are marked; sw_gc_marker.found has room
 * for SW_GC_FOUND words. */
enum { SW_GC_BATCH = 8, SW_GC_FOUND = 192 };

/* A word that points into a span, buffered to be marked with others. word and slot are known once
 * the metadata was read.
 *   word is that of the slot's mark, or &sw_gc_marker.marked if there is no object */
typedef struct sw_gc_pointer {
    uintptr_t p;
    uint64_t *word;
    uint32_t id; /* of the span */
    uint32_t slot;
} sw_gc_pointer;

/* The state of a call that marks.
 *   found_count <= SW_GC_FOUND - 64 between two calls of scan_words;  0 if found == NULL */
typedef struct sw_gc_marker {
    sw_gc_span_meta *span_metas; /* span_metas, view, stamp: read per pointer */
    sw_space_view view;
    uint64_t stamp; /* of this cycle: sw_gc_span_meta.stamp */
    sw_gc_stack stack;
    sw_gc *gc;
    int64_t work;         /* remaining work; <= 0: none */
    bool by_span;         /* the cycle's order */
    bool has_extras;      /* objects may be outside the range */
    bool is_concurrent;   /* mutators run, and the thread does not hold the collector's lock */
    uint64_t refused;     /* objects that did not fit on the stack */
    uint64_t marked;      /* bit 0 is set: the dummy mark of words without an object */
    sw_gc_pointer *found; /* NULL: this marker does not drain */
    uint32_t found_count;
} sw_gc_marker;

#define SW_GC_ALL_WORK INT64_MAX

/* Takes the collector's stack, and returns it at the end. Under the collector's lock. */
void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc, int64_t work);
void sw_gc_marker_end(sw_gc_marker *marker);
/* Marks the objects that the words of [start, start + bytes) point into. */
void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes);
/* Scans marked objects until no work is left. True: every marked object is scanned. */
bool sw_gc_mark_drain(sw_gc_marker *marker);
/* The same while mutators run, without the lock, after marking what the words point into. True: no
 * object waits, but if some did not fit on the stack, sw_gc_mark_drain must scan them in a stopped
 * world. */
bool sw_gc_mark_concurrently(sw_gc_marker *marker, const uintptr_t *words, size_t count);
/* Marks the object that the word points into, at the latest in the next step. Under the collector's
 * lock, while a cycle marks and other threads may be inside the heap. If a background thread marks,
 * the word waits in the inbox. */
void sw_gc_mark_word(sw_gc *gc, uintptr_t value);

#endif

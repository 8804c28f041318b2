/* SPDX-License-Identifier: Apache-2.0 */
/* Marking span by span (Go, "The Green Tea garbage collector", 2025): a span with objects that are marked and not scanned, which
 * are called *grey*, waits in a queue, once, however many these are. Each of its slots has a bit, which tells whether it is grey.
 * Callers: mark_scan, mark_spans, annex, cycle, verify. */
#ifndef SW_GC_GREY_H
#define SW_GC_GREY_H

#include "gc/mark.h"

/* Grey slots of a span: a block of the heap's metadata, made when the first object of the span turns grey. What a cycle that was given
 * up has left there counts for no later one: the stamp tells.
 *   stamp == sw_gc_annex.stamp of a cycle that marks: a grey slot is marked, and where there is one, is_queued
 *   next == 0 unless is_queued */
typedef struct sw_gc_greys {
    uint64_t stamp;
    uint32_t next;       /* id of the span behind it in the queue; 0: it is the last one */
    uint32_t words : 31; /* of marks, and of these bits */
    uint32_t is_queued : 1;
    uint64_t bits[];
} sw_gc_greys;

/* By span id; NULL: no object of the span was ever grey. */
extern sw_gc_greys **sw_gc_greys_of;

/* The rules that do not hold, or NULL (base/assert.h). */
const char *sw_gc_greys_check(const sw_gc_greys *greys, const sw_gc_annex *annex);
const char *sw_gc_span_queue_check(const sw_gc_span_queue *queue);

/* Greys of a span that has none yet in this cycle. NULL: no memory. */
sw_gc_greys *sw_gc_greys_begin(const sw_gc_marker *marker, uint32_t id);
/* Under the heap's lock: the span ends. */
void sw_gc_greys_end(sw_heap *heap, uint32_t id);

/* The span waits from now on, behind all others. */
void sw_gc_queue_append(sw_gc_span_queue *queue, uint32_t id);
/* The span goes on next. */
void sw_gc_queue_put_back(sw_gc_span_queue *queue, uint32_t id);
/* The span that has waited longest waits no more; the queue is not empty. */
void sw_gc_queue_take(sw_gc_span_queue *queue);

/* The slot, just marked, waits to be scanned. False: no memory for that. */
static sw_always_inline bool sw_gc_grey_add(const sw_gc_marker *marker, uint32_t id,
                                            uint64_t slot) {
    sw_gc_greys *greys = sw_gc_greys_of[id];
    if (sw_unlikely(greys == NULL) || sw_unlikely(greys->stamp != marker->stamp)) {
        greys = sw_gc_greys_begin(marker, id);
        if (greys == NULL) return false;
    }
    greys->bits[slot / 64] |= 1ull << slot % 64;
    if (!greys->is_queued) sw_gc_queue_append(&marker->gc->queue, id);
    return true;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The queue is linked through the spans' greys, so that adding a span needs no memory. */
#include "gc/grey.h"

#include <string.h>

#include "base/assert.h"

sw_gc_greys **sw_gc_greys_of;

const char *sw_gc_greys_check(const sw_gc_greys *greys, const sw_gc_annex *annex) {
    uint64_t grey = 0, unmarked = 0;
    for (uint32_t k = 0; k < greys->words; k++) {
        grey |= greys->bits[k];
        unmarked |= greys->bits[k] & ~annex->marks[k];
    }
    return SW_RULE(unmarked == 0) ?: SW_RULE(grey == 0 || greys->is_queued)
        ?: SW_RULE(greys->next == 0 || greys->is_queued);
}

const char *sw_gc_span_queue_check(const sw_gc_span_queue *queue) {
    return SW_RULE((queue->first == 0) == (queue->last == 0))
               ?: SW_RULE(queue->last == 0 || sw_gc_greys_of[queue->last]->next == 0);
}

static size_t greys_bytes(uint32_t words) { return sizeof(sw_gc_greys) + words * sizeof(uint64_t); }

/* Makes the greys of a span, which have no stamp yet. NULL: no memory. */
static sw_gc_greys *make(sw_heap *heap, uint32_t id) {
    uint32_t words = sw_gc_mark_words(heap, sw_space_span(heap->space, id));
    sw_os_lock_acquire(&heap->lock);
    sw_gc_greys *greys = sw_meta_alloc(&heap->meta, greys_bytes(words));
    sw_os_lock_release(&heap->lock);
    if (greys == NULL) return NULL;
    greys->words = words & INT32_MAX;
    sw_gc_greys_of[id] = greys;
    return greys;
}

sw_gc_greys *sw_gc_greys_begin(const sw_gc_marker *marker, uint32_t id) {
    sw_gc_greys *greys = sw_gc_greys_of[id];
    if (greys == NULL) greys = make(marker->gc->heap, id);
    if (greys == NULL) return NULL;
    greys->stamp = marker->stamp;
    greys->next = greys->is_queued = 0;
    memset(greys->bits, 0, greys->words * sizeof *greys->bits);
    return greys;
}

void sw_gc_greys_end(sw_heap *heap, uint32_t id) {
    sw_gc_greys *greys = sw_gc_greys_of[id];
    if (greys != NULL) sw_meta_free(&heap->meta, greys, greys_bytes(greys->words));
    sw_gc_greys_of[id] = NULL;
}

/* --- the queue -------------------------------------------------------------------------------- */

void sw_gc_queue_append(sw_gc_span_queue *queue, uint32_t id) {
    sw_gc_greys_of[id]->is_queued = 1;
    if (queue->last == 0)
        queue->first = id;
    else
        sw_gc_greys_of[queue->last]->next = id;
    queue->last = id;
}

void sw_gc_queue_put_back(sw_gc_span_queue *queue, uint32_t id) {
    sw_gc_greys *greys = sw_gc_greys_of[id];
    greys->is_queued = 1;
    greys->next = queue->first;
    queue->first = id;
    if (queue->last == 0) queue->last = id;
}

void sw_gc_queue_take(sw_gc_span_queue *queue) {
    sw_check2(sw_gc_span_queue_check(queue));
    sw_gc_greys *greys = sw_gc_greys_of[queue->first];
    queue->first = greys->next;
    if (queue->first == 0) queue->last = 0;
    greys->next = greys->is_queued = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Checks all span metadata of a heap (sw_gc_verify). */
#include "base/fail.h"
#include "gc/grey.h"
#include "gc/marker_thread.h"
#include "gc/refs.h"
#include "gc/span_cursor.h"

/* Returns the broken rule of word k of the span's marks, as a text; NULL: none. */
static const char *broken_word(const sw_gc *gc, const sw_span *span, const sw_gc_span_meta *meta,
                               const uint64_t *pending, uint32_t k) {
    uint64_t free_bits = sw_word_all(&span->words[k]);
    bool prepared = gc->phase == SW_GC_MARKING && meta->stamp == sw_gc_stamp(gc, gc->epoch);
    if (prepared && (free_bits & ~meta->marks[k]) != 0) return "a free slot is not marked";
    if ((pending[k] & free_bits) != 0) return "a free slot waits to be freed";
    return NULL;
}

static const char *broken_rule(const sw_gc *gc, uint32_t id) {
    const sw_heap *heap = gc->heap;
    sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    const sw_span *span = sw_space_span(heap->space, id);
    const char *broken = sw_gc_span_meta_check(meta, span);
    if (broken != NULL) return broken;
    bool swept = gc->phase != SW_GC_MARKING && meta->stamp == sw_gc_stamp(gc, gc->epoch);
    if (gc->phase == SW_GC_IDLE && !swept) return "it was not swept";
    const sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (grey_bits != NULL && gc->phase == SW_GC_MARKING && grey_bits->stamp == meta->stamp)
        broken = sw_gc_grey_bits_check(grey_bits, meta);
    if (broken != NULL) return broken;
    const uint64_t *pending = sw_gc_pending(heap, span, meta);
    for (uint32_t k = 0; k < sw_gc_mark_words(heap, span); k++)
        if (swept && pending[k] != 0) return "a slot waits to be freed after the sweep";
    for (uint32_t k = 0; k < sw_span_word_count(span) && broken == NULL; k++)
        broken = broken_word(gc, span, meta, pending, k);
    return broken;
}

/* Returns the broken rule of the references, as a text; NULL: none. */
static const char *broken_ref(const sw_gc *gc) {
    uint32_t hashed = 0;
    const char *broken = sw_gc_refs_check(&gc->refs);
    for (uint32_t i = 0; i < gc->refs.entries.count && broken == NULL; i++) {
        const sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (entry->object == 0) continue;
        hashed++;
        if (!sw_gc_refs_is_object(
                gc, (const void *)entry->object)) /* NOLINT(performance-no-int-to-ptr) */
            broken = "a reference points to a freed object";
    }
    if (broken == NULL && hashed != gc->refs.hashed) broken = "the count of objects is wrong";
    return broken;
}

static sw_status verify(const sw_gc *gc) {
    const char *op = "gc_verify", *broken = sw_gc_record_check(gc);
    if (broken != NULL) return sw_fail(SW_STATE, op, "collector: %s", broken);
    broken = broken_ref(gc);
    if (broken != NULL) return sw_fail(SW_STATE, op, "references: %s", broken);
    sw_gc_span_cursor place = sw_gc_span_cursor_begin(gc->heap);
    while (!sw_gc_span_cursor_at_end(&place)) {
        uint32_t id = sw_gc_span_cursor_next(gc->heap, &place);
        if (!sw_gc_span_meta_is_of(gc->heap, id)) continue;
        broken = broken_rule(gc, id);
        if (broken != NULL) return sw_fail(SW_STATE, op, "span %u: %s", id, broken);
    }
    return SW_OK;
}

sw_status sw_gc_verify(sw_gc *gc) {
    sw_status status = SW_GC_STATUS(gc, "gc_verify");
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_marker_park(gc);
    status = verify(gc);
    sw_gc_marker_unpark(gc);
    sw_os_lock_release(&gc->lock);
    return status;
}

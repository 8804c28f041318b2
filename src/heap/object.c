/* SPDX-License-Identifier: Apache-2.0 */
/* Turns slots into objects (object.h). */
#include "heap/object.h"

#include "heap/collected.h"
#include "heap/slack.h"
#include "heap/template.h"

/* Notes the requested size of the object at p, which was just allocated. */
static void note_requested(sw_cache *cache, const sw_span *span, uintptr_t p, size_t size) {
    uint32_t index = sw_span_slot_of(span, p);
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    void *slack = sw_space_cold(cache->heap->space, span)->slack;
    sw_slack_set(slack, bytes, index, bytes - (uint32_t)size);
}

/* Zeroes the object as the flags say. A dry heap only notes the write, if it notes writes. */
static void zero(sw_cache *cache, const sw_span *span, void *p, unsigned flags) {
    unsigned kind = (flags & SW_SCAN) != 0 ? SW_TEMPLATE_SCAN : SW_TEMPLATE_NOSCAN;
    if (!sw_template_must_zero(span, flags, kind)) return;
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    if ((cache->mode & SW_MODE_DRY) == 0)
        memset(p, 0, bytes);
    else if (sw_touch_map_is_on(&cache->heap->pages.touch))
        sw_pages_touch(&cache->heap->pages, (uintptr_t)p, bytes);
}

/* Notes the requested size in a tracked heap, and gives a collector the type of the object. */
static sw_noinline void note(sw_cache *cache, const sw_span *span, void *p, size_t size,
                             unsigned flags) {
    if ((cache->mode & SW_MODE_TRACKED) != 0) note_requested(cache, span, (uintptr_t)p, size);
    if (sw_heap_is_collected(cache->heap))
        cache->heap->hooks->typed(cache, span, (uintptr_t)p, flags >> SW_TYPE_SHIFT);
}

static sw_always_inline void *finish(sw_cache *cache, const sw_span *span, void *p, size_t size,
                                     unsigned flags) {
    if ((flags & (SW_ZERO | SW_SCAN)) != 0) zero(cache, span, p, flags);
    if (sw_unlikely(cache->mode != 0)) note(cache, span, p, size, flags);
    return p;
}

void *sw_object_finish(sw_cache *cache, const sw_span *span, void *p, size_t size, unsigned flags) {
    return finish(cache, span, p, size, flags);
}

void *sw_object_from_word(sw_cache *cache, sw_cache_bin *bin, size_t size, unsigned flags) {
    void *p = sw_template_pop(bin, sw_word_free(bin->word), bin->bytes);
    return finish(cache, bin->span, p, size, flags);
}

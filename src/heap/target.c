/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up any pointer (target.h). */
#include "heap/target.h"

#include <errno.h>

#include "base/base.h"
#include "heap/heap.h"
#include "heap/template.h"

/* --- reports ---------------------------------------------------------------------------------- */

void sw_report_double_free(const sw_heap *heap, uintptr_t p) {
    sw_misuse_report(&(sw_fault){.code = SW_MISUSE_DOUBLE_FREE,
                                 .op = "free",
                                 .ptr = (const void *)p,
                                 .heap_id = heap->id,
                                 .thread = sw_os_thread_id()});
}

void *sw_report_ended_cache(const sw_cache *cache) {
    (void)sw_cache_check(cache, "alloc");
    errno = EINVAL;
    return NULL;
}

/* --- objects of slots ------------------------------------------------------------------------- */

/* Stores the requested size of the object at p, which was just allocated. */
static void note_requested(sw_cache *cache, const sw_span *span, uintptr_t p, size_t size) {
    uint32_t index = sw_span_slot_of(span, p);
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    void *slack = sw_space_cold(cache->heap->space, span)->slack;
    sw_slack_set(slack, bytes, index, bytes - (uint32_t)size);
}

/* Zeroes the object according to the flags. A dry heap only records the write, if it records
 * writes. */
static void zero(sw_cache *cache, const sw_span *span, void *p, unsigned flags) {
    unsigned kind = (flags & SW_SCAN) != 0 ? SW_TEMPLATE_SCAN : SW_TEMPLATE_NOSCAN;
    if (!sw_template_must_zero(span, flags, kind)) return;
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    if ((cache->mode & SW_MODE_DRY) == 0)
        memset(p, 0, bytes);
    else if (sw_touch_map_is_on(&cache->heap->pages.touch))
        sw_pages_touch(&cache->heap->pages, (uintptr_t)p, bytes);
}

/* Stores the requested size in a tracked heap, and passes the object's type to a collector. */
static sw_noinline void note_object(sw_cache *cache, const sw_span *span, void *p, size_t size,
                                    unsigned flags) {
    if ((cache->mode & SW_MODE_TRACKED) != 0) note_requested(cache, span, (uintptr_t)p, size);
    if (sw_heap_is_collected(cache->heap))
        cache->heap->hooks->typed(cache, span, (uintptr_t)p, flags >> SW_TYPE_SHIFT);
}

static sw_always_inline void *finish(sw_cache *cache, const sw_span *span, void *p, size_t size,
                                     unsigned flags) {
    if ((flags & (SW_ZERO | SW_SCAN)) != 0) zero(cache, span, p, flags);
    if (sw_unlikely(cache->mode != 0)) note_object(cache, span, p, size, flags);
    return p;
}

void *sw_object_finish(sw_cache *cache, const sw_span *span, void *p, size_t size, unsigned flags) {
    return finish(cache, span, p, size, flags);
}

void *sw_object_from_word(sw_cache *cache, sw_cache_bin *bin, size_t size, unsigned flags) {
    void *p = sw_template_pop(bin, sw_word_free(bin->word), bin->bytes);
    return finish(cache, bin->span, p, size, flags);
}

/* --- look-up ---------------------------------------------------------------------------------- */

static sw_target bad(sw_misuse misuse, sw_span *span) {
    return (sw_target){.misuse = misuse, .span = span};
}

/* In a collected heap an allocated object may already have been freed by the program and wait for
 * the sweep: then this is a double free. */
static sw_target found(const sw_heap *heap, sw_target target) {
    if (sw_heap_is_collected(heap) && target.misuse == SW_MISUSE_NONE &&
        heap->hooks->waits(heap, target.span, target.slot))
        target.misuse = SW_MISUSE_DOUBLE_FREE;
    return target;
}

static sw_target find_in_slots(sw_span *span, uintptr_t p) {
    uint32_t slot = 0;
    switch (sw_span_locate(span, p, &slot)) {
    case SW_SLOT_PAST_LAST: return bad(SW_MISUSE_PAST_LAST_SLOT, span);
    case SW_SLOT_INTERIOR: return bad(SW_MISUSE_INTERIOR, span);
    case SW_SLOT_START: break;
    }
    if (!sw_span_slot_live(span, slot)) return bad(SW_MISUSE_DOUBLE_FREE, span);
    return (sw_target){.misuse = SW_MISUSE_NONE, .span = span, .slot = slot};
}

sw_target sw_target_find(sw_heap *heap, const void *ptr) {
    uintptr_t p = (uintptr_t)ptr;
    uint32_t id = sw_space_id_of(heap->space, p);
    if (id == SW_SPAN_NONE) return bad(SW_MISUSE_FOREIGN, NULL);
    if (id == SW_SPAN_RELEASED) return bad(SW_MISUSE_DOUBLE_FREE, NULL);
    sw_span *span = sw_space_span(heap->space, id);
    const sw_heap *owner = sw_space_cold(heap->space, span)->heap;
    if (owner != NULL && sw_span_is_large(span) && sw_span_large_is_arenas(span))
        return bad(SW_MISUSE_ARENA, span);
    if (owner != heap) /* NULL: a racing free has just made the record unused */
        return owner == NULL ? bad(SW_MISUSE_DOUBLE_FREE, NULL) : bad(SW_MISUSE_WRONG_HEAP, span);
    if (!sw_span_is_large(span)) return found(heap, find_in_slots(span, p));
    if (!sw_span_large_lives(span)) return bad(SW_MISUSE_DOUBLE_FREE, NULL);
    sw_target target = bad(p == span->base ? SW_MISUSE_NONE : SW_MISUSE_INTERIOR, span);
    target.large = true;
    return found(heap, target);
}

/* Most tiny objects begin in the middle of their block, which the look-up calls
 * SW_MISUSE_INTERIOR. */
bool sw_target_is_shared(const sw_heap *heap, const sw_target *target) {
    return (heap->mode & SW_MODE_TINY) != 0 &&
           (target->misuse == SW_MISUSE_NONE || target->misuse == SW_MISUSE_INTERIOR) &&
           sw_span_size(target->span) == 16 && (target->span->span_class & 1) != 0;
}

bool sw_object_is_shared(sw_heap *heap, const void *object) {
    if ((heap->mode & SW_MODE_TINY) == 0) return false;
    sw_target target = sw_target_find(heap, object);
    return sw_target_is_shared(heap, &target);
}

bool sw_target_check(sw_heap *heap, const void *ptr, const char *op) {
    if (!sw_heap_check(heap, op)) return false;
    sw_target target = sw_target_find(heap, ptr);
    if (target.misuse == SW_MISUSE_NONE || sw_target_is_shared(heap, &target)) return true;
    sw_target_report(heap, &target, op, ptr, 0);
    return false;
}

sw_misuse (*sw_target_foreign)(const void *ptr);

static sw_misuse ask_foreign(const void *ptr) {
    sw_misuse (*foreign)(const void *) = __atomic_load_n(&sw_target_foreign, __ATOMIC_ACQUIRE);
    return foreign == NULL ? SW_MISUSE_FOREIGN : foreign(ptr);
}

void sw_target_report(sw_heap *heap, const sw_target *target, const char *op, const void *ptr,
                      size_t size) {
    sw_span *span = target->span;
    sw_heap *owner = span == NULL ? NULL : sw_space_cold(heap->space, span)->heap;
    bool is_foreign = target->misuse == SW_MISUSE_FOREIGN;
    sw_fault fault = {.code = is_foreign ? ask_foreign(ptr) : target->misuse,
                      .op = op,
                      .ptr = ptr,
                      .size = size != 0      ? size
                              : span == NULL ? 0
                                             : sw_span_size(span),
                      .heap_id = owner == NULL ? 0 : owner->id,
                      .thread = sw_os_thread_id()};
    sw_misuse_report(&fault);
}

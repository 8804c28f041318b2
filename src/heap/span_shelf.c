/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/span_shelf.h"

#include "heap/central.h"
#include "heap/hazard.h"
#include "heap/record.h"
#include "heap/slack.h"
#include "heap/verify_point.h"

_Static_assert(SW_SPAN_SHELVES == 2 * 8 + 2 * 4 + (SW_SPAN_SHELF_PAGES - 4) * 2, "shelves");

/* --- putting ---------------------------------------------------------------------------------- */

/* Whether the span may go on a shelf. Under a placement policy other than LIFO none may, because
 * there the policy decides where the next span lies. */
static bool may_shelve(const sw_heap *heap, const sw_span *span) {
    return sw_span_has_single_word(span) && (heap->mode & SW_MODE_COLLECTED) == 0 &&
           heap->options.placement == SW_PLACE_LIFO &&
           sw_space_cold(heap->space, span)->pages <= SW_SPAN_SHELF_PAGES;
}

bool sw_span_shelf_put(sw_cache *cache, sw_span *span) {
    sw_heap *heap = cache->heap;
    struct sw_cache_cold *cold = cache->cold;
    if (!may_shelve(heap, span) || ++cold->span_turns % SW_SPAN_TURNS == 0) return false;
    uint32_t count, first = sw_span_shelf_first(sw_space_cold(heap->space, span)->pages, &count);
    for (uint32_t i = first; i < first + count; i++) {
        if (__atomic_load_n(&cold->span_shelves[i], __ATOMIC_RELAXED) != 0) continue;
        sw_span_enter(span, SW_SPAN_SHELVED);
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        __atomic_store_n(&cold->span_shelves[i], sw_space_span_id(heap->space, span),
                         __ATOMIC_RELEASE);
        if (sw_unlikely(__atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) == 0))
            __atomic_store_n(&heap->large_shelved, 1, __ATOMIC_RELAXED);
        sw_verify_note(heap, SW_VERIFY_RELEASE);
        return true;
    }
    return false;
}

/* --- taking ----------------------------------------------------------------------------------- */

/* Takes the span on the highest shelf of the length that is not empty: as spans fill shelves from
 * the lowest on, it is most often the one that was put there last. NULL: all are empty. */
static sw_span *take_highest(sw_cache *cache, uint32_t pages) {
    struct sw_cache_cold *cold = cache->cold;
    uint32_t count, first = sw_span_shelf_first(pages, &count);
    for (uint32_t i = first + count; i > first; i--) {
        uint32_t *shelf = &cold->span_shelves[i - 1];
        if (__atomic_load_n(shelf, __ATOMIC_RELAXED) == 0) continue;
        uint32_t id = __atomic_exchange_n(shelf, 0, __ATOMIC_ACQUIRE);
        if (id != 0) return sw_space_span(cache->heap->space, id);
    }
    return NULL;
}

/* Makes an idle span one of the class; its pages stay. `slack` is its slack array from now on;
 * NULL: the heap is not tracked. */
static void init(sw_heap *heap, sw_span *span, uint32_t span_class, uint32_t pages, void *slack) {
    const sw_class *cls = &heap->table->classes[span_class / 2];
    uint32_t slots = sw_class_slots(cls, pages, heap->table->page_shift);
    sw_heap_add_class_pages(heap, span->span_class, -(int64_t)pages);
    sw_heap_add_class_pages(heap, span_class, pages);
    sw_span_init(span, span->base, cls->size, slots, span_class, NULL, true);
    if (slack != NULL) sw_space_cold(heap->space, span)->slack = slack;
}

/* Makes the idle span one of the class. While its record is being changed the page map says that
 * the span was released. After that no cache makes it its hazard, and a cache that has cleared its
 * hazard has set the bit of its free before, so the bits are looked at last. False: a second free
 * of one of its objects is under way, and the span stays of its old class. */
static bool turn(sw_cache *cache, sw_span *span, uint32_t span_class, void *slack) {
    sw_heap *heap = cache->heap;
    sw_space *space = heap->space;
    uint32_t id = sw_space_span_id(space, span), pages = space->cold[id].pages;
    uintptr_t base = span->base;
    uint64_t bytes = (uint64_t)pages << heap->table->page_shift;
    __atomic_store_n(&cache->cold->turning_id, id, __ATOMIC_RELEASE);
    sw_space_map(space, base, bytes, SW_SPAN_RELEASED);
    bool idle = !sw_hazard_is_on_idle(heap, span) && sw_span_is_empty(span);
    if (idle) init(heap, span, span_class, pages, slack);
    sw_space_map(space, base, bytes, id);
    __atomic_store_n(&cache->cold->turning_id, 0, __ATOMIC_RELEASE);
    return idle;
}

/* The same in a tracked heap, where each class has slack arrays of its own length. If another
 * thread forks in between, the child may lose the memory of one of the two arrays, and nothing
 * else. */
static bool turn_tracked(sw_cache *cache, sw_span *span, uint32_t span_class, uint32_t slots) {
    sw_heap *heap = cache->heap;
    size_t old_bytes = sw_slack_bytes(sw_slot_bytes(heap->table, span), span->slots);
    size_t bytes = sw_slack_bytes(heap->table->classes[span_class / 2].size, slots);
    void *old = sw_space_cold(heap->space, span)->slack;
    sw_os_lock_acquire(&heap->lock);
    void *slack = sw_meta_alloc(heap->instrument, bytes);
    sw_os_lock_release(&heap->lock);
    if (slack == NULL) return false;
    bool turned = turn(cache, span, span_class, slack);
    sw_os_lock_acquire(&heap->lock);
    sw_meta_free(heap->instrument, turned ? old : slack, turned ? old_bytes : bytes);
    sw_os_lock_release(&heap->lock);
    return turned;
}

sw_span *sw_span_shelf_take(sw_cache *cache, uint32_t span_class, uint32_t pages) {
    sw_heap *heap = cache->heap;
    const sw_class *cls = &heap->table->classes[span_class / 2];
    if (pages > SW_SPAN_SHELF_PAGES) return NULL;
    if ((pages << heap->table->page_shift) / 65 >= cls->size) return NULL; /* over 64 slots */
    uint32_t slots = sw_class_slots(cls, pages, heap->table->page_shift);
    if (sw_words_bytes(cls->size, slots) != 0) return NULL;
    sw_span *span = take_highest(cache, pages);
    if (span == NULL || span->span_class == span_class) return span;
    bool turned = sw_unlikely(heap->instrument != NULL)
                      ? turn_tracked(cache, span, span_class, slots)
                      : turn(cache, span, span_class, NULL);
    if (turned) return span;
    sw_os_lock_acquire(&heap->lock);
    sw_central_release(heap, span);
    sw_os_lock_release(&heap->lock);
    return NULL;
}

/* --- clearing --------------------------------------------------------------------------------- */

/* Gives up the spans on the shelves [first, end). */
static void clear(sw_cache *cache, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        uint32_t *shelf = &cache->cold->span_shelves[i];
        if (__atomic_load_n(shelf, __ATOMIC_RELAXED) == 0) continue;
        uint32_t id = __atomic_exchange_n(shelf, 0, __ATOMIC_ACQUIRE);
        if (id != 0) sw_central_release(cache->heap, sw_space_span(cache->heap->space, id));
    }
}

void sw_span_shelf_shrink(sw_cache *cache, uint32_t pages) {
    if (pages > SW_SPAN_SHELF_PAGES) return;
    uint32_t count, first = sw_span_shelf_first(pages, &count);
    for (uint32_t i = first; i < first + count; i++)
        if (__atomic_load_n(&cache->cold->span_shelves[i], __ATOMIC_RELAXED) == 0) return;
    clear(cache, first, first + count / 2);
}

void sw_span_shelf_clear(sw_cache *cache) { clear(cache, 0, SW_SPAN_SHELVES); }

/* Takes the span from the shelf of the cache on which it lies. False: it lies on none of that
 * length. */
static bool take_this(sw_cache *cache, uint32_t id, uint32_t pages) {
    uint32_t count, first = sw_span_shelf_first(pages, &count);
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t *shelf = &cache->cold->span_shelves[i], held = id;
        if (__atomic_compare_exchange_n(shelf, &held, 0, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

bool sw_span_shelf_remove(sw_heap *heap, sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    uint32_t pages = sw_space_cold(heap->space, span)->pages;
    for (sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next) {
        if (!take_this(cache, id, pages)) continue;
        sw_central_list_full(heap, span);
        return true;
    }
    return false;
}

void sw_span_shelf_recover(sw_cache *cache) {
    struct sw_cache_cold *cold = cache->cold;
    sw_heap *heap = cache->heap;
    for (uint32_t i = 0; i < SW_SPAN_SHELVES; i++) cold->span_shelves[i] = 0;
    if (cold->turning_id == 0) return;
    sw_span *span = sw_space_span(heap->space, cold->turning_id);
    const sw_span_cold *place = sw_space_cold(heap->space, span);
    cold->turning_id = 0;
    sw_pages_map(&heap->pages, place->page, place->pages, SW_SPAN_RELEASED);
    sw_pages_free(&heap->pages, place->page, place->pages);
    sw_record_drop(heap, span);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Cache records: layout, opening, reuse and closing. */
#include "heap/cache.h"

#include "base/base.h"
#include "heap/alloc.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/heap.h"
#include "heap/owned.h"

/* --- opening ---------------------------------------------------------------------------------- */

/* --- layout ----------------------------------------------------------------------------------- */

/* The fields that fast paths read are at offsets at which no object begins; for the reason see
 * sw_cache (fast_abi.h). */
#define BESIDE_OBJECTS(record, field)                                                              \
    _Static_assert(offsetof(record, field) % 16 >= 8, #field " of " #record)
BESIDE_OBJECTS(sw_cache, base);
BESIDE_OBJECTS(sw_cache, frames);
BESIDE_OBJECTS(sw_cache, page_map);
BESIDE_OBJECTS(sw_cache, spans);
BESIDE_OBJECTS(sw_cache, hazard);
BESIDE_OBJECTS(sw_cache, small_map);
BESIDE_OBJECTS(sw_cache, plain_end);
BESIDE_OBJECTS(sw_cache, unhinted_owner);
BESIDE_OBJECTS(sw_cache_bin, word);
BESIDE_OBJECTS(sw_cache_bin, base);
BESIDE_OBJECTS(sw_cache_bin, hinted);
BESIDE_OBJECTS(sw_cache_bin, bytes);
/* The field that frees store is at an offset at which objects begin, away from the fields of a
 * cache that frees read. */
_Static_assert(offsetof(sw_word, local) % 16 == 0 && offsetof(sw_span, own) % 16 == 0, "local");
_Static_assert(sizeof(sw_cache_bin) == 64 && offsetof(sw_cache, bins) % 64 == 0, "a bin is a line");

/* --- records ---------------------------------------------------------------------------------- */

static size_t cache_bytes(const sw_heap *heap) {
    return sizeof(sw_cache) +
           heap->span_classes * (sizeof(sw_cache_bin) + SW_HINTS_MAX / 2 * sizeof(sw_hint));
}

size_t sw_cache_record_bytes(const sw_heap *heap) {
    return sw_align_up(cache_bytes(heap), sw_os_page_bytes());
}

_Static_assert(sizeof(sw_cache) + 2 * SW_TABLE_CLASSES_MAX *
                                      (sizeof(sw_cache_bin) + SW_HINTS_MAX / 2 * sizeof(sw_hint)) <=
                   64 * 4096,
               "64 bits for the pages of a record");

sw_cold uint64_t sw_cache_written_pages(const sw_cache *cache, uint32_t grain_shift) {
    uint32_t span_classes = cache->heap->span_classes;
    uintptr_t bins = (uintptr_t)&cache->bins[span_classes] - (uintptr_t)cache;
    uint64_t pages = sw_low_mask((uint32_t)((bins - 1) >> grain_shift) + 1);
    for (uint32_t i = 0; i < span_classes / 2; i++) {
        const sw_hint *hint = &cache->hints[(size_t)i << SW_HINTS_LOG2];
        for (uint32_t n = 0; n < SW_HINTS_MAX && hint[n].at != 0; n++)
            pages |= sw_cache_hint_pages(cache, &hint[n], grain_shift);
    }
    return pages;
}

static size_t cold_bytes(const sw_heap *heap) {
    return sizeof(struct sw_cache_cold) +
           heap->span_classes * (2 * sizeof(sw_span_list) + sizeof(uint16_t));
}

static void link_cache(sw_cache **list, sw_cache *cache) {
    cache->cold->list_next = *list;
    cache->cold->list_previous = NULL;
    if (*list != NULL) (*list)->cold->list_previous = cache;
    *list = cache;
}

static void unlink_cache(sw_cache **list, sw_cache *cache) {
    sw_cache *next = cache->cold->list_next, *previous = cache->cold->list_previous;
    *(previous == NULL ? list : &previous->cold->list_next) = next;
    if (next != NULL) next->cold->list_previous = previous;
}

/* Caches that users have closed are reused in FIFO order, after waiting in a queue, so that the use
 * of a closed cache is detected while its record waits. */
static void queue_handle(sw_heap *heap, sw_cache *cache) {
    sw_cache *last = heap->closed_handles_end;
    cache->cold->list_next = NULL;
    cache->cold->list_previous = last;
    *(last == NULL ? &heap->closed_handles : &last->cold->list_next) = cache;
    heap->closed_handles_end = cache;
    heap->closed_handle_count++;
}

static sw_cache *unqueue_handle(sw_heap *heap) {
    enum { WAITING = 8 };
    if (heap->closed_handle_count <= WAITING) return NULL;
    sw_cache *cache = heap->closed_handles;
    unlink_cache(&heap->closed_handles, cache);
    heap->closed_handle_count--;
    return cache;
}

/* --- stripped records ------------------------------------------------------------------------- */

/* Bytes that a record loses. */
static size_t strip_bytes(const sw_heap *heap) {
    return sw_cache_record_bytes(heap) - sw_os_page_bytes();
}

bool sw_cache_must_strip(const sw_cache *cache) {
    const sw_heap *heap = cache->heap;
    return cache->cold->holder != SW_CACHE_OF_USER && heap->closed_count >= SW_CLOSED_WHOLE &&
           strip_bytes(heap) != 0;
}

bool sw_cache_strip(sw_cache *cache) {
    return sw_os_purge((char *)cache + sw_os_page_bytes(), strip_bytes(cache->heap));
}

/* Takes a stripped cache and restores its record; NULL: there is none. */
static sw_cache *reuse_stripped(sw_heap *heap) {
    sw_cache *cache = heap->stripped_caches;
    if (cache == NULL) return NULL;
    unlink_cache(&heap->stripped_caches, cache);
    cache->cold->stripped = 0;
    sw_set_counter(&heap->meta.held_bytes, heap->meta.held_bytes + strip_bytes(heap));
    sw_cache_reset_bins(cache);
    return cache;
}

static sw_cache *reuse_closed(sw_heap *heap) {
    sw_cache *cache = heap->closed_caches;
    if (cache != NULL) {
        unlink_cache(&heap->closed_caches, cache);
        heap->closed_count--;
        return cache;
    }
    cache = reuse_stripped(heap);
    return cache != NULL ? cache : unqueue_handle(heap);
}

void sw_cache_reset_bins(sw_cache *cache) {
    const sw_heap *heap = cache->heap;
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        sw_bin_empty(&cache->bins[i]);
        cache->bins[i].bytes = heap->table->classes[i / 2].size;
        cache->bins[i].hints = sw_cache_hints(cache, i);
        cache->bins[i].hinted = 0;
        cache->bins[i].hinted_max = sw_heap_hints_max(heap, i);
    }
}

/* Sets the fields that fast paths read of an open cache. */
static void set_view(sw_cache *cache) {
    sw_heap *heap = cache->heap;
    sw_space_view view = sw_heap_view(heap);
    cache->base = view.base;
    cache->frames = view.frames;
    cache->page_map = view.page_map;
    cache->spans = view.spans;
    cache->table = heap->table;
    cache->small_map = heap->table->small_map;
    cache->plain_end = sw_heap_plain_end(heap);
    cache->cold->idle_credit = SW_IDLE_CREDIT_MAX;
    cache->mode = heap->mode;
    cache->thread = NULL;
    sw_hint_reset(cache);
}

/* Sets the same fields of a closed cache: no address is in its view, and every size except 0 is
 * large; the class of size 0 is 0. */
static void clear_view(sw_cache *cache) {
    static const uint8_t no_map[1];
    static const sw_table no_table = {
        .name = "", .page_shift = SW_FRAME_SHIFT, .small_map = no_map, .large_map = no_map};
    cache->frames = 0;
    cache->table = &no_table;
    cache->small_map = no_map;
    cache->plain_end = 0;
    cache->mode = 0;
}

/* The cold record of all caches whose heap was destroyed. It is empty and never written. */
static struct sw_cache_cold ended_cold;

void sw_cache_retire_records(sw_heap *heap) {
    size_t kept = sizeof(sw_cache) + heap->span_classes * sizeof(sw_cache_bin);
    for (sw_cache *cache = heap->caches; cache != NULL;) {
        sw_cache *next = cache->cold->next;
        sw_cache_reset_bins(cache);
        clear_view(cache);
        sw_meta_free(&heap->meta, cache->cold, cold_bytes(heap));
        cache->cold = &ended_cold;
        sw_handle_end(&cache->mark, SW_HANDLE_CACHE);
        sw_handle_retire(cache, sw_align_up(cache_bytes(heap), sw_os_page_bytes()), kept,
                         SW_HANDLE_CACHE);
        cache = next;
    }
    heap->caches = NULL;
}

static sw_cache *fresh_cache(sw_heap *heap) {
    sw_cache *cache = sw_meta_map(&heap->meta, cache_bytes(heap));
    struct sw_cache_cold *cold = sw_meta_alloc(&heap->meta, cold_bytes(heap));
    if (cache == NULL || cold == NULL) {
        sw_meta_unmap(&heap->meta, cache, cache_bytes(heap));
        sw_meta_free(&heap->meta, cold, cold_bytes(heap));
        return NULL;
    }
    cold->partial = (sw_span_list *)(cold + 1);
    cold->full = cold->partial + heap->span_classes;
    cold->idle_spans = (uint16_t *)(cold->full + heap->span_classes);
    cold->number = ++heap->cache_numbers;
    cold->next = heap->caches;
    cache->heap = heap;
    cache->hints = (sw_hint *)&cache->bins[heap->span_classes];
    cache->cold = cold;
    sw_cache_reset_bins(cache);
    heap->caches = cache;
    return cache;
}

/* --- opening and closing ---------------------------------------------------------------------- */

sw_status sw_cache_make(sw_heap *heap, sw_cache_holder holder, sw_cache **out) {
    sw_os_lock_acquire(&heap->lock);
    sw_cache *cache = reuse_closed(heap);
    if (cache == NULL) cache = fresh_cache(heap);
    if (cache == NULL && sw_reclaim_for_metadata(heap)) cache = fresh_cache(heap);
    if (cache != NULL) {
        link_cache(&heap->open_caches, cache);
        heap->cache_count++;
        set_view(cache);
        cache->cold->holder = (uint16_t)holder;
        cache->cold->been_central = 0;
        __atomic_store_n(&cache->cold->closed, 0, __ATOMIC_SEQ_CST);
        sw_handle_begin(&cache->mark, SW_HANDLE_CACHE);
    }
    sw_os_lock_release(&heap->lock);
    if (cache == NULL)
        return sw_fail(SW_NOMEM, "cache", "heap %u: no memory for a cache", heap->id);
    *out = cache;
    return SW_OK;
}

void sw_cache_set_closed(sw_cache *cache) {
    sw_heap *heap = cache->heap;
    sw_handle_end(&cache->mark, SW_HANDLE_CACHE);
    clear_view(cache);
    unlink_cache(&heap->open_caches, cache);
    if (cache->cold->holder == SW_CACHE_OF_USER) {
        queue_handle(heap, cache);
    } else if (cache->cold->stripped) {
        link_cache(&heap->stripped_caches, cache);
        sw_set_counter(&heap->meta.held_bytes, heap->meta.held_bytes - strip_bytes(heap));
    } else {
        link_cache(&heap->closed_caches, cache);
        heap->closed_count++;
    }
    heap->cache_count--;
    __atomic_store_n(&cache->cold->closed, 1, __ATOMIC_SEQ_CST);
}

sw_status sw_cache_open(sw_heap *heap, sw_cache **out) {
    sw_status status = sw_heap_status(heap, "cache_open");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("cache_open", "out");
    return sw_cache_make(heap, SW_CACHE_OF_USER, out);
}

/* --- closing ---------------------------------------------------------------------------------- */

enum { DISOWN_TURN = 64, SW_CLOSED_FREE_BYTES = 8 << 20 };

/* Drops the heap's lock briefly after every DISOWN_TURN steps, so that other threads can acquire
 * it. This is safe because no other thread uses the lists of a closing cache, and they are
 * consistent between two steps. */
static void let_others_in(sw_cache *cache) {
    if (++cache->cold->end_steps % DISOWN_TURN != 0) return;
    sw_os_lock_release(&cache->heap->lock);
    sw_os_lock_acquire(&cache->heap->lock);
}

/* Under the heap's lock: moves a span of a closing cache, which is in no list, to the central
 * lists. */
static void disown(sw_cache *cache, sw_span *span) {
    if (span->idle) cache->cold->idle_spans[span->span_class]--;
    span->idle = 0;
    sw_span_set_owner(span, NULL, SW_MARK_NONE);
    sw_central_put(cache->heap, span);
    let_others_in(cache);
}

/* The same for a current span, which may be kept for the next thread if it is idle. When a user
 * closes a cache, no span is kept, so that the ledger has no unexpected cached bytes. */
static void disown_current(sw_cache *cache, sw_span *span) {
    bool thread_ends = cache->cold->holder != SW_CACHE_OF_USER;
    sw_span_set_owner(span, NULL, SW_MARK_NONE);
    if (!thread_ends || !sw_central_keep(cache->heap, span)) sw_central_put(cache->heap, span);
}

/* Disowns the spans of a list from its end, so that the span which the cache would have used next
 * enters the central list last and is adopted first. */
static void disown_list(sw_cache *cache, sw_span_list *list) {
    sw_space *space = cache->heap->space;
    uint32_t last = 0;
    for (uint32_t id = list->head; id != 0;) {
        last = id;
        id = sw_space_cold(space, sw_space_span(space, id))->next;
        let_others_in(cache);
    }
    while (last != 0) {
        sw_span *span = sw_space_span(space, last);
        last = sw_space_cold(space, span)->prev;
        sw_span_list_remove(list, space, span);
        disown(cache, span);
    }
}

static void disown_class(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_cache_bin *bin = &cache->bins[span_class];
    bin->hinted = 0;
    disown_list(cache, &cold->full[span_class]);
    disown_list(cache, &cold->partial[span_class]);
    if (bin->span != NULL) disown_current(cache, bin->span); /* last, as it was used last */
    sw_bin_empty(bin);
}

static void disown_all(sw_cache *cache) {
    struct sw_cache_cold *cold = cache->cold;
    for (uint32_t w = 0; w * 64 < cache->heap->span_classes; w++) {
        for (uint64_t bits = cold->classes[w]; bits != 0; bits &= bits - 1)
            disown_class(cache, w * 64 + sw_ctz(bits));
        cold->classes[w] = 0;
    }
}

/* Strips the cache if enough closed ones are whole. The heap's lock is released for the system
 * call. */
static void strip_if_many(sw_cache *cache) {
    if (sw_likely(!sw_cache_must_strip(cache))) return;
    sw_os_lock_release(&cache->heap->lock);
    bool stripped = sw_cache_strip(cache);
    sw_os_lock_acquire(&cache->heap->lock);
    cache->cold->stripped = stripped;
}

/* Bounds the free pages that ended threads leave: above SW_CLOSED_FREE_BYTES, all free pages are
 * returned now. A tick would return them only if another thread takes the heap's lock later. */
static void bound_free_pages(sw_heap *heap) {
    sw_pages *pages = &heap->pages;
    if (sw_likely(pages->free_held_pages << pages->page_shift <= SW_CLOSED_FREE_BYTES)) return;
    if (heap->options.decay_ns != SW_DECAY_NEVER) sw_pages_take_out_all(pages);
}

void sw_cache_shut(sw_cache *cache) {
    sw_heap *heap = cache->heap;
    struct sw_cache_cold *cold = cache->cold;
    if (sw_heap_is_guarded(heap)) heap->guard->leave(cache);
    if (sw_heap_is_collected(heap)) heap->hooks->enter(heap, false); /* a thread may end any time */
    sw_verify_hold(); /* a partly closed cache would fail verification */
    sw_hazard_clear(cache);
    sw_remote_drain(cache);
    sw_os_lock_acquire(&heap->lock);
    disown_all(cache);
    cold->tiny_block = 0;
    cold->tiny_used = 0;
    sw_shelf_clear(cache);
    sw_central_release_idle(heap);
    strip_if_many(cache);
    sw_cache_set_closed(cache);
    sw_verify_leave_begin(heap);
    bound_free_pages(heap);
    sw_reclaim_unlock(heap);
    sw_remote_drain_closed(cache); /* frees announced meanwhile, into spans that it owned before */
    sw_verify_leave_end(heap);
    sw_verify_unhold();
    sw_heap_leave(heap);
    sw_verify_point(heap, NULL);
}

void sw_cache_close(sw_cache *cache) {
    const char *op = "cache_close";
    if (cache == NULL || !sw_cache_check(cache, op)) return;
    if (sw_handle_try_end(&cache->mark, SW_HANDLE_CACHE))
        sw_cache_shut(cache);
    else
        sw_handle_report(cache, offsetof(struct sw_cache, mark), SW_HANDLE_CACHE, op);
}

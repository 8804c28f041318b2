/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates, frees and resizes large objects. */
#include "heap/alloc.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/heap.h"
#include "heap/target.h"

enum { PURGE_MIN_BYTES = 4 << 20 };

/* Clears a long object by replacing its pages with fresh ones. Writing zeroes would make all of its
 * pages resident, even if the object is larger than the machine's memory and the program uses one
 * page of it. */
static sw_noinline void exchange(char *start, size_t bytes) {
    size_t page = sw_os_page_bytes();
    char *end = start + bytes;
    char *first = (char *)(uintptr_t)sw_align_up((uintptr_t)start, page);
    char *last = (char *)(uintptr_t)sw_align_down((uintptr_t)end, page);
    if (!sw_os_purge(first, (size_t)(last - first))) first = last = end;
    memset(start, 0, (size_t)(first - start));
    memset(last, 0, (size_t)(end - last));
}

/* In a dry heap: records which pages the function clear would write to, or replace. */
static void note_clear(sw_pages *pages, uintptr_t start, size_t bytes) {
    if (!sw_touch_map_is_on(&pages->touch)) return;
    if (bytes < PURGE_MIN_BYTES) {
        sw_pages_touch(pages, start, bytes);
        return;
    }
    uintptr_t end = start + bytes;
    sw_touch_map_remove(&pages->touch, sw_pages_locate(pages, start), bytes);
    if (start % sw_os_page_bytes() != 0) sw_pages_touch(pages, start, 1);
    if (end % sw_os_page_bytes() != 0) sw_pages_touch(pages, end - 1, 1);
}

static void *clear(sw_heap *heap, void *p, size_t bytes) {
    if ((heap->mode & SW_MODE_DRY) != 0) {
        note_clear(&heap->pages, (uintptr_t)p, bytes);
    } else if (bytes < PURGE_MIN_BYTES) {
        memset(p, 0, bytes);
    } else {
        exchange(p, bytes);
    }
    return p;
}

/* --- allocation ------------------------------------------------------------------------------- */

/* The clock is read by every free that releases an object's pages, and by each 16th free onto a
 * shelf. */
enum { TICK_EVERY = 16 };

/* Takes the heap's lock, reads the clock, and releases the object unless `span` is NULL. */
static sw_noinline void release_locked(sw_heap *heap, sw_span *span) {
    int saved_errno = errno; /* a free keeps errno, whatever system calls do */
    sw_os_lock_acquire(&heap->lock);
    sw_reclaim_decay(heap);
    if (span != NULL) sw_shelf_release(heap, span);
    sw_reclaim_unlock(heap);
    errno = saved_errno;
}

/* Reserves a shelf for the kind of object, because no shelf had one. */
static void reserve_shelf(sw_cache *cache, size_t pages, bool noscan) {
    if (pages - 1 >= sw_shelf_max_pages(cache->table) || sw_heap_is_collected(cache->heap)) return;
    sw_span *span = sw_shelf_reserve(cache, (uint32_t)pages, noscan);
    if (span != NULL) release_locked(cache->heap, span);
}

static sw_always_inline sw_span *take(sw_heap *heap, uint32_t pages, size_t align, bool noscan,
                                      sw_status *why) {
    sw_reclaim_decay(heap);
    *why = SW_NOMEM;
    sw_span *span = sw_fresh_record(heap);
    if (span == NULL) return NULL;
    bool needzero;
    uint32_t page;
    *why = sw_fresh_pages(heap, pages, align, &page, &needzero);
    if (*why != SW_OK) {
        sw_record_drop(heap, span);
        return NULL;
    }
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    cold->page = page;
    cold->pages = pages;
    sw_span_init_large(span, sw_pages_address(&heap->pages, page), noscan, needzero);
    if (sw_heap_is_collected(heap) && !heap->hooks->born(heap, span)) {
        *why = SW_NOMEM;
        sw_record_drop(heap, span);
        sw_pages_free(&heap->pages, page, pages);
        return NULL;
    }
    sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
    return span;
}

static sw_always_inline sw_span *take_locked(sw_heap *heap, uint32_t pages, size_t align,
                                             bool noscan, sw_status *why) {
    sw_os_lock_acquire(&heap->lock);
    sw_span *span = take(heap, pages, align, noscan, why);
    sw_reclaim_unlock(heap);
    return span;
}

/* Records the object in the cache before the lock is released, so that a collector cycle finds it
 * even if the thread has its address only in a register. */
static sw_always_inline sw_span *take_collected(const sw_cache *cache, uint32_t pages, size_t align,
                                                bool noscan, sw_status *why) {
    sw_heap *heap = cache->heap;
    sw_heap_enter(heap);
    sw_os_lock_acquire(&heap->lock);
    sw_span *span = take(heap, pages, align, noscan, why);
    if (span != NULL) cache->cold->newest_large = sw_space_span_id(heap->space, span);
    sw_reclaim_unlock(heap);
    sw_heap_leave(heap);
    return span;
}

/* Takes a span for a large object. Before the request is refused, the cache releases its idle spans
 * and shelves, and the limit hook is called. */
static sw_always_inline sw_span *take_span(sw_cache *cache, uint32_t pages, size_t align,
                                           bool noscan, sw_status *why) {
    sw_heap *heap = cache->heap;
    uint32_t asked = 0;
    for (bool trimmed = false;; trimmed = true) {
        sw_span *span = sw_heap_is_collected(heap)
                            ? take_collected(cache, pages, align, noscan, why)
                            : take_locked(heap, pages, align, noscan, why);
        if (sw_likely(span != NULL)) return span;
        uint64_t bytes = (uint64_t)pages << heap->table->page_shift;
        if (trimmed && (*why != SW_LIMIT || !sw_reclaim_ask_limit(heap, bytes, &asked)))
            return NULL;
        sw_cache_trim(cache);
    }
}

sw_noinline void *sw_large_clear(const sw_cache *cache, void *p, size_t size) {
    size_t pages = sw_pages_of(cache->table, size == 0 ? 1 : size);
    return clear(cache->heap, p, pages << cache->table->page_shift);
}

static void *refuse(const sw_cache *cache, size_t size, sw_status why) {
    sw_fail(why, "alloc", "heap %u: %zu bytes: %s", cache->heap->id, size, sw_status_text(why));
    errno = ENOMEM;
    return NULL;
}

void *sw_large_fresh(sw_cache *cache, size_t size, size_t align, unsigned flags) {
    if (!sw_cache_is_open(cache)) return sw_report_ended_cache(cache);
    bool noscan = (flags & SW_SCAN) == 0;
    size_t pages = sw_pages_of(cache->table, size == 0 ? 1 : size);
    sw_status why = SW_NOMEM;
    sw_span *span = NULL;
    reserve_shelf(cache, pages, noscan);
    if (pages != 0 && pages < UINT32_MAX / 4)
        span = take_span(cache, (uint32_t)pages, align, noscan, &why);
    if (span == NULL) return refuse(cache, size, why);
    __atomic_store_n(&sw_space_cold(cache->heap->space, span)->requested, size, __ATOMIC_RELAXED);
    if (sw_heap_is_collected(cache->heap))
        cache->heap->hooks->typed(cache, span, span->base, flags >> SW_TYPE_SHIFT);
    void *p = sw_large_begin(cache, span, size, flags);
    sw_verify_point(cache->heap, cache);
    return p;
}

/* --- free ------------------------------------------------------------------------------------- */

void sw_large_ended(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    sw_heap *heap = cache->heap;
    uint32_t id = sw_space_span_id(heap->space, span), pages = heap->space->cold[id].pages;
    uint64_t kind = sw_shelf_kind(pages, (span->span_class & 1) != 0);
    uint64_t *shelf =
        pages > sw_shelf_max_pages(cache->table) ? NULL : sw_shelf_reserved(cold, pages, kind);
    if (sw_unlikely(shelf == NULL)) {
        release_locked(heap, span);
        sw_verify_point(heap, cache);
        return;
    }
    sw_span_dirty(span);
    __atomic_store_n(shelf, kind | id, __ATOMIC_RELEASE);
    if (sw_unlikely(__atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) == 0))
        __atomic_store_n(&heap->large_shelved, 1, __ATOMIC_RELAXED);
    if (sw_unlikely(++cold->large_frees % TICK_EVERY == 0)) release_locked(heap, NULL);
    sw_verify_point(heap, cache);
}

/* --- resizing --------------------------------------------------------------------------------- */

/* Under the heap's lock: the object keeps its first `pages` pages. */
static void shrink(sw_heap *heap, sw_span_cold *cold, uint32_t pages) {
    uint32_t first = cold->page + pages, cut = cold->pages - pages;
    sw_pages_map(&heap->pages, first, cut, SW_SPAN_RELEASED);
    cold->pages = pages;
    sw_pages_free(&heap->pages, first, cut);
}

/* Under the heap's lock: adds the pages after the object to it, if they are free or on a shelf.
 * Without this an object that grows step by step would be copied at each step. New pages of an
 * object with pointers are cleared, as in its allocation. */
static bool stretch(sw_heap *heap, sw_span *span, sw_span_cold *cold, uint32_t pages) {
    uint32_t first = cold->page + cold->pages, more = pages - cold->pages;
    bool needzero, scanned = (span->span_class & 1) == 0;
    if (sw_shelf_is_used(heap)) sw_shelf_clear_all(heap);
    if (!sw_pages_extend(&heap->pages, cold->page, cold->pages, more, &needzero)) return false;
    if (needzero) sw_span_dirty(span);
    if (needzero && scanned)
        (void)clear(heap, (void *)sw_pages_address(&heap->pages, first),
                    (size_t)more << heap->table->page_shift);
    sw_pages_map(&heap->pages, first, more, sw_space_span_id(heap->space, span));
    __atomic_store_n(&cold->pages, pages, __ATOMIC_RELEASE); /* a marker thread may be reading it */
    return true;
}

/* During the resize the object does not count as live, so a concurrent free by another thread is
 * reported as misuse. */
static bool resize_locked(sw_heap *heap, sw_span *span, uintptr_t p, size_t size, uint32_t pages) {
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    bool done = true;
    sw_os_lock_acquire(&heap->lock);
    if (pages != cold->pages) sw_reclaim_decay(heap);
    bool live = sw_span_large_end(span, p);
    if (live && pages < cold->pages) shrink(heap, cold, pages);
    if (live && pages > cold->pages) done = stretch(heap, span, cold, pages);
    if (live && done) __atomic_store_n(&cold->requested, size, __ATOMIC_RELAXED);
    if (live) sw_span_large_begin(span);
    sw_reclaim_unlock(heap);
    return live && done;
}

bool sw_large_resize(sw_heap *heap, sw_span *span, uintptr_t p, size_t size) {
    size_t pages = sw_pages_of(heap->table, size);
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    if (pages == 0 || pages >= UINT32_MAX / 4) return false;
    sw_heap_enter(heap);
    bool may =
        pages >= cold->pages || !sw_heap_is_collected(heap) || heap->hooks->may_release(heap);
    bool resized = may && resize_locked(heap, span, p, size, (uint32_t)pages);
    sw_heap_leave(heap);
    return resized;
}

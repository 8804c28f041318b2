/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects: whole pages, one span record each. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "heap/heap.h"

enum { PURGE_MIN_BYTES = 4 << 20 };

/* From this size on pages are exchanged for fresh ones, not written: a request of many times the
 * memory, of which one page is dirty, must not touch the others. */
static sw_noinline void exchange(char *start, size_t bytes) {
    size_t page = sw_os_page_bytes();
    char *end = start + bytes;
    char *first = (char *)(uintptr_t)sw_align_up((uintptr_t)start, page);
    char *last = (char *)(uintptr_t)sw_align_down((uintptr_t)end, page);
    if (!sw_os_purge(first, (size_t)(last - first))) first = last = end;
    memset(start, 0, (size_t)(first - start));
    memset(last, 0, (size_t)(end - last));
}

static void clear(void *p, size_t bytes) {
    if (bytes < PURGE_MIN_BYTES) {
        memset(p, 0, bytes);
    } else {
        exchange(p, bytes);
    }
}

static sw_always_inline sw_span *take(sw_heap *heap, uint32_t pages, size_t align, unsigned flags,
                                      sw_status *why) {
    sw_central_tick(heap);
    *why = SW_NOMEM;
    sw_span *span = sw_central_record(heap);
    if (span == NULL) return NULL;
    bool needzero;
    uint32_t page;
    *why = sw_pages_alloc(&heap->pages, pages, align, &page, &needzero);
    if (*why != SW_OK) {
        sw_central_drop_record(heap, span);
        return NULL;
    }
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    cold->page = page;
    cold->pages = pages;
    sw_span_init_large(span, sw_pages_address(&heap->pages, page), (flags & SW_SCAN) == 0,
                       needzero);
    sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
    return span;
}

static sw_always_inline sw_span *take_locked(sw_heap *heap, uint32_t pages, size_t size,
                                             size_t align, unsigned flags, sw_status *why) {
    sw_os_lock_acquire(&heap->lock);
    sw_span *span = take(heap, pages, align, flags, why);
    if (span != NULL) sw_space_cold(heap->space, span)->requested = size;
    sw_os_lock_release(&heap->lock);
    return span;
}

/* The cache gives up what it holds, and the limit's hook is asked, before more is refused. */
static sw_noinline sw_span *take_again(sw_cache *cache, uint32_t pages, size_t size, size_t align,
                                       unsigned flags, sw_status *why) {
    sw_heap *heap = cache->heap;
    uint64_t bytes = (uint64_t)pages << heap->table->page_shift;
    sw_span *span;
    do {
        sw_cache_trim(cache);
        span = take_locked(heap, pages, size, align, flags, why);
    } while (span == NULL && *why == SW_LIMIT && sw_heap_ask_limit(heap, bytes));
    return span;
}

void *sw_large_alloc(sw_cache *cache, size_t size, size_t align, unsigned flags) {
    sw_heap *heap = cache->heap;
    size_t pages = sw_pages_of(heap->table, size == 0 ? 1 : size);
    sw_status why = SW_NOMEM;
    sw_span *span = NULL;
    if (pages != 0 && pages < UINT32_MAX / 4) {
        span = take_locked(heap, (uint32_t)pages, size, align, flags, &why);
        if (sw_unlikely(span == NULL))
            span = take_again(cache, (uint32_t)pages, size, align, flags, &why);
    }
    if (span == NULL) {
        sw_fail(why, "alloc", "heap %u: %zu bytes: %s", heap->id, size, sw_status_text(why));
        errno = ENOMEM;
        return NULL;
    }
    void *p = (void *)span->base;
    bool zero = (flags & (SW_ZERO | SW_SCAN)) != 0 && span->needzero;
    if (zero && (heap->mode & SW_MODE_DRY) == 0) clear(p, pages << heap->table->page_shift);
    return p;
}

bool sw_large_free(sw_heap *heap, sw_span *span, uintptr_t p) {
    sw_os_lock_acquire(&heap->lock);
    sw_central_tick(heap);
    bool live = span->state == SW_SPAN_LARGE && span->base == p;
    if (live) {
        const sw_span_cold *cold = sw_space_cold(heap->space, span);
        uint32_t page = cold->page, pages = cold->pages;
        sw_pages_map(&heap->pages, page, pages, SW_SPAN_RELEASED);
        sw_central_drop_record(heap, span);
        sw_pages_free(&heap->pages, page, pages);
    }
    sw_os_lock_release(&heap->lock);
    return live;
}

/* Under the heap's lock: the object keeps its first `pages` pages. */
static void shrink(sw_heap *heap, sw_span_cold *cold, uint32_t pages) {
    uint32_t first = cold->page + pages, cut = cold->pages - pages;
    sw_pages_map(&heap->pages, first, cut, SW_SPAN_RELEASED);
    cold->pages = pages;
    sw_pages_free(&heap->pages, first, cut);
}

/* Under the heap's lock: the object takes the pages behind it, if they are free. Without this a
 * block that grows step by step is copied at each. A scanned object's new pages are zero, as at its
 * birth. */
static bool stretch(sw_heap *heap, sw_span *span, sw_span_cold *cold, uint32_t pages) {
    uint32_t first = cold->page + cold->pages, more = pages - cold->pages;
    bool needzero, scanned = (span->span_class & 1) == 0;
    if (!sw_pages_extend(&heap->pages, cold->page, cold->pages, more, &needzero)) return false;
    if (needzero) span->needzero = 1;
    if (needzero && scanned && (heap->mode & SW_MODE_DRY) == 0)
        clear((void *)sw_pages_address(&heap->pages, first),
              (size_t)more << heap->table->page_shift);
    sw_pages_map(&heap->pages, first, more, sw_space_span_id(heap->space, span));
    cold->pages = pages;
    return true;
}

bool sw_large_resize(sw_heap *heap, sw_span *span, size_t size) {
    size_t pages = sw_pages_of(heap->table, size);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    bool done = true;
    if (pages == 0 || pages >= UINT32_MAX / 4) return false;
    sw_os_lock_acquire(&heap->lock);
    if (pages != cold->pages) sw_central_tick(heap);
    if (pages < cold->pages) shrink(heap, cold, (uint32_t)pages);
    if (pages > cold->pages) done = stretch(heap, span, cold, (uint32_t)pages);
    if (done) cold->requested = size;
    sw_os_lock_release(&heap->lock);
    return done;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing an object, querying its size, and objects that an arena owns. */
#include <errno.h>
#include <string.h>

#include "heap/alloc.h"
#include "heap/registry.h"
#include "heap/target.h"

/* --- resizing --------------------------------------------------------------------------------- */

static size_t usable_bytes(const sw_heap *heap, const sw_span *span) {
    if (!sw_span_is_large(span)) return sw_slot_bytes(heap->table, span);
    return (size_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift;
}

/* Bytes that a resized object keeps. Usually all usable bytes, because programs write to all bytes
 * that malloc_usable_size reports; but if the following bytes must be cleared and the requested
 * size is known, the requested size. */
static size_t old_bytes(const sw_heap *heap, const sw_target *target, unsigned flags) {
    const sw_span *span = target->span;
    if ((heap->mode & SW_MODE_TRACKED) == 0 || (flags & SW_ZERO) == 0)
        return usable_bytes(heap, span);
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    if (sw_span_is_large(span)) return cold->requested;
    uint32_t bytes = sw_slot_bytes(heap->table, span);
    return bytes - sw_slack_get(cold->slack, bytes, target->slot);
}

/* Whether the resized object may stay in the span: an object with pointers must be in a span that
 * is scanned; another one may be in either kind. */
static bool kind_fits(const sw_span *span, unsigned flags) {
    return (flags & SW_SCAN) == 0 || (span->span_class & 1) == 0;
}

/* Resizes the object in place, if its class does not change, or if it is large and can get as many
 * pages as needed. False: it must move; so does a large object whose new size fits a class. */
static bool resize_in_place(sw_heap *heap, const sw_target *target, const void *ptr, size_t size,
                            unsigned flags) {
    sw_span *span = target->span;
    if (!kind_fits(span, flags)) return false;
    if (sw_span_is_large(span))
        return size > heap->table->max_size && sw_large_resize(heap, span, (uintptr_t)ptr, size);
    if (size > heap->table->max_size ||
        sw_size_class(heap->table, size) != (uint32_t)span->span_class / 2)
        return false;
    if ((heap->mode & SW_MODE_TRACKED) != 0) {
        uint32_t bytes = sw_slot_bytes(heap->table, span);
        sw_slack_set(sw_space_cold(heap->space, span)->slack, bytes, target->slot,
                     bytes - (uint32_t)size);
    }
    return true;
}

/* Clears memory that a marker thread may be reading, word by word. */
static void zero_shared(char *from, size_t bytes) {
    size_t whole = 0;
    for (; bytes - whole >= sizeof(uintptr_t); whole += sizeof(uintptr_t))
        __atomic_store_n((uintptr_t *)(void *)(from + whole), 0, __ATOMIC_RELAXED);
    memset(from + whole, 0, bytes - whole);
}

static void zero_grown(sw_heap *heap, void *ptr, size_t old, size_t size, unsigned flags) {
    char *from = (char *)ptr + old;
    if ((flags & SW_ZERO) == 0 || size <= old || (heap->mode & SW_MODE_DRY) != 0) return;
    if (SW_COLLECTABLE && heap->collector != NULL && old % sizeof(uintptr_t) == 0)
        zero_shared(from, size - old);
    else
        memset(from, 0, size - old);
}

static void *move(sw_cache *cache, void *ptr, size_t old, size_t size, unsigned flags) {
    void *fresh = sw_cache_alloc(cache, size, flags & ~(unsigned)SW_ZERO);
    if (fresh == NULL) return NULL;
    if ((cache->heap->mode & SW_MODE_DRY) == 0) {
        memcpy(fresh, ptr, old < size ? old : size);
        zero_grown(cache->heap, fresh, old, size, flags);
    }
    sw_cache_free(cache, ptr);
    return fresh;
}

/* The span of a live small object in a span of this cache; NULL: any other pointer, or the heap is
 * not plain. */
static const sw_span *find_own(const sw_cache *cache, const void *ptr) {
    uint64_t slot;
    const sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (span == NULL || cache->mode != 0 || sw_span_owner(span) != cache) return NULL;
    return sw_span_slot_live(span, (uint32_t)slot) ? span : NULL;
}

static void *resize_own(sw_cache *cache, const sw_span *span, void *ptr, size_t size,
                        unsigned flags) {
    size_t old = sw_slot_bytes(cache->table, span);
    bool same = size <= cache->table->max_size && kind_fits(span, flags) &&
                sw_size_class(cache->table, size) == (uint32_t)span->span_class / 2;
    return same ? ptr : move(cache, ptr, old, size, flags);
}

static void *refuse(int code) {
    errno = code;
    return NULL;
}

static void *resize(sw_cache *cache, void *ptr, size_t size, unsigned flags) {
    if (sw_unlikely(cache == NULL)) return sw_report_ended_cache(cache);
    if (ptr == NULL) return sw_cache_alloc(cache, size, flags);
    const sw_span *own = find_own(cache, ptr);
    if (sw_likely(own != NULL)) return resize_own(cache, own, ptr, size, flags);
    if (!sw_cache_is_open(cache)) return sw_report_ended_cache(cache);
    sw_heap *heap = cache->heap;
    if (sw_heap_is_guarded(heap)) return heap->guard->realloc(cache, ptr, size, flags);
    sw_target target = sw_target_find(heap, ptr);
    if (sw_target_is_shared(heap, &target)) target.misuse = SW_MISUSE_COLLECTED;
    if (target.misuse != SW_MISUSE_NONE) {
        sw_target_report(heap, &target, "realloc", ptr, size);
        return refuse(ENOMEM);
    }
    size_t old = old_bytes(heap, &target, flags);
    if (!resize_in_place(heap, &target, ptr, size, flags))
        return move(cache, ptr, old, size, flags);
    zero_grown(heap, ptr, old, size, flags);
    return ptr;
}

void *sw_cache_realloc(sw_cache *cache, void *ptr, size_t size, unsigned flags) {
    return resize(cache, ptr, size, flags);
}

void *sw_heap_realloc(sw_heap *heap, void *ptr, size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_cache(heap);
    return cache != NULL ? resize(cache, ptr, size, flags) : sw_thread_no_cache();
}

void *sw_realloc(void *ptr, size_t size) {
    sw_cache *cache = sw_thread_default_cache();
    return cache != NULL ? resize(cache, ptr, size, 0) : refuse(ENOMEM);
}

static size_t usable(sw_heap *heap, const void *ptr, const char *op) {
    if (ptr == NULL) return 0;
    if (sw_heap_is_guarded(heap)) return heap->guard->usable(heap, ptr, op);
    sw_target target = sw_target_find(heap, ptr);
    if (sw_target_is_shared(heap, &target)) return 0; /* its neighbours begin anywhere */
    if (target.misuse == SW_MISUSE_NONE) return usable_bytes(heap, target.span);
    sw_target_report(heap, &target, op, ptr, 0);
    return 0;
}

size_t sw_target_usable(sw_heap *heap, const void *ptr, const char *op) {
    return sw_heap_check(heap, op) ? usable(heap, ptr, op) : 0;
}

size_t sw_heap_usable_size(sw_heap *heap, const void *ptr) {
    return sw_target_usable(heap, ptr, "usable_size");
}

size_t sw_usable_size(const void *ptr) {
    const sw_span *own = find_own(sw_tls.cache, ptr);
    if (sw_likely(own != NULL)) return sw_slot_bytes(sw_tls.cache->table, own);
    sw_heap *heap = sw_heap_default();
    return heap == NULL ? 0 : usable(heap, ptr, "usable_size");
}

/* --- objects of arenas ------------------------------------------------------------------------ */

static sw_span *span_of(const sw_heap *heap, const void *p) {
    return sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)p));
}

void *sw_arena_object_alloc(sw_heap *heap, size_t size, size_t align, unsigned flags,
                            size_t *usable) {
    sw_cache *cache = sw_thread_cache(heap);
    if (cache == NULL) return sw_thread_no_cache();
    void *p = sw_large_alloc(cache, size, align, flags);
    if (p == NULL) return NULL;
    sw_span *span = span_of(heap, p);
    sw_span_large_set_arenas(span, true);
    *usable = (size_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift;
    return p;
}

void sw_arena_object_free(sw_heap *heap, void *p) {
    sw_cache *cache = sw_thread_cache(heap);
    if (cache == NULL) return;
    sw_span_large_set_arenas(span_of(heap, p), false);
    if (sw_heap_is_guarded(heap))
        sw_free_unguarded(cache, p, "free");
    else
        sw_cache_free(cache, p);
}

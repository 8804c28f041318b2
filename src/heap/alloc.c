/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation: requests that the specialised paths do not serve, and the public functions. A request
 * that an inline path does not serve passes through at most two functions: one of these dispatches
 * on the kind of request, and sw_refill_alloc or sw_large_alloc finds the memory. Therefore slow
 * paths call sw_refill_alloc, not sw_alloc_slow. */
#include "heap/alloc.h"

#include <errno.h>

#include "base/base.h"
#include "heap/default.h"
#include "heap/heap.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/target.h"
#include "heap/template.h"

/* Serves the first allocation of a thread, whose path found the cache without a heap: opens a cache
 * for the thread and retries. */
static sw_noinline void *alloc_first(size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_default_cache();
    return cache == NULL ? sw_object_no_memory() : sw_cache_alloc(cache, size, flags);
}

/* Called by an inline path that found nothing in its bin. In a series of allocations without frees,
 * one in 64 gets here, and usually the next word of the span has free slots. So sw_refill_quick,
 * inline here, tries that word, and the newest hint for paths that try the word first; everything
 * else takes one further call. */
void *sw_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    return sw_likely(cache->heap != NULL) ? sw_refill_quick(cache, size, flags, span_class)
                                          : alloc_first(size, flags);
}

/* --- generic path ----------------------------------------------------------------------------- */

/* A small object of any heap, with any flags. */
static void *alloc_small(sw_cache *cache, size_t size, unsigned flags, uint32_t cls) {
    uint32_t span_class = sw_span_class_of(cls, (flags & SW_SCAN) == 0);
    sw_cache_bin *bin = &cache->bins[span_class];
    if (bin->hinted != 0 || sw_word_free(bin->word) == 0)
        return sw_refill_alloc(cache, size, flags, span_class);
    return sw_object_from_word(cache, bin, size, flags);
}

static bool is_tiny(const sw_cache *cache, size_t size, unsigned flags) {
    return (cache->mode & SW_MODE_TINY) != 0 && (flags & SW_SCAN) == 0 && size > 0 && size < 16;
}

static void *alloc_tiny(sw_cache *cache, size_t size, unsigned flags) {
    sw_path_fn *const *by_size = cache->heap->tiny_paths;
    return by_size != NULL ? by_size[size](cache, size, flags)
                           : sw_template_tiny(cache, size, flags);
}

/* Allocates a small object without pointers in a plain heap; its class is known. */
static sw_always_inline void *alloc_plain(sw_cache *cache, size_t size, unsigned flags,
                                          uint32_t cls) {
    return sw_template_plain(cache, sw_cache_noscan_bin(cache, cls), size, flags,
                             sw_span_class_of(cls, true), sw_refill_alloc);
}

/* The same by size. If the bin has nothing, `slow` looks up the class again, so that it need not be
 * kept in a register. */
static sw_always_inline void *alloc_plain_size(sw_cache *cache, size_t size, unsigned flags,
                                               sw_alloc_slow_fn *slow) {
    uint32_t cls = cache->small_map[(size + 7) >> 3];
    return sw_template_plain(cache, sw_cache_noscan_bin(cache, cls), size, flags, SW_CLASS_OF_SIZE,
                             slow);
}

/* Serves any request that the inline code for small objects of plain heaps does not serve. The
 * table gives the class. */
static sw_always_inline void *alloc_by_table(sw_cache *cache, size_t size, unsigned flags) {
    const sw_table *table = cache->table;
    if (sw_unlikely(size > table->max_size))
        return sw_likely(!sw_cache_is_guarded(cache, flags))
                   ? sw_large_alloc(cache, size, 1, flags)
                   : cache->heap->guard->alloc(cache, size, 0, flags);
    uint32_t cls = sw_size_class(table, size);
    if (cache->mode == 0 && flags == 0) return alloc_plain(cache, size, 0, cls);
    if (sw_cache_is_guarded(cache, flags)) return cache->heap->guard->alloc(cache, size, 0, flags);
    if (sw_unlikely(is_tiny(cache, size, flags))) return alloc_tiny(cache, size, flags);
    return alloc_small(cache, size, flags, cls);
}

sw_noinline void *sw_alloc_by_table(sw_cache *cache, size_t size, unsigned flags) {
    return alloc_by_table(cache, size, flags);
}

/* Allocates a cleared small object without pointers in a plain heap. It is a separate function
 * because inlining it would take registers from the common path. */
static sw_noinline void *alloc_zeroed(sw_cache *cache, size_t size) {
    return alloc_plain_size(cache, size, SW_ZERO, sw_refill_alloc);
}

/* Allocates a small object with pointers in a plain heap. */
static sw_always_inline void *alloc_scanned(sw_cache *cache, size_t size, unsigned flags) {
    const sw_paths *paths = cache->heap->paths;
    if (paths != NULL && size <= paths->cutoff) return paths->scan[size](cache, size, flags);
    return sw_alloc_by_table(cache, size, flags);
}

/* Serves any request to an open cache. */
static sw_always_inline void *alloc_from_cache(sw_cache *cache, size_t size, unsigned flags) {
    if (sw_unlikely(size >= cache->plain_end)) return sw_alloc_by_table(cache, size, flags);
    if (flags == 0) return alloc_plain_size(cache, size, 0, sw_alloc_slow);
    return (flags & SW_SCAN) != 0 ? alloc_scanned(cache, size, flags) : alloc_zeroed(cache, size);
}

/* --- tiny objects ----------------------------------------------------------------------------- */

void *sw_alloc_tiny(sw_cache *cache, size_t size, unsigned flags) {
    struct sw_cache_cold *cold = cache->cold;
    (void)flags; /* a tiny block is always cleared */
    void *block = alloc_small(cache, 16, SW_ZERO, sw_size_class(cache->table, 16));
    if (block == NULL) return NULL;
    /* Keep the block with more room for the next tiny objects. */
    if (cold->tiny_block == 0 || size < cold->tiny_used) {
        cold->tiny_block = (uintptr_t)block;
        cold->tiny_used = (uint32_t)size;
    }
    return block;
}

/* --- aligned objects -------------------------------------------------------------------------- */

/* The smallest class that holds the size and whose slots are all aligned; 0: the object needs
 * pages. */
static uint32_t aligned_class(const sw_table *table, size_t size, size_t align) {
    if (size > table->max_size || align > ((size_t)1 << table->page_shift)) return 0;
    for (uint32_t cls = sw_size_class(table, size); cls < table->class_count; cls++)
        if ((table->classes[cls].size & (align - 1)) == 0) return cls;
    return 0;
}

static sw_always_inline void *alloc_aligned(sw_cache *cache, size_t size, size_t align,
                                            unsigned flags) {
    if (sw_unlikely(cache == NULL)) return sw_report_ended_cache(cache);
    if (!sw_is_pow2(align)) {
        sw_fail(SW_INVALID, "alloc_aligned", "alignment %zu is not a power of two", align);
        errno = EINVAL;
        return NULL;
    }
    if (sw_cache_is_guarded(cache, flags))
        return cache->heap->guard->alloc(cache, size, align, flags);
    if (align == 1 && is_tiny(cache, size, flags)) return alloc_tiny(cache, size, flags);
    uint32_t cls = aligned_class(cache->table, size, align);
    if (cls == 0) return sw_large_alloc(cache, size, align, flags);
    return alloc_small(cache, size, flags, cls);
}

/* --- public: explicit heaps and caches -------------------------------------------------------- */

void *sw_cache_alloc(sw_cache *cache, size_t size, unsigned flags) {
    if (sw_unlikely(sw_cache_is_null(cache))) return sw_report_ended_cache(NULL);
    return alloc_from_cache(cache, size, flags);
}

void *sw_cache_alloc_aligned(sw_cache *cache, size_t size, size_t align, unsigned flags) {
    return alloc_aligned(cache, size, align, flags);
}

void *sw_heap_alloc(sw_heap *heap, size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_cache(heap);
    return cache == NULL ? sw_thread_no_cache() : alloc_from_cache(cache, size, flags);
}

void *sw_heap_alloc_aligned(sw_heap *heap, size_t size, size_t align, unsigned flags) {
    sw_cache *cache = sw_thread_cache(heap);
    return cache == NULL ? sw_thread_no_cache() : alloc_aligned(cache, size, align, flags);
}

/* --- public: the default heap (plain) --------------------------------------------------------- */

/* Allocates, in the default heap, sizes that the inline path does not serve, and cleared
 * objects. */
static sw_noinline void *alloc_default(size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_default_cache();
    if (sw_unlikely(cache == NULL)) return sw_object_no_memory();
    if (flags == SW_ZERO && size < cache->plain_end)
        return alloc_plain_size(cache, size, SW_ZERO, sw_refill_alloc);
    return alloc_by_table(cache, size, flags);
}

void *sw_malloc(size_t size) {
    bool straight = SW_SPECIALISED && sw_likely(size <= SW_FAST_SIZE_MAX);
    return straight ? sw_default_alloc(size, 0, sw_alloc_slow) : alloc_default(size, 0);
}

void *sw_calloc(size_t count, size_t size) {
    size_t bytes;
    if (sw_mul_overflow(count, size, &bytes)) return sw_object_no_memory();
    bool straight = SW_SPECIALISED && sw_likely(bytes <= SW_FAST_SIZE_MAX);
    return straight ? sw_default_alloc(bytes, SW_ZERO, sw_alloc_slow)
                    : alloc_default(bytes, SW_ZERO);
}

void *sw_aligned_alloc(size_t align, size_t size) {
    sw_cache *cache = sw_thread_default_cache();
    return cache == NULL ? sw_object_no_memory() : alloc_aligned(cache, size, align, 0);
}

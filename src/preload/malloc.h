/* SPDX-License-Identifier: Apache-2.0 */
/* libspanwise-malloc.so, preloaded into a program, serves its malloc family from the default heap.
 * Design and guarantees: docs/design/preload.md.
 *
 * The files; each calls only those below it:
 *
 *   malloc.c   the malloc family; cxx.c the C++ operators
 *   info.c     mallinfo and other functions of glibc that report on the allocator
 *   report.c   the ledger as JSON at the end of the process
 *   slow.c     slow paths of the inline code
 *   account.c  the default heap, the cache of ended threads, forks, the claim to write the ledger;
 *              live and peak bytes of a tracked heap, and its ledger at the peak
 *   options.c  the environment
 *
 * Most calls take the heap's inline paths, which begin at the thread's cache of the default heap
 * (sw_tls.cache) and run no code of this folder's sources. In a thread without such a cache, and
 * always if the heap is tracked, sw_tls.cache is a cache without a heap, and every path continues
 * in slow.c.
 *
 * Lock order: start < late < account < the heap's.
 */
#ifndef SW_MALLOC_MALLOC_H
#define SW_MALLOC_MALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "guard/guard.h"
#include "heap/default.h"
#include "heap/template.h"

#define PRELOAD_EXPORT __attribute__((visibility("default")))

/* Flags for a guarded heap, in addition to those of sw_heap_alloc: new, or new[], allocated the
 * object. */
enum { PRELOAD_NEW = 1 << 2, PRELOAD_NEW_ARRAY = 1 << 3, PRELOAD_HEAP_FLAGS = SW_ZERO };

/* --- slow calls (slow.c) ---------------------------------------------------------------------- */

/* `align` 0: the alignment of malloc. NULL: errno is set. `op` is the function in a report of
 * misuse. */
void *preload_alloc(size_t size, size_t align, unsigned flags);
void *preload_realloc(void *ptr, size_t size);
void preload_free(void *ptr, const char *op);
void preload_free_sized(void *ptr, size_t size);

/* --- inline paths ----------------------------------------------------------------------------- */

/* The slow paths of the inline code: an allocation whose bin is empty, and a free that found no
 * live slot at its address. */
void *preload_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);
void preload_free_slow(sw_cache *cache, void *ptr, const char *op);
void preload_delete_slow(sw_cache *cache, void *ptr, size_t size, const char *op);

static sw_always_inline void *preload_allocate_by_table(size_t size, unsigned flags) {
    sw_cache *cache = sw_tls.cache;
    return sw_likely(cache->heap != NULL) && sw_likely(!sw_guard_sampling)
               ? sw_alloc_by_table(cache, size, flags & PRELOAD_HEAP_FLAGS)
               : preload_alloc(size, 0, flags);
}

/* flags: those of sw_heap_alloc, and those above. */
static sw_always_inline void *preload_allocate(size_t size, unsigned flags) {
    return sw_likely(size <= SW_FAST_SIZE_MAX) ? sw_default_alloc(size, flags, preload_alloc_slow)
                                               : preload_allocate_by_table(size, flags);
}

static inline void *preload_allocate_aligned(size_t size, size_t align, unsigned flags) {
    sw_cache *cache = sw_tls.cache;
    return sw_likely(cache->heap != NULL) ? sw_cache_alloc_aligned(cache, size, align, 0)
                                          : preload_alloc(size, align, flags);
}

/* op: "free", "delete" or "delete[]". */
static sw_always_inline void preload_release(void *ptr, const char *op) {
    sw_template_free(sw_tls.cache, ptr, op, preload_free_slow);
}

/* The same for a delete with a size, which only a guarded heap checks: its view has no address. */
static sw_always_inline void preload_release_sized(void *ptr, size_t size, const char *op) {
    sw_cache *cache = sw_tls.cache;
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (sw_unlikely(span == NULL)) {
        preload_delete_slow(cache, ptr, size, op);
    } else {
        sw_template_free_slot(cache, span, slot, ptr, op, preload_free_slow);
    }
}

#endif

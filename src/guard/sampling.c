/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled objects of a heap that has no other protection. The inline paths do not count: a refill
 * counts the slots that it gives them. Once these are enough, the thread leaves the inline paths
 * for a few allocations, the last of which is sampled. So the sampled object may be of any size, and
 * of those that hints serve, which need no refill. A thread that allocates only from hints is never
 * sampled.
 *
 * A sampled object costs system calls, a page fault and two call stacks, about 5 us. So a process
 * samples at most one per INTERVAL_NS. */
#include <string.h>

#include "guard/sample.h"
#include "guard/state.h"
#include "heap/refill.h"
#include "heap/registry.h"

enum { BURST_LOG2 = 3, INTERVAL_NS = 1000000 };

static uint64_t rest_ns; /* atomic: none is sampled before */

/* Starts the next countdown. False: the last object was sampled too recently. */
static bool may_sample(sw_guard_thread *own) {
    own->countdown = sw_sample_draw(own->guard);
    uint64_t now = sw_os_now_ns();
    if (now < __atomic_load_n(&rest_ns, __ATOMIC_RELAXED)) return false;
    __atomic_store_n(&rest_ns, now + INTERVAL_NS, __ATOMIC_RELAXED);
    return true;
}

/* The record of the cache's thread, made if necessary; NULL: no memory. */
static sw_guard_thread *record_of(sw_cache *cache) {
    sw_guard_thread *own = cache->thread == NULL ? NULL : cache->thread->extra;
    return sw_likely(own != NULL) ? own : sw_guard_thread_make(cache);
}

/* Makes the thread leave the inline paths: its cache in sw_tls has no heap then. */
static sw_cold void begin_burst(sw_guard_thread *own) {
    if (!may_sample(own)) return;
    own->burst = 1 + (sw_guard_next_random(own) >> (64 - BURST_LOG2));
    sw_thread *thread = own->cache->thread;
    sw_registry_drop_default();
    sw_registry_show(thread);
}

void *sw_sampling_refill(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    void *p = sw_alloc_slow(cache, size, flags, span_class);
    const sw_cache_bin *bin = &cache->bins[sw_refill_span_class(cache, size, span_class)];
    uint64_t given = 1 + (uint64_t)__builtin_popcountll(sw_word_free(bin->word));
    sw_guard_thread *own = record_of(cache);
    if (own == NULL) return p;
    if (sw_likely(own->countdown > given))
        own->countdown -= given;
    else
        begin_burst(own);
    return p;
}

/* Whether the allocation ends a burst, or, on the inline paths, the countdown. */
static bool is_due(sw_guard_thread *own) {
    if (sw_tls.cache->heap != NULL) {
        own->countdown -= own->countdown > 1;
        return own->countdown == 1 && may_sample(own);
    }
    own->burst -= own->burst != 0;
    if (own->burst != 0) return false;
    (void)sw_thread_default_cache(); /* back to the inline paths */
    return true;
}

void *sw_sampling_alloc(size_t size, unsigned flags, sw_guard_kind kind) {
    (void)flags; /* a fresh page is clear */
    sw_cache *cache = sw_tls.cache;
    sw_guard_thread *own = cache->heap != NULL ? record_of(cache) : sw_guard_thread_own();
    return own != NULL && is_due(own) ? sw_sample_alloc(own->guard, size, 0, kind) : NULL;
}

sw_cache *sw_sampling_cache(void) {
    sw_guard_thread *own = sw_guard_sampling ? sw_guard_thread_own() : NULL;
    return own != NULL && own->burst != 0 ? own->cache : NULL;
}

bool sw_sampling_free(void *ptr, size_t stated, sw_guard_kind kind, const char *op) {
    if (!sw_sampling_owns(ptr)) return false;
    sw_sample_free(&sw_guard, ptr, stated, kind, op);
    return true;
}

bool sw_sampling_realloc(sw_cache *cache, void *ptr, size_t size, void **moved) {
    size_t before;
    if (!sw_sampling_owns(ptr)) return false;
    *moved = NULL;
    if (!sw_sample_size(&sw_guard, ptr, "realloc", &before)) return true;
    *moved = sw_cache_alloc(cache, size, 0);
    if (*moved == NULL) return true;
    memcpy(*moved, ptr, before < size ? before : size);
    sw_sample_free(&sw_guard, ptr, SIZE_MAX, SW_GUARD_MALLOC, "realloc");
    return true;
}

bool sw_sampling_usable(const void *ptr, size_t *size) {
    if (!sw_sampling_owns(ptr)) return false;
    if (!sw_sample_size(&sw_guard, ptr, "malloc_usable_size", size)) *size = 0;
    return true;
}

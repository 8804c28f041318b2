/* SPDX-License-Identifier: Apache-2.0 */
/* Frees of objects of other threads: they wait with the freer, are told to the owner a word at a time,
 * and are drained by it.
 *
 * A free that waits has been validated when it was asked for; its object looks allocated to everybody
 * until it is told. A second free of it meanwhile is found when the later of the two is told.
 */
#include <errno.h>

#include "base/assert.h"
#include "heap/heap.h"

/* --- what owners are told ------------------------------------------------------------------- */

static void push_remote(sw_cache *owner, sw_space *space, sw_span *span, uint32_t half) {
    uint32_t *head = &owner->more->remote_head;
    uint32_t *link = &sw_space_cold(space, span)->remote_next[half];
    uint32_t node = sw_space_span_id(space, span) * 2 + half;
    uint32_t top = __atomic_load_n(head, __ATOMIC_RELAXED);
    do {
        *link = top;
    } while (
        !__atomic_compare_exchange_n(head, &top, node, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}

/* One popped half. The span may have changed hands since it was announced. */
static void drain_one(sw_cache *cache, sw_span *span, uint32_t half, bool as_owner,
                      uintptr_t *doubled) {
    sw_heap *heap = cache->heap;
    *doubled = 0;
    sw_cache *owner = sw_span_owner(span);
    if (owner == NULL) {
        sw_os_lock_acquire(&heap->lock);
        owner = sw_span_owner(span); /* adopted meanwhile? */
        if (owner == NULL) sw_central_drain(heap, span, half, doubled);
        sw_os_lock_release(&heap->lock);
        if (owner == NULL) return;
    }
    if (owner != cache || !as_owner) {
        sw_cache_announce(owner, span, half);
        return;
    }
    sw_span_drain(heap->space, span, half, doubled);
    sw_cache_attend(cache, span);
    sw_cache_emptied(cache, span);
}

/* Puts a popped chain back on the stack. */
static void put_back(sw_cache *cache, uint32_t node) {
    sw_space *space = cache->heap->space;
    while (node != 0) {
        sw_span *span = sw_space_span(space, node / 2);
        uint32_t half = node % 2, next = sw_space_cold(space, span)->remote_next[half];
        push_remote(cache, space, span, half);
        node = next;
    }
}

/* as_owner: the caller is the thread that the cache belongs to. Others empty the stack of a closed
 * cache only. */
static void drain_stack(sw_cache *cache, bool as_owner) {
    sw_space *space = cache->heap->space;
    uint32_t node = __atomic_exchange_n(&cache->more->remote_head, 0, __ATOMIC_SEQ_CST);
    while (node != 0) {
        sw_span *span = sw_space_span(space, node / 2);
        uint32_t half = node % 2;
        uintptr_t doubled;
        node = sw_space_cold(space, span)->remote_next[half]; /* before it is announced again */
        drain_one(cache, span, half, as_owner, &doubled);
        if (doubled == 0) continue;
        put_back(cache, node); /* the handler may jump out */
        sw_cache_report_double(cache, doubled);
        node = __atomic_exchange_n(&cache->more->remote_head, 0, __ATOMIC_SEQ_CST);
    }
}

void sw_cache_drain_remote(sw_cache *cache) { drain_stack(cache, true); }

void sw_remote_drain_closed(sw_cache *cache) { drain_stack(cache, false); }

/* A cache that closes looks at its stack after it has set `closed`; an announcer looks at `closed`
 * after its push. So one of them sees the other, and the span is not forgotten. */
void sw_cache_announce(sw_cache *owner, sw_span *span, uint32_t half) {
    push_remote(owner, owner->heap->space, span, half);
    if (sw_unlikely(__atomic_load_n(&owner->more->closed, __ATOMIC_SEQ_CST) != 0))
        drain_stack(owner, false);
}

/* --- frees that wait ---------------------------------------------------------------------------- */

bool sw_remote_free_later(sw_cache *cache, void *ptr) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (span == NULL || cache->mode != 0 || cache->more->loose) return false;
    if (sw_space_cold(cache->heap->space, span)->heap != cache->heap) return false;
    const sw_cache *owner = sw_span_owner(span);
    if (owner == NULL || owner == cache || !sw_span_slot_live(span, (uint32_t)slot)) return false;
    struct sw_cache_more *more = cache->more;
    uint32_t n = more->waiting_count;
    more->waiting[n++] = ptr;
    more->waiting_bytes += span->size;
    __atomic_store_n(&more->waiting_count, n, __ATOMIC_RELEASE);
    if (n == SW_WAITING_MAX || more->waiting_bytes >= SW_WAITING_BYTES) sw_remote_flush(cache);
    return true;
}

/* What comes of a flush besides bits: done after it, when no span is visited any more. */
typedef struct sw_flush {
    void *left[SW_WAITING_MAX]; /* central or own by now, or misuse: freed one by one */
    uint32_t left_count;
    struct {
        sw_cache *owner;
        sw_span *span;
        uint32_t half;
    } announced[SW_WAITING_MAX];
    uint32_t announced_count;
} sw_flush;

/* The bits of the first n pointers that lie in word k, each once; *n: how many those are. */
static uint64_t gather(const sw_span *span, uint32_t k, void *const *ptrs, uint32_t *n) {
    uint64_t bits = 0;
    uint32_t slot, i = 0;
    for (; i < *n; i++) {
        if (sw_span_locate(span, (uintptr_t)ptrs[i], &slot) != SW_SLOT_START) break;
        if (slot / 64 != k || (bits >> (slot % 64) & 1) != 0) break;
        bits |= 1ull << (slot % 64);
    }
    *n = i;
    return bits;
}

/* Frees the first of the pointers, and as many more as lie in the same word. Returns how many. */
static uint32_t tell(sw_cache *cache, uint64_t visited, void *const *ptrs, uint32_t n,
                     sw_flush *flush) {
    sw_space *space = cache->heap->space;
    sw_target target = sw_target_find(cache->heap, ptrs[0]);
    bool small = target.misuse == SW_MISUSE_NONE && !target.large;
    sw_cache *owner = small ? sw_span_owner(target.span) : NULL;
    if (owner == NULL || owner == cache ||
        (sw_visit_bit(sw_space_span_id(space, target.span)) & visited) == 0) {
        flush->left[flush->left_count++] = ptrs[0];
        return 1;
    }
    uint32_t k = target.slot / 64;
    bool announce;
    uint64_t bits = gather(target.span, k, ptrs, &n);
    uint64_t already = sw_span_remote_free_bits(space, target.span, k, bits, &announce);
    for (uint32_t i = 0; already != 0 && i < n; i++)
        if ((already >> (sw_span_slot_of(target.span, (uintptr_t)ptrs[i]) % 64) & 1) != 0)
            flush->left[flush->left_count++] = ptrs[i];
    if (announce) {
        uint32_t a = flush->announced_count++;
        flush->announced[a].owner = owner;
        flush->announced[a].span = target.span;
        flush->announced[a].half = k / 64;
    }
    return n;
}

void sw_remote_flush(sw_cache *cache) {
    struct sw_cache_more *more = cache->more;
    uint32_t n = more->waiting_count;
    if (n == 0) return;
    int saved_errno = errno;
    void *ptrs[SW_WAITING_MAX];
    sw_flush flush;
    uint64_t visited = 0;
    flush.left_count = flush.announced_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        ptrs[i] = more->waiting[i];
        visited |= sw_visit_bit(*sw_space_entry(cache->heap->space, (uintptr_t)ptrs[i]));
    }
    more->waiting_bytes = 0;
    __atomic_store_n(&more->waiting_count, 0, __ATOMIC_RELEASE);
    sw_visit_enter(cache, visited);
    for (uint32_t i = 0; i < n;) i += tell(cache, visited, ptrs + i, n - i, &flush);
    sw_visit_leave(cache); /* pending frees keep their spans */
    for (uint32_t i = 0; i < flush.announced_count; i++)
        sw_cache_announce(flush.announced[i].owner, flush.announced[i].span,
                          flush.announced[i].half);
    for (uint32_t i = 0; i < flush.left_count; i++) sw_free_now(cache, flush.left[i], "free");
    errno = saved_errno;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The stack on which other threads announce frees to a cache; the owner drains it. */
#include "heap/remote.h"

#include "heap/central.h"
#include "heap/misuse.h"
#include "heap/owned.h"
#include "heap/verify_point.h"

/* --- the stack -------------------------------------------------------------------------------- */

static void push_remote(sw_cache *owner, sw_space *space, sw_span *span, uint32_t half) {
    uint32_t *head = &owner->cold->remote_head;
    uint32_t *link = &sw_space_cold(space, span)->remote_next[half];
    uint32_t node = sw_space_span_id(space, span) * 2 + half;
    uint32_t top = __atomic_load_n(head, __ATOMIC_RELAXED);
    do {
        *link = top;
    } while (
        !__atomic_compare_exchange_n(head, &top, node, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}

/* Under the heap's lock: whether a span that was seen without owner is in a central list, where it
 * may be drained. If two threads freed an object of it at once, the span may be kept;
 * then it is moved to the list of full ones. False: a cache is just taking the span, or has
 * taken it since the owner was read. */
static bool is_listed(sw_heap *heap, sw_span *span) {
    switch (sw_span_state_seen(span)) {
    case SW_SPAN_KEPT: return sw_central_remove_kept(heap, span);
    case SW_SPAN_CURRENT:
    case SW_SPAN_PARTIAL:
    case SW_SPAN_FULL: return false;
    default: return true;
    }
}

/* Drains a popped half if no cache owns its span, and then returns NULL; else returns the owner. If
 * a cache is just taking the span, it waits until that cache is the owner. */
static sw_cache *drain_unowned(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled) {
    sw_cache *owner;
    bool drained = false;
    do {
        sw_os_lock_acquire(&heap->lock);
        owner = sw_span_owner(span); /* a cache may have adopted the span meanwhile */
        if (owner == NULL && is_listed(heap, span)) {
            sw_central_drain(heap, span, half, doubled);
            drained = true;
        }
        sw_os_lock_release(&heap->lock);
    } while (owner == NULL && !drained);
    return owner;
}

/* Drains one popped half. The owner of the span may have changed since the half was announced; then
 * the half is announced to the new owner. */
static void drain_one(sw_cache *cache, sw_span *span, uint32_t half, bool as_owner,
                      uintptr_t *doubled) {
    sw_heap *heap = cache->heap;
    *doubled = 0;
    sw_cache *owner = sw_span_owner(span);
    if (owner == NULL) owner = drain_unowned(heap, span, half, doubled);
    if (owner == NULL) return;
    if (owner != cache || !as_owner) {
        sw_remote_announce(owner, span, half);
        return;
    }
    sw_span_drain(heap->space, span, half, doubled);
    sw_owned_unmark(cache, span);
    sw_cache_emptied(cache, span);
}

/* Puts a popped chain back on the stack, in reverse order. */
static void put_back(sw_cache *cache, uint32_t node) {
    sw_space *space = cache->heap->space;
    while (node != 0) {
        sw_span *span = sw_space_span(space, node / 2);
        uint32_t half = node % 2, next = sw_space_cold(space, span)->remote_next[half];
        push_remote(cache, space, span, half);
        node = next;
    }
}

/* Pops all halves and drains them. as_owner: the calling thread is the one that the cache belongs
 * to; other threads may only empty the stack of a closed cache. */
static void drain_stack(sw_cache *cache, bool as_owner) {
    sw_space *space = cache->heap->space;
    uint32_t node = __atomic_exchange_n(&cache->cold->remote_head, 0, __ATOMIC_SEQ_CST);
    if (node != 0) sw_verify_note(cache->heap, SW_VERIFY_DRAIN);
    sw_verify_hold(); /* the popped chain is in no stack, so verification would fail */
    while (node != 0) {
        sw_span *span = sw_space_span(space, node / 2);
        uint32_t half = node % 2;
        uintptr_t doubled;
        /* The link is read before the half is announced again, which changes it. */
        node = sw_space_cold(space, span)->remote_next[half];
        drain_one(cache, span, half, as_owner, &doubled);
        if (doubled == 0) continue;
        put_back(cache, node); /* because the program's fault handler may leave by longjmp */
        sw_verify_unhold();
        sw_report_double_free(cache->heap, doubled);
        sw_verify_hold();
        node = __atomic_exchange_n(&cache->cold->remote_head, 0, __ATOMIC_SEQ_CST);
    }
    sw_verify_unhold();
    if (as_owner) sw_verify_point(cache->heap, cache);
}

void sw_remote_drain(sw_cache *cache) { drain_stack(cache, true); }

void sw_remote_drain_closed(sw_cache *cache) { drain_stack(cache, false); }

/* A cache that closes looks at its stack after it has set `closed`, and an announcer looks at
 * `closed` after its push. So at least one of them sees what the other has done, and drains the
 * half. */
void sw_remote_announce(sw_cache *owner, sw_span *span, uint32_t half) {
    push_remote(owner, owner->heap->space, span, half);
    if (sw_unlikely(__atomic_load_n(&owner->cold->closed, __ATOMIC_SEQ_CST) != 0))
        drain_stack(owner, false);
}

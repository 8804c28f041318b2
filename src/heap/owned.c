/* SPDX-License-Identifier: Apache-2.0 */
/* The spans of a cache: hints of freed slots, their states, and frees of other threads. */
#include "heap/owned.h"

#include <errno.h>

#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/target.h"

/* --- hints ------------------------------------------------------------------------------------ */

/* Drops and finds hints, and switches them on and off. The code that stores and takes hints is
 * inline in its paths. */

/* --- on and off ------------------------------------------------------------------------------- */

/* What a free into a full span adds to the cost. It adds more if it leaves a hint, because where
 * hints and words alternate the processor mispredicts two branches: the free tests whether the span
 * is full, and the allocation whether there is a hint. */
enum { HINTED_COST = 7, UNHINTED_COST = 2 };

void sw_hint_reset(sw_cache *cache) {
    cache->unhinted_owner = cache;
    cache->cold->scarcity = 0;
    cache->cold->dropped = 0;
}

static void note_cost(sw_cache *cache, uint32_t cost) {
    struct sw_cache_cold *cold = cache->cold;
    cold->scarcity += cost;
    if (cold->scarcity < SW_SCARCITY_MAX) return;
    cache->unhinted_owner = SW_NO_CACHE;
    cold->scarcity = 0;
}

void sw_hint_note_full(sw_cache *cache) { note_cost(cache, HINTED_COST); }

/* Records that this many hints were useless. While hints are on, SW_DROPPED_MAX in a row turn them
 * off. */
static void note_dropped(sw_cache *cache, uint32_t hints) {
    if (cache->unhinted_owner == cache) return;
    cache->cold->dropped += hints;
    if (cache->cold->dropped >= SW_DROPPED_MAX) sw_hint_reset(cache);
}

void sw_hint_note_unhinted(sw_cache *cache, const sw_span *span) {
    const sw_cache_bin *bin = &cache->bins[span->span_class];
    if (sw_bin_is_medium(bin)) return;
    if (cache->unhinted_owner != cache)
        note_dropped(cache, 1);
    else if (bin->hinted_max != 0)
        note_cost(cache, UNHINTED_COST);
}

/* --- hints of a span -------------------------------------------------------------------------- */

/* Drops the hints of the span's slots. It is called before the cache loses the span, because no
 * hint may refer to words of another owner. */
static void sw_hint_forget(sw_cache *cache, const sw_span *span) {
    sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *end = span->words + sw_span_word_count(span);
    const sw_hint *hints_end = sw_bin_hints_end(bin);
    sw_hint *kept = bin->hints;
    for (const sw_hint *hint = bin->hints; hint < hints_end; hint++)
        if (hint->word < span->words || hint->word >= end) *kept++ = *hint;
    bin->hinted = (uint32_t)((uintptr_t)kept - (uintptr_t)bin->hints);
    if (!sw_bin_is_medium(bin)) note_dropped(cache, (uint32_t)(hints_end - kept));
}

bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot) {
    const sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *word = &span->words[slot / 64];
    uintptr_t at = span->base + (uintptr_t)slot * sw_span_size(span);
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        if (hint->at == at && hint->word == word && hint->slot == slot) return true;
    return false;
}

/* --- owned spans ------------------------------------------------------------------------------ */

/* --- giving up -------------------------------------------------------------------------------- */

static void release(sw_cache *cache, sw_span *span) {
    sw_heap *heap = cache->heap;
    int saved_errno = errno; /* a free keeps errno, whatever system calls do */
    sw_hint_forget(cache, span);
    sw_os_lock_acquire(&heap->lock);
    sw_reclaim_decay(heap);
    sw_central_release(heap, span);
    sw_reclaim_unlock(heap);
    errno = saved_errno;
}

/* Keeps a partial span that has become idle for its class, or releases it. */
static void release_or_count_idle(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    uint32_t span_class = span->span_class;
    if (span->idle) return; /* it is counted already: a racing second free had made it look used */
    if (cold->idle_spans[span_class] < cache->heap->options.batch_spans) {
        sw_hint_forget(cache, span); /* an idle span gives no slots until it is current */
        cold->idle_spans[span_class]++;
        span->idle = 1;
        return;
    }
    sw_span_list_remove(&cold->partial[span_class], cache->heap->space, span);
    release(cache, span);
}

void sw_cache_emptied(sw_cache *cache, sw_span *span) {
    if (span->state != SW_SPAN_PARTIAL && span->state != SW_SPAN_FULL) return;
    if (!sw_span_is_empty(span)) return;
    if (span->state == SW_SPAN_FULL && sw_bin_is_medium(&cache->bins[span->span_class])) return;
    if (span->state == SW_SPAN_FULL) sw_owned_unmark(cache, span);
    release_or_count_idle(cache, span);
    sw_verify_point(cache->heap, cache);
}

/* Releases the idle spans of the class's partial list. */
static void release_idle(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_space *space = cache->heap->space;
    for (uint32_t id = cold->partial[span_class].head;
         id != 0 && cold->idle_spans[span_class] > 0;) {
        sw_span *span = sw_space_span(space, id);
        id = sw_space_cold(space, span)->next;
        if (!span->idle) continue;
        cold->idle_spans[span_class]--;
        span->idle = 0;
        sw_span_list_remove(&cold->partial[span_class], space, span);
        sw_central_release(cache->heap, span);
    }
}

static bool is_spare(sw_space *space, const sw_span *span, uint32_t pages) {
    return sw_space_cold(space, span)->pages >= pages && sw_span_is_empty(span);
}

/* An idle span of the class with at least `pages` pages: the current one, or a full one, whose slots
 * then all have hints (sw_bin_is_medium). NULL: none. */
static sw_span *find_idle(const sw_cache *cache, uint32_t span_class, uint32_t pages) {
    const sw_cache_bin *bin = &cache->bins[span_class];
    sw_space *space = cache->heap->space;
    if (bin->span != NULL && is_spare(space, bin->span, pages)) return bin->span;
    const sw_hint *end = sw_bin_is_medium(bin) ? sw_bin_hints_end(bin) : bin->hints;
    for (const sw_hint *hint = bin->hints; hint < end; hint++) {
        sw_span *span = sw_space_span(space, *sw_space_entry(space, hint->at));
        if (span->state == SW_SPAN_FULL && is_spare(space, span, pages)) return span;
    }
    return NULL;
}

/* Releases an idle span that find_idle has found. */
static void give_up(sw_cache *cache, sw_span *span) {
    if (span->state == SW_SPAN_FULL) {
        sw_owned_unmark(cache, span);
        sw_span_list_remove(&cache->cold->partial[span->span_class], cache->heap->space, span);
    } else {
        sw_bin_empty(&cache->bins[span->span_class]);
    }
    sw_hint_forget(cache, span);
    sw_central_release(cache->heap, span);
}

void sw_owned_release_idle(sw_cache *cache) {
    sw_span *span;
    sw_shelf_clear(cache);
    for (uint32_t i = 0; i < cache->heap->span_classes; i++) {
        release_idle(cache, i);
        while ((span = find_idle(cache, i, 0)) != NULL) give_up(cache, span);
    }
}

void sw_owned_give_up_idle(sw_cache *cache, uint32_t pages) {
    struct sw_cache_cold *cold = cache->cold;
    sw_span *span = NULL;
    if (cold->idle_credit < SW_IDLE_PRICE) return;
    if (sw_pages_find_held(&cache->heap->pages, pages) != SW_PAGE_NONE) return;
    for (uint32_t w = 0; w * 64 < cache->heap->span_classes && span == NULL; w++)
        for (uint64_t bits = cold->classes[w]; bits != 0 && span == NULL; bits &= bits - 1)
            span = find_idle(cache, w * 64 + sw_ctz(bits), pages);
    if (span == NULL) return;
    cold->idle_credit -= SW_IDLE_PRICE;
    give_up(cache, span);
}

/* --- current, partial, full ------------------------------------------------------------------- */

void sw_owned_unmark(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    sw_space *space = cache->heap->space;
    sw_span_dirty(span);
    sw_span_set_owner(span, cache, SW_MARK_NONE);
    if (span->state != SW_SPAN_FULL) return;
    sw_span_list_remove(&cold->full[span->span_class], space, span);
    sw_span_list_push(&cold->partial[span->span_class], space, span);
    sw_span_enter(span, SW_SPAN_PARTIAL);
}

void sw_owned_set_full(sw_cache *cache, sw_cache_bin *bin) {
    sw_span *span = bin->span;
    sw_span_enter(span, SW_SPAN_FULL);
    sw_span_dirty(span); /* from now on freed slots have old bytes, so frees need not record it */
    sw_span_set_owner(span, cache, SW_MARK_FULL);
    sw_span_list_push(&cache->cold->full[span->span_class], cache->heap->space, span);
    sw_bin_empty(bin);
}

sw_span *sw_owned_take_partial(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_span_list *partial = &cold->partial[span_class];
    sw_heap *heap = cache->heap;
    sw_span *span = sw_placement_choose(partial, heap->space, heap->options.placement);
    if (span == NULL) return NULL;
    if (span->idle) cold->idle_spans[span_class]--;
    span->idle = 0;
    sw_span_list_remove(partial, heap->space, span);
    sw_span_enter(span, SW_SPAN_CURRENT);
    return span;
}

/* --- frees of other threads ------------------------------------------------------------------- */

/* The stack on which other threads announce frees to a cache; the owner drains it. */

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
 * may be drained. If two threads freed one of its objects at once, the span may be kept; then it is
 * moved to the list of full ones. False: a cache is just taking the span, or has taken it since the
 * owner was read. */
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

/* Pops and drains all halves. as_owner: the cache belongs to the calling thread; other threads may
 * only empty the stack of a closed cache. */
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

/* A closing cache reads its stack after it has set `closed`, and an announcing thread reads
 * `closed` after its push. So at least one sees the other's store, and drains the half. */
void sw_remote_announce(sw_cache *owner, sw_span *span, uint32_t half) {
    push_remote(owner, owner->heap->space, span, half);
    if (sw_unlikely(__atomic_load_n(&owner->cold->closed, __ATOMIC_SEQ_CST) != 0))
        drain_stack(owner, false);
}

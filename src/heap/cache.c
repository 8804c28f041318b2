/* SPDX-License-Identifier: Apache-2.0 */
/* A cache: its current, partial and full spans, refill, and frees by other threads. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "heap/heap.h"

static void empty_bin(sw_cache_bin *bin) {
    bin->word = &sw_sentinel_word;
    bin->base = SW_NO_BASE;
    bin->span = NULL;
}

void sw_cache_report_double(const sw_cache *cache, uintptr_t p) {
    sw_misuse_report(&(sw_fault){.code = SW_MISUSE_DOUBLE_FREE,
                                 .op = "free",
                                 .ptr = (const void *)p,
                                 .heap_id = cache->heap->id,
                                 .thread = sw_os_thread_id()});
}

/* What fast paths read lies where no object begins: see sw_cache. */
#define BESIDE_OBJECTS(record, field)                                                              \
    _Static_assert(offsetof(record, field) % 16 >= 8, #field " of " #record)
BESIDE_OBJECTS(sw_tls_record, cache);
BESIDE_OBJECTS(sw_cache, base);
BESIDE_OBJECTS(sw_cache, frames);
BESIDE_OBJECTS(sw_cache, page_map);
BESIDE_OBJECTS(sw_cache, spans);
BESIDE_OBJECTS(sw_cache, paths);
BESIDE_OBJECTS(sw_cache, small_map);
BESIDE_OBJECTS(sw_cache, plain_end);
BESIDE_OBJECTS(sw_cache_bin, word);
BESIDE_OBJECTS(sw_cache_bin, base);
BESIDE_OBJECTS(sw_cache_bin, hinted);
BESIDE_OBJECTS(sw_cache_bin, bytes);
/* What frees store lies where objects begin, and not where they read the cache. */
_Static_assert(offsetof(sw_word, local) % 16 == 0 && offsetof(sw_span, own) % 16 == 0, "local");
_Static_assert(sizeof(sw_cache_bin) == 64 && offsetof(sw_cache, bins) % 64 == 0, "a line a bin");

/* --- hints ------------------------------------------------------------------------------------ */

/* Before the span's words stop being this cache's: no hint may lead to words of somebody else. */
static void forget_hints(sw_cache *cache, const sw_span *span) {
    sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *end = span->words + sw_span_word_count(span);
    const sw_hint *hints_end = sw_bin_hints_end(bin);
    sw_hint *kept = bin->hints;
    for (const sw_hint *hint = bin->hints; hint < hints_end; hint++)
        if (hint->word < span->words || hint->word >= end) *kept++ = *hint;
    bin->hinted = (uint32_t)((uintptr_t)kept - (uintptr_t)bin->hints);
}

bool sw_cache_is_hinted(const sw_cache *cache, const sw_span *span, uint32_t slot) {
    const sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *word = &span->words[slot / 64];
    uintptr_t at = span->base + (uintptr_t)slot * sw_span_size(span);
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        if (hint->at == at && hint->word == word && hint->slot == slot) return true;
    return false;
}

uintptr_t sw_cache_take_hinted(sw_cache *cache, uint32_t span_class, sw_span **span) {
    sw_cache_bin *bin = &cache->bins[span_class];
    while (bin->hinted != 0) {
        bin->hinted -= (uint32_t)sizeof(sw_hint);
        const sw_hint *hint = sw_bin_hints_end(bin);
        sw_word *word = hint->word;
        uint64_t bit = 1ull << hint->slot % 64, local = sw_word_local(word);
        if ((local & bit) == 0) continue;
        *span = sw_space_span(cache->heap->space, *sw_space_entry(cache->heap->space, hint->at));
        if (sw_unlikely((sw_word_remote(word) & bit) != 0)) {
            sw_cache_unmark(cache, *span); /* freed twice: the drain will tell */
            continue;
        }
        sw_word_set_local(word, local & ~bit);
        return hint->at;
    }
    return 0;
}

/* --- giving spans up -------------------------------------------------------------------------- */

static void release(sw_cache *cache, sw_span *span) {
    sw_heap *heap = cache->heap;
    int saved_errno = errno; /* a free keeps errno, whatever the OS answers */
    forget_hints(cache, span);
    sw_os_lock_acquire(&heap->lock);
    sw_central_tick(heap);
    sw_central_release(heap, span);
    sw_os_lock_release(&heap->lock);
    errno = saved_errno;
}

/* A partial span has become wholly free: keep it for its class, or give it up. */
static void release_or_keep(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    uint32_t span_class = span->span_class;
    if (span->kept) return; /* a free that raced with another made it look used meanwhile */
    if (cold->kept[span_class] < cache->heap->options.batch_spans) {
        forget_hints(cache, span); /* it stays wholly free until it is current */
        cold->kept[span_class]++;
        span->kept = 1;
        return;
    }
    sw_span_list_remove(&cold->partial[span_class], cache->heap->space, span);
    release(cache, span);
}

/* Gives up the kept spans of one class. Under the heap's lock. */
static void give_up_kept(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_space *space = cache->heap->space;
    for (uint32_t id = cold->partial[span_class].head; id != 0 && cold->kept[span_class] > 0;) {
        sw_span *span = sw_space_span(space, id);
        id = sw_space_cold(space, span)->next;
        if (!span->kept) continue;
        cold->kept[span_class]--;
        span->kept = 0;
        sw_span_list_remove(&cold->partial[span_class], space, span);
        sw_central_release(cache->heap, span);
    }
}

/* Gives up every span that the cache holds wholly free. Under the heap's lock. */
static void give_up_idle(sw_cache *cache) {
    sw_large_give_up(cache);
    for (uint32_t i = 0; i < cache->heap->span_classes; i++) {
        sw_span *current = cache->bins[i].span;
        give_up_kept(cache, i);
        if (current == NULL || !sw_span_is_empty(current)) continue;
        empty_bin(&cache->bins[i]);
        forget_hints(cache, current);
        sw_central_release(cache->heap, current);
    }
}

void sw_cache_trim(sw_cache *cache) {
    if (!sw_cache_check(cache, "cache_trim")) return;
    sw_hazard_clear(cache);
    sw_cache_drain_remote(cache);
    sw_os_lock_acquire(&cache->heap->lock);
    give_up_idle(cache);
    sw_central_release_idle(cache->heap);
    sw_os_lock_release(&cache->heap->lock);
}

void sw_cache_unmark(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    sw_space *space = cache->heap->space;
    sw_span_dirty(span);
    sw_span_set_owner(span, cache, SW_MARK_NONE);
    if (span->state != SW_SPAN_FULL) return;
    sw_span_list_remove(&cold->full[span->span_class], space, span);
    sw_span_list_push(&cold->partial[span->span_class], space, span);
    sw_span_enter(span, SW_SPAN_PARTIAL);
}

void sw_cache_emptied(sw_cache *cache, sw_span *span) {
    if (span->state != SW_SPAN_PARTIAL && span->state != SW_SPAN_FULL) return;
    if (!sw_span_is_empty(span)) return;
    if (span->state == SW_SPAN_FULL) sw_cache_unmark(cache, span);
    release_or_keep(cache, span);
}

/* --- refill ----------------------------------------------------------------------------------- */

static bool point_at_word(sw_cache_bin *bin, uintptr_t *doubled) {
    if (bin->span == NULL) return false;
    uintptr_t found;
    sw_word *word = sw_span_find_word(bin->span, &found);
    if (sw_unlikely(found != 0)) *doubled = found;
    if (word == NULL) return false;
    bin->word = word;
    bin->base = sw_span_word_base(bin->span, word, bin->bytes);
    return true;
}

/* A span for the bin from this cache's own partial spans; NULL. */
static sw_span *take_partial(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_span_list *partial = &cold->partial[span_class];
    sw_heap *heap = cache->heap;
    sw_span *span = sw_span_list_choose(partial, heap->space, heap->options.placement);
    if (span == NULL) return NULL;
    if (span->kept) cold->kept[span_class]--;
    span->kept = 0;
    sw_span_list_remove(partial, heap->space, span);
    sw_span_enter(span, SW_SPAN_CURRENT);
    return span;
}

/* Asks for the pages of a fresh span at once where they will be touched soon: the class fills span
 * after span, and every page holds several slots, so that a program that writes to its objects
 * writes to each. At most one span in five is resident ahead of its use. */
static void populate(const sw_cache *cache, const sw_span *span) {
    enum { FULL_SPANS = 4, SLOTS_A_PAGE = 4 };
    const sw_heap *heap = cache->heap;
    const sw_class *cls = &heap->table->classes[span->span_class / 2];
    if (cls->size > SW_FRAME_BYTES / SLOTS_A_PAGE || (heap->mode & SW_MODE_DRY) != 0) return;
    uint32_t full = 0;
    for (uint32_t id = cache->cold->full[span->span_class].head; id != 0 && full < FULL_SPANS;
         full++)
        id = sw_space_cold(heap->space, sw_space_span(heap->space, id))->next;
    if (full < FULL_SPANS) return;
    (void)sw_os_populate((void *)span->base, (size_t)cls->pages << heap->table->page_shift);
}

static sw_span *take_central(sw_cache *cache, uint32_t span_class) {
    sw_heap *heap = cache->heap;
    sw_status why = SW_OK;
    sw_hazard_clear(cache);
    sw_os_lock_acquire(&heap->lock);
    sw_span *span = sw_central_take(heap, cache, span_class, &why);
    bool ticked = cache->cold->tick_ns != heap->pages.tick_ns; /* since the last look */
    if (span == NULL || ticked) {
        give_up_idle(cache);
        sw_central_release_idle(heap);
    }
    if (span == NULL) span = sw_central_take(heap, cache, span_class, &why);
    cache->cold->tick_ns = heap->pages.tick_ns;
    cache->cold->exhausted = span == NULL;
    sw_os_lock_release(&heap->lock);
    if (span != NULL && !span->needzero) populate(cache, span);
    if (span == NULL)
        sw_fail(why, "alloc", "heap %u: no span of %u bytes: %s", heap->id,
                heap->table->classes[span_class / 2].pages << heap->table->page_shift,
                sw_status_text(why));
    return span;
}

/* The bin's span has no slot left. */
static void set_full(sw_cache *cache, sw_cache_bin *bin) {
    sw_span *span = bin->span;
    if (span == NULL) return;
    sw_span_enter(span, SW_SPAN_FULL);
    sw_span_dirty(span); /* what is freed from now on was in use: frees need not say so */
    sw_span_set_owner(span, cache, SW_MARK_FULL);
    sw_span_list_push(&cache->cold->full[span->span_class], cache->heap->space, span);
    empty_bin(bin);
}

/* A span with a free slot, in no list. What other threads freed is drained only when the cache's
 * own partial spans are used up: they are most likely freeing still into what they announced last,
 * and a word that one allocates from while another frees into it costs both a cache miss a step.
 * After a refusal nothing is left to wait: looks at the central lists would fail again. */
static sw_span *take_any(sw_cache *cache, uint32_t span_class) {
    const uint32_t *remote = &cache->cold->remote_head;
    sw_span *span = take_partial(cache, span_class);
    if (span == NULL && __atomic_load_n(remote, __ATOMIC_RELAXED) != 0) {
        if (cache->cold->exhausted) {
            sw_cache_drain_remote(cache);
        } else {
            sw_cache_drain_worth(cache);
        }
        span = take_partial(cache, span_class);
    }
    if (span == NULL) span = take_central(cache, span_class);
    if (span == NULL && __atomic_load_n(remote, __ATOMIC_RELAXED) != 0) {
        sw_cache_drain_remote(cache);
        span = take_partial(cache, span_class);
        if (span == NULL) span = take_central(cache, span_class);
    }
    return span;
}

static bool refill(sw_cache *cache, uint32_t span_class, uintptr_t *doubled) {
    sw_cache_bin *bin = &cache->bins[span_class];
    while (!point_at_word(bin, doubled)) {
        set_full(cache, bin);
        bin->span = take_any(cache, span_class);
        if (bin->span == NULL) return false;
    }
    return true;
}

/* A refill failed: whether the hook of the heap's limit says to try again. */
static bool may_retry(sw_cache *cache, uint32_t span_class, uint32_t *asked) {
    const sw_table *table = cache->heap->table;
    uint64_t bytes = (uint64_t)table->classes[span_class / 2].pages << table->page_shift;
    return sw_last_error()->status == SW_LIMIT && sw_heap_ask_limit(cache->heap, bytes, asked);
}

bool sw_cache_refill(sw_cache *cache, uint32_t span_class) {
    uintptr_t doubled = 0;
    uint32_t asked = 0;
    bool done = refill(cache, span_class, &doubled);
    while (sw_unlikely(!done) && may_retry(cache, span_class, &asked))
        done = refill(cache, span_class, &doubled);
    if (sw_unlikely(doubled != 0)) sw_cache_report_double(cache, doubled);
    return done;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static size_t cache_bytes(const sw_heap *heap) {
    return sizeof(sw_cache) +
           heap->span_classes * (sizeof(sw_cache_bin) + SW_HINTS_MAX / 2 * sizeof(sw_hint));
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

/* Closed handles wait, the oldest is reused first: a user who goes on with one is told. */
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

static sw_cache *reuse_closed(sw_heap *heap) {
    sw_cache *cache = heap->closed_caches;
    if (cache == NULL) return unqueue_handle(heap);
    unlink_cache(&heap->closed_caches, cache);
    return cache;
}

void sw_cache_reset_bins(sw_cache *cache) {
    const sw_heap *heap = cache->heap;
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        empty_bin(&cache->bins[i]);
        cache->bins[i].bytes = heap->table->classes[i / 2].size;
        cache->bins[i].hints = sw_cache_hints(cache, i);
        cache->bins[i].hinted = 0;
        cache->bins[i].hinted_max = sw_heap_hints_max(heap, i);
    }
}

/* What the fast paths read of an open cache. */
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
    cache->paths = sw_paths_for(heap->table, heap->mode);
    cache->mode = heap->mode;
}

/* No address is in the view, and every size is large, but for 0, whose class is 0. */
static void clear_view(sw_cache *cache) {
    static const uint8_t no_map[1];
    static const sw_table no_table = {
        .name = "", .page_shift = SW_FRAME_SHIFT, .small_map = no_map, .large_map = no_map};
    cache->frames = 0;
    cache->table = &no_table;
    cache->small_map = no_map;
    cache->plain_end = 0;
    cache->paths = NULL;
    cache->mode = 0;
}

/* What a cache has that ended with its heap: nothing, which nobody writes to. */
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
    cold->kept = (uint16_t *)(cold->full + heap->span_classes);
    cold->number = ++heap->cache_numbers;
    cold->next = heap->caches;
    cache->heap = heap;
    cache->hints = (sw_hint *)&cache->bins[heap->span_classes];
    cache->cold = cold;
    heap->caches = cache;
    return cache;
}

sw_status sw_cache_make(sw_heap *heap, sw_cache_holder holder, sw_cache **out) {
    sw_os_lock_acquire(&heap->lock);
    sw_cache *cache = reuse_closed(heap);
    if (cache == NULL) cache = fresh_cache(heap);
    if (cache == NULL && sw_central_relieve(heap)) cache = fresh_cache(heap);
    if (cache != NULL) {
        sw_cache_reset_bins(cache);
        link_cache(&heap->open_caches, cache);
        heap->cache_count++;
        set_view(cache);
        cache->cold->holder = (uint16_t)holder;
        cache->cold->exhausted = 0;
        __atomic_store_n(&cache->cold->closed, 0, __ATOMIC_SEQ_CST);
        sw_handle_begin(&cache->mark, SW_HANDLE_CACHE);
    }
    sw_os_lock_release(&heap->lock);
    if (cache == NULL)
        return sw_fail(SW_NOMEM, "cache", "heap %u: no memory for a cache", heap->id);
    *out = cache;
    return SW_OK;
}

static void disown(sw_heap *heap, sw_span *span) {
    span->kept = 0;
    sw_span_set_owner(span, NULL, SW_MARK_NONE);
    sw_central_put(heap, span);
}

static void disown_list(sw_heap *heap, sw_span_list *list) {
    while (list->head != 0) {
        sw_span *span = sw_space_span(heap->space, list->head);
        sw_span_list_remove(list, heap->space, span);
        disown(heap, span);
    }
}

void sw_cache_set_closed(sw_cache *cache) {
    sw_heap *heap = cache->heap;
    sw_handle_end(&cache->mark, SW_HANDLE_CACHE);
    clear_view(cache);
    unlink_cache(&heap->open_caches, cache);
    if (cache->cold->holder == SW_CACHE_OF_USER)
        queue_handle(heap, cache);
    else
        link_cache(&heap->closed_caches, cache);
    heap->cache_count--;
    __atomic_store_n(&cache->cold->closed, 1, __ATOMIC_SEQ_CST);
}

void sw_cache_shut(sw_cache *cache) {
    sw_heap *heap = cache->heap;
    struct sw_cache_cold *cold = cache->cold;
    sw_hazard_clear(cache);
    sw_cache_drain_remote(cache);
    sw_os_lock_acquire(&heap->lock);
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        if (cache->bins[i].span != NULL) disown(heap, cache->bins[i].span);
        empty_bin(&cache->bins[i]);
        disown_list(heap, &cold->partial[i]);
        disown_list(heap, &cold->full[i]);
        cold->kept[i] = 0;
        cache->bins[i].hinted = 0;
    }
    cold->tiny_block = 0;
    cold->tiny_used = 0;
    sw_large_give_up(cache);
    sw_central_release_idle(heap);
    sw_cache_set_closed(cache);
    sw_os_lock_release(&heap->lock);
    sw_remote_drain_closed(
        cache); /* spans announced while it closed: they are not its own any more */
}

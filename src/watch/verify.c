/* SPDX-License-Identifier: Apache-2.0 */
/* Verify: every invariant of the whole heap, in one walk. Each check names what it found. */
#include <string.h>

#include "base/fail.h"
#include "spanwise/stats.h"
#include "watch/walk.h"

typedef struct audit {
    sw_heap *heap;
    sw_status status;
    uint64_t used_pages;                    /* pages under spans and large objects */
    uint64_t by_state[SW_SPAN_STATE_COUNT]; /* spans of slots found by the walk */
} audit;

#define BROKEN(a, ...) ((a)->status = sw_fail(SW_STATE, "verify", __VA_ARGS__))

/* --- one span ------------------------------------------------------------------------------------- */

static bool check_words(audit *a, const sw_span *span) {
    for (uint32_t k = 0; k < sw_word_pairs(span->slots); k++) {
        uint64_t padding = sw_span_padding(span, k);
        uint64_t free_bits = sw_word_free(&span->words[k]);
        uint64_t local = sw_word_local(&span->words[k]);
        uint64_t remote = __atomic_load_n(sw_span_remote(span, k), __ATOMIC_RELAXED);
        if (((free_bits | remote) & padding) != 0 || (local & padding) != padding) {
            BROKEN(a, "span at page %u: padding of word %u is damaged", span->page, k);
        } else if ((free_bits & local) != 0 || ((free_bits | local) & remote) != 0) {
            BROKEN(a, "span at page %u: a slot of word %u is free twice", span->page, k);
        }
    }
    return a->status == SW_OK;
}

static bool check_slack(audit *a, const sw_span *span) {
    const void *slack = sw_space_cold(a->heap->space, span)->slack;
    bool tracked = (a->heap->mode & SW_MODE_TRACKED) != 0;
    if (tracked != (slack != NULL))
        BROKEN(a, "span at page %u: slack array and tracking disagree", span->page);
    for (uint32_t slot = 0; tracked && slot < span->slots && a->status == SW_OK; slot++)
        if (sw_span_slot_live(span, slot) && sw_slack_get(slack, span->size, slot) > span->size)
            BROKEN(a, "span at page %u: slot %u has more slack than bytes", span->page, slot);
    return a->status == SW_OK;
}

static bool check_state(audit *a, const sw_span *span) {
    bool owned = span->state == SW_SPAN_CURRENT || span->state == SW_SPAN_PARTIAL ||
                 span->state == SW_SPAN_FULL;
    const sw_cache *owner = sw_span_owner(span);
    bool marked = owner != NULL && span->owner != owner;
    if (owned != (owner != NULL))
        BROKEN(a, "span at page %u: state %u and owner disagree", span->page, span->state);
    else if (owned && marked != (span->state == SW_SPAN_FULL || !span->needzero))
        BROKEN(a, "span at page %u: mark and state %u disagree", span->page, span->state);
    else if (owned && owner->more->closed != 0)
        BROKEN(a, "span at page %u: its owner is closed", span->page);
    else if (span->state == SW_SPAN_PARTIAL && !sw_span_has_free(span))
        BROKEN(a, "span at page %u: in a partial list without a free slot", span->page);
    else if (span->state == SW_SPAN_FULL && sw_span_has_free(span))
        BROKEN(a, "span at page %u: in a full list with a free slot", span->page);
    else if (span->state == SW_SPAN_CURRENT && owner->slots[span->span_class].span != span)
        BROKEN(a, "span at page %u: its cache allocates from another span", span->page);
    return a->status == SW_OK;
}

static bool check_slots_span(audit *a, const sw_span *span) {
    uint32_t number = span->span_class / 2;
    if (number == 0 || number >= a->heap->table->class_count) {
        BROKEN(a, "span at page %u: class %u is not in the table", span->page, number);
        return false;
    }
    const sw_class *cls = &a->heap->table->classes[number];
    if (span->size != cls->size || span->slots != cls->slots || span->pages != cls->pages ||
        span->magic != UINT64_MAX / cls->size + 1) {
        BROKEN(a, "span at page %u: record and class %u disagree", span->page, number);
        return false;
    }
    return check_words(a, span) && check_slack(a, span) && check_state(a, span);
}

static bool check_pages_of(audit *a, const sw_span *span) {
    const sw_pages *pages = &a->heap->pages;
    const uint32_t id = sw_space_span_id(a->heap->space, span);
    if (span->base != sw_pages_address(pages, span->page)) {
        BROKEN(a, "span at page %u: its base is not that page", span->page);
    } else if (sw_bits_count(pages->runs.free, span->page, span->pages) != 0) {
        BROKEN(a, "span at page %u: some of its pages are free", span->page);
    } else if (sw_bits_count(pages->held, span->page, span->pages) != span->pages) {
        BROKEN(a, "span at page %u: some of its pages are not held", span->page);
    }
    uintptr_t end = span->base + ((uintptr_t)span->pages << pages->page_shift);
    for (uintptr_t p = span->base; p < end && a->status == SW_OK; p += SW_FRAME_BYTES) {
        const uint32_t *entry = sw_space_entry(a->heap->space, p);
        if (entry == NULL || *entry != id)
            BROKEN(a, "span at page %u: page map is wrong", span->page);
    }
    return a->status == SW_OK;
}

static bool check_span(sw_heap *heap, sw_span *span, void *arg) {
    audit *a = arg;
    a->used_pages += span->pages;
    if (sw_space_cold(heap->space, span)->heap != heap) {
        BROKEN(a, "span at page %u: it belongs to another heap", span->page);
        return false;
    }
    if (!check_pages_of(a, span)) return false;
    if (span->state == SW_SPAN_UNUSED || span->state >= SW_SPAN_STATE_COUNT) {
        BROKEN(a, "span at page %u: state %u is unknown", span->page, span->state);
        return false;
    }
    a->by_state[span->state]++;
    return span->state == SW_SPAN_LARGE || check_slots_span(a, span);
}

/* --- lists and caches ----------------------------------------------------------------------------- */

/* Every member has the state and class of the list, links agree, the count is right. */
static uint64_t check_list(audit *a, const sw_span_list *list, sw_span_state state,
                           uint32_t span_class, const sw_cache *owner) {
    sw_space *space = a->heap->space;
    uint32_t count = 0, previous = 0;
    for (uint32_t id = list->head; id != 0 && a->status == SW_OK && count <= list->count; count++) {
        const sw_span *span = sw_space_span(space, id);
        if (span->state != state || span->span_class != span_class ||
            sw_span_owner(span) != owner || span->prev != previous)
            BROKEN(a, "list of span class %u: span at page %u does not belong there", span_class,
                   span->page);
        previous = id;
        id = span->next;
    }
    if (a->status == SW_OK && count != list->count)
        BROKEN(a, "list of span class %u: %u spans, counted as %u", span_class, count, list->count);
    return count;
}

static void check_cache_slot(audit *a, const sw_cache *cache, uint32_t span_class) {
    const sw_cache_slot *slot = &cache->slots[span_class];
    const sw_span *span = slot->span;
    if (span == NULL) {
        if (slot->word != &sw_sentinel_word)
            BROKEN(a, "cache %u: span class %u has a word but no span", cache->more->number,
                   span_class);
        return;
    }
    ptrdiff_t k = slot->word - span->words;
    if (span->state != SW_SPAN_CURRENT || sw_span_owner(span) != cache ||
        span->span_class != span_class || k < 0 || k >= (ptrdiff_t)sw_span_word_count(span) ||
        slot->base != sw_span_word_base(span, slot->word))
        BROKEN(a, "cache %u: span class %u does not point into its current span",
               cache->more->number, span_class);
}

static void check_cache(audit *a, const sw_cache *cache, uint64_t seen[SW_SPAN_STATE_COUNT]) {
    for (uint32_t i = 0; i < a->heap->span_classes && a->status == SW_OK; i++) {
        check_cache_slot(a, cache, i);
        seen[SW_SPAN_CURRENT] += cache->slots[i].span != NULL;
        seen[SW_SPAN_PARTIAL] += check_list(a, &cache->more->partial[i], SW_SPAN_PARTIAL, i, cache);
        seen[SW_SPAN_FULL] += check_list(a, &cache->more->full[i], SW_SPAN_FULL, i, cache);
    }
}

static void check_lists(audit *a) {
    sw_heap *heap = a->heap;
    uint64_t seen[SW_SPAN_STATE_COUNT] = {0};
    for (const sw_cache *cache = heap->caches; cache != NULL && a->status == SW_OK;
         cache = cache->more->next)
        check_cache(a, cache, seen);
    for (uint32_t i = 0; i < heap->span_classes && a->status == SW_OK; i++) {
        seen[SW_SPAN_CENTRAL_PARTIAL] +=
            check_list(a, &heap->central_partial[i], SW_SPAN_CENTRAL_PARTIAL, i, NULL);
        seen[SW_SPAN_CENTRAL_FULL] +=
            check_list(a, &heap->central_full[i], SW_SPAN_CENTRAL_FULL, i, NULL);
    }
    for (int state = SW_SPAN_CURRENT; state < SW_SPAN_LARGE && a->status == SW_OK; state++)
        if (seen[state] != a->by_state[state])
            BROKEN(a, "%llu spans in state %d, but %llu in lists",
                   (unsigned long long)a->by_state[state], state, (unsigned long long)seen[state]);
}

/* --- pages ---------------------------------------------------------------------------------------- */

static uint64_t count_bits(const uint64_t *a, const uint64_t *b, uint32_t pages) {
    uint64_t n = 0;
    for (uint32_t w = 0; w < pages / 64; w++) n += sw_popcount(b == NULL ? a[w] : a[w] & b[w]);
    return n;
}

static void check_pages(audit *a) {
    const sw_pages *pages = &a->heap->pages;
    uint64_t held = count_bits(pages->held, NULL, pages->capacity);
    uint64_t free_pages = count_bits(pages->runs.free, NULL, pages->capacity);
    uint64_t free_held = count_bits(pages->runs.free, pages->held, pages->capacity);
    uint64_t frontier = 0;
    for (uint32_t i = 0; i < pages->window_count; i++) frontier += pages->windows[i].frontier;
    if (!sw_runs_check(&pages->runs)) {
        BROKEN(a, "page runs: a summary disagrees with the bitmap");
    } else if (held != pages->held_pages || free_held != pages->free_held_pages) {
        BROKEN(a, "pages: totals disagree with the bitmaps");
    } else if (frontier != pages->frontier_pages || a->used_pages + free_pages != frontier) {
        BROKEN(a, "pages: %llu used and %llu free do not make %llu",
               (unsigned long long)a->used_pages, (unsigned long long)free_pages,
               (unsigned long long)frontier);
    }
}

static void check_identity(audit *a, const sw_ledger *l) {
    uint64_t sum = l->requested_bytes + l->roundup_bytes + l->tail_bytes + l->free_slot_bytes +
                   l->cached_bytes + l->metadata_bytes + l->large_rounding_bytes +
                   l->arena_slack_bytes + l->quarantine_bytes + l->free_page_bytes;
    if (sum != l->held_bytes)
        BROKEN(a, "ledger: the parts sum to %llu, held is %llu", (unsigned long long)sum,
               (unsigned long long)l->held_bytes);
}

sw_status sw_heap_verify(sw_heap *heap) {
    audit a = {.heap = heap, .status = SW_OK};
    sw_ledger ledger;
    sw_os_lock_acquire(&heap->lock);
    bool whole = sw_walk_spans(heap, check_span, &a);
    if (whole && a.status == SW_OK) check_lists(&a);
    if (whole && a.status == SW_OK) check_pages(&a);
    sw_os_lock_release(&heap->lock);
    if (a.status == SW_OK && sw_heap_ledger(heap, &ledger, NULL, 0) == SW_OK)
        check_identity(&a, &ledger);
    return a.status;
}

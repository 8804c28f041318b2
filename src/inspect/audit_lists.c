/* SPDX-License-Identifier: Apache-2.0 */
/* Verify: lists of spans, caches, the stacks of announced frees, unused records. */
#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/checks.h"
#include "inspect/audit.h"

#include "heap/heap.h"

/* --- lists ------------------------------------------------------------------------------------ */

/* Checks that every member has the state, class and owner that belong to the list, that the links
 * in both directions agree, and that the count is right. Returns the number of members; *idle: how
 * many of these are marked as idle. */
static uint64_t check_list(sw_audit *a, const sw_span_list *list, sw_span_state state,
                           uint32_t span_class, const sw_cache *owner, uint32_t *idle) {
    uint32_t count = 0, previous = 0;
    *idle = 0;
    for (uint32_t id = list->head; id != 0 && a->status == SW_OK && count <= list->count; count++) {
        if (!sw_audit_is_span(a, id)) {
            SW_BROKEN(a, "list of span class %u: span %u does not exist", span_class, id);
            return count;
        }
        const sw_span *span = sw_space_span(a->heap->space, id);
        if (span->state != state || span->span_class != span_class ||
            sw_space_cold(a->heap->space, span)->prev != previous || sw_span_owner(span) != owner ||
            sw_space_cold(a->heap->space, span)->heap != a->heap) {
            SW_BROKEN(a, "list of span class %u: span at page %u does not belong there", span_class,
                      sw_space_cold(a->heap->space, span)->page);
            return count;
        }
        *idle += span->idle;
        previous = id;
        id = sw_space_cold(a->heap->space, span)->next;
    }
    if (a->status == SW_OK && count != list->count)
        SW_BROKEN(a, "list of span class %u: %u spans, counted as %u", span_class, count,
                  list->count);
    sw_audit_rule(a, "span list", sw_span_list_check(list));
    return count;
}

/* --- caches ----------------------------------------------------------------------------------- */

static void check_slot(sw_audit *a, const sw_cache *cache, uint32_t span_class) {
    const sw_cache_bin *bin = &cache->bins[span_class];
    const sw_span *span = bin->span;
    const sw_space *space = a->heap->space;
    uintptr_t offset = (uintptr_t)span - (uintptr_t)space->view.spans;
    bool good;
    if (span == NULL) {
        good = bin->word == &sw_sentinel_word && bin->base == SW_NO_BASE;
    } else {
        good = offset % sizeof *span == 0 && offset / sizeof *span <= UINT32_MAX &&
               sw_audit_is_span(a, (uint32_t)(offset / sizeof *span)) &&
               span->state == SW_SPAN_CURRENT && sw_span_owner(span) == cache &&
               span->span_class == span_class;
        uintptr_t at = (uintptr_t)bin->word - (uintptr_t)span->words;
        good = good && at % sizeof(sw_word) == 0 &&
               at / sizeof(sw_word) < sw_span_word_count(span) &&
               bin->base == sw_span_word_base(span, bin->word, bin->bytes);
    }
    if (!good)
        SW_BROKEN(a, "cache %u: span class %u does not point into its current span",
                  cache->cold->number, span_class);
    else
        sw_audit_rule(a, "bin", sw_cache_bin_check(bin));
}

/* Checks the bin, and that every free slot of a full span has its bit in `local` and has a hint. */
static void check_full(sw_audit *a, const sw_cache *cache, uint32_t span_class) {
    const sw_space *space = a->heap->space;
    const sw_cache_bin *bin = &cache->bins[span_class];
    uint32_t max = sw_heap_hints_max(a->heap, span_class);
    if (bin->hints != sw_cache_hints(cache, span_class) || bin->hinted_max != max ||
        bin->hinted % sizeof(sw_hint) != 0 || bin->hinted > max ||
        bin->bytes != a->heap->table->classes[span_class / 2].size) {
        SW_BROKEN(a, "cache %u: bin of span class %u is damaged", cache->cold->number, span_class);
        return;
    }
    for (uint32_t id = cache->cold->full[span_class].head; id != 0 && a->status == SW_OK;) {
        const sw_span *span = sw_space_span(space, id);
        id = sw_space_cold(space, span)->next;
        for (uint32_t k = 0; k < sw_span_word_count(span); k++) {
            uint64_t free_bits = sw_word_free(&span->words[k]);
            uint64_t local = sw_word_local(&span->words[k]) & ~sw_span_padding(span, k);
            for (uint64_t bits = free_bits | local; bits != 0; bits &= bits - 1)
                if (free_bits != 0 || !sw_hint_names(cache, span, k * 64 + sw_ctz(bits)))
                    SW_BROKEN(a, "span at page %u: full, with a free slot and no hint",
                              sw_space_cold(a->heap->space, span)->page);
        }
    }
}

/* Returns whether a hint points to a slot of a span that the cache owns. The slot need not be free,
 * because a hint may be out of date. */
static bool leads_to_own(const sw_audit *a, const sw_cache *cache, uint32_t span_class,
                         const sw_hint *hint) {
    const uint32_t *entry = sw_space_entry(a->heap->space, hint->at);
    if (entry == NULL || !sw_audit_is_span(a, *entry)) return false;
    const sw_span *span = sw_space_span(a->heap->space, *entry);
    return span->state != SW_SPAN_LARGE && sw_span_owner(span) == cache &&
           span->span_class == span_class && hint->slot < span->slots &&
           hint->word == &span->words[hint->slot / 64] &&
           hint->at == span->base + (uintptr_t)hint->slot * cache->bins[span_class].bytes;
}

static void check_hints(sw_audit *a, const sw_cache *cache, uint32_t span_class) {
    const sw_cache_bin *bin = &cache->bins[span_class];
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        if (a->status == SW_OK && !leads_to_own(a, cache, span_class, hint))
            SW_BROKEN(a, "cache %u: a hint of span class %u leads to no slot of its spans",
                      cache->cold->number, span_class);
}

static bool has_view(const sw_cache *cache, const sw_heap *heap) {
    const sw_space_view view = sw_heap_view(heap);
    return cache->base == view.base && cache->frames <= view.frames &&
           cache->page_map == view.page_map && cache->spans == view.spans &&
           cache->table == heap->table && cache->mode == heap->mode &&
           cache->small_map == heap->table->small_map &&
           cache->plain_end == sw_heap_plain_end(heap);
}

/* Returns whether the fields of a cache are those of an open or of a closed one: a closed cache has
 * the mark of an ended handle, and its fields send every fast path to its slow path. */
static bool has_fields(const sw_cache *cache, const sw_heap *heap) {
    const struct sw_cache_cold *cold = cache->cold;
    bool open = sw_handle_lives(cache, offsetof(struct sw_cache, mark), SW_HANDLE_CACHE);
    if (cache->heap != heap || cold->closed > 1 || open != (cold->closed == 0)) return false;
    return open ? has_view(cache, heap)
                : cache->frames == 0 && cache->plain_end == 0 && cache->table->max_size == 0;
}

static void check_cache(sw_audit *a, const sw_cache *cache, uint64_t seen[SW_SPAN_STATE_COUNT]) {
    const sw_heap *heap = a->heap;
    const struct sw_cache_cold *cold = cache->cold;
    uint32_t number = cold->number, idle;
    uint64_t spans = 0;
    if (!has_fields(cache, heap) || number == 0 || number > heap->cache_numbers ||
        cold->tiny_used > 16)
        SW_BROKEN(a, "cache %u: its record is damaged", number);
    for (uint32_t i = 0; i < heap->span_classes && a->status == SW_OK; i++) {
        const sw_cache_bin *bin = cold->stripped ? NULL : &cache->bins[i]; /* NULL: no memory */
        if (bin != NULL) check_slot(a, cache, i);
        if (a->status != SW_OK) return;
        uint64_t current = bin != NULL && bin->span != NULL;
        uint64_t full = check_list(a, &cold->full[i], SW_SPAN_FULL, i, cache, &idle);
        uint64_t partial = check_list(a, &cold->partial[i], SW_SPAN_PARTIAL, i, cache, &idle);
        if (a->status == SW_OK && bin != NULL) check_full(a, cache, i);
        if (a->status == SW_OK && bin != NULL) check_hints(a, cache, i);
        if (a->status == SW_OK && idle > heap->options.batch_spans)
            SW_BROKEN(a, "cache %u: span class %u keeps %u wholly free spans, above %u", number, i,
                      idle, heap->options.batch_spans);
        if (a->status == SW_OK && cold->idle_spans[i] != idle)
            SW_BROKEN(a, "cache %u: span class %u keeps %u wholly free spans, counted as %u",
                      number, i, idle, cold->idle_spans[i]);
        bool known = (cold->classes[i / 64] >> i % 64 & 1) != 0;
        if (a->status == SW_OK && !known &&
            (current + full + partial != 0 || (bin != NULL && bin->hinted != 0)))
            SW_BROKEN(a, "cache %u: spans of class %u are not in its set", number, i);
        seen[SW_SPAN_CURRENT] += current;
        seen[SW_SPAN_FULL] += full;
        seen[SW_SPAN_PARTIAL] += partial;
        spans += current + full + partial;
    }
    if (a->status != SW_OK) return; /* the rules follow pointers that are known to be corrupt */
    sw_audit_rule(a, "cache", sw_cache_cold_check(cold, heap->span_classes));
    if (cold->closed == 0) sw_audit_rule(a, "cache", sw_cache_record_check(cache));
    if (a->status == SW_OK && cold->closed && spans != 0)
        SW_BROKEN(a, "cache %u: closed, and owns spans", number);
}

/* Returns whether a node of a remote stack is a half span of this heap with announced frees. */
static bool is_announced(const sw_audit *a, uint32_t node) {
    const sw_space *space = a->heap->space;
    if (!sw_audit_is_span(a, node / 2) || space->cold[node / 2].heap != a->heap) return false;
    const sw_span *span = sw_space_span(space, node / 2);
    if (!sw_span_has_single_word(span)) return space->cold[node / 2].remote_words[node % 2] != 0;
    return node % 2 == 0 && sw_word_remote(&span->own) != 0;
}

/* Checks that every node of a cache's remote stack is a half span with announced frees. Returns
 * their number; it stops after `most` nodes, in case of a cycle. */
static uint64_t check_remote_stack(sw_audit *a, const sw_cache *cache, uint64_t most) {
    const sw_space *space = a->heap->space;
    uint64_t count = 0;
    for (uint32_t node = cache->cold->remote_head; node != 0 && count <= most; count++) {
        if (!is_announced(a, node)) {
            SW_BROKEN(a, "cache %u: span %u on its remote stack has no announced frees",
                      cache->cold->number, node / 2);
            return count;
        }
        node = space->cold[node / 2].remote_next[node % 2];
    }
    return count;
}

/* --- records that nobody uses ----------------------------------------------------------------- */

static void check_records(sw_audit *a) {
    const sw_heap *heap = a->heap;
    uint64_t records = 0, unused = 0;
    uint64_t bytes = sizeof *heap;
    for (uint32_t first = heap->batches; first != 0 && a->status == SW_OK;) {
        records += SW_SPAN_BATCH;
        bytes += SW_SPAN_BATCH * sw_heap_record_bytes(heap);
        if (!sw_audit_is_span(a, first) || records > UINT32_MAX)
            SW_BROKEN(a, "span records: batch %u does not exist", first);
        else
            first = heap->space->cold[first].batch_next;
    }
    for (uint32_t id = heap->free_records; id != 0 && a->status == SW_OK; unused++) {
        if (!sw_audit_is_span(a, id) || sw_space_span(heap->space, id)->state != SW_SPAN_UNUSED ||
            heap->space->cold[id].heap != NULL || unused > records)
            SW_BROKEN(a, "span records: record %u is not free", id);
        else
            id = heap->space->cold[id].next;
    }
    if (a->status == SW_OK && (unused + a->records != records || bytes != heap->pages.fixed_bytes))
        SW_BROKEN(a, "span records: %llu used and %llu free do not make %llu",
                  (unsigned long long)a->records, (unsigned long long)unused,
                  (unsigned long long)records);
}

/* Checks that each shelf is empty or has a freed large object of its kind. Returns their number. */
static uint64_t check_large_places(sw_audit *a, const sw_cache *cache) {
    const sw_space *space = a->heap->space;
    uint64_t count = 0;
    for (uint32_t i = 0; i < SW_LARGE_SHELVES; i++) {
        uint64_t entry = cache->cold->shelves[i];
        uint32_t id = (uint32_t)entry;
        if (id == 0) continue;
        const sw_span *span = sw_space_span(space, id);
        if (!sw_audit_is_span(a, id) || space->cold[id].heap != a->heap ||
            span->state != SW_SPAN_LARGE || sw_span_large_lives(span) || !span->needzero ||
            sw_shelf_index(space->cold[id].pages) != i - i % SW_LARGE_WAYS ||
            (entry ^ id) != sw_shelf_kind(space->cold[id].pages, (span->span_class & 1) != 0) ||
            cache->cold->closed) {
            SW_BROKEN(a, "cache %u: shelf %u holds no large object of its own", cache->cold->number,
                      i);
            return count;
        }
        count++;
    }
    return count;
}

/* Checks that every cache of a list is open or closed, as `closed` says, and links back to the
 * previous cache. Returns the number of caches. */
static uint64_t check_cache_list(sw_audit *a, const sw_cache *list, uint32_t closed) {
    const sw_cache *previous = NULL;
    uint64_t count = 0;
    for (const sw_cache *cache = list; cache != NULL && a->status == SW_OK;
         cache = cache->cold->list_next) {
        if (cache->cold->closed != closed || cache->cold->list_previous != previous ||
            ++count > a->heap->cache_numbers)
            SW_BROKEN(a, "cache %u: does not belong to the list of %s caches", cache->cold->number,
                      closed != 0 ? "closed" : "open");
        previous = cache;
    }
    return count;
}

static void check_caches(sw_audit *a, uint64_t seen[SW_SPAN_STATE_COUNT]) {
    uint64_t halves = 0, shelved = 0, count = 0;
    for (const sw_cache *cache = a->heap->caches; cache != NULL && a->status == SW_OK;
         cache = cache->cold->next) {
        check_cache(a, cache, seen);
        if (a->status == SW_OK) halves += check_remote_stack(a, cache, a->halves);
        if (a->status == SW_OK) shelved += check_large_places(a, cache);
        if (++count > a->heap->cache_numbers) SW_BROKEN(a, "caches: their list has no end");
    }
    uint64_t open = check_cache_list(a, a->heap->open_caches, 0);
    uint64_t handles = check_cache_list(a, a->heap->closed_handles, 1);
    uint64_t whole = check_cache_list(a, a->heap->closed_caches, 1);
    uint64_t closed = check_cache_list(a, a->heap->stripped_caches, 1) + whole + handles;
    if (a->status == SW_OK && open + closed != count)
        SW_BROKEN(a, "caches: %llu are open and %llu closed, of %llu", (unsigned long long)open,
                  (unsigned long long)closed, (unsigned long long)count);
    else if (a->status == SW_OK && handles != a->heap->closed_handle_count)
        SW_BROKEN(a, "caches: %llu closed ones wait, counted as %u", (unsigned long long)handles,
                  a->heap->closed_handle_count);
    else if (a->status == SW_OK && whole != a->heap->closed_count)
        SW_BROKEN(a, "caches: %llu closed ones keep their record, counted as %u",
                  (unsigned long long)whole, a->heap->closed_count);
    else if (a->status == SW_OK && open != a->heap->cache_count)
        SW_BROKEN(a, "caches: %llu are open, counted as %u", (unsigned long long)open,
                  a->heap->cache_count);
    else if (a->status == SW_OK && halves != a->halves)
        SW_BROKEN(a, "caches: %llu halves of spans have frees announced, %llu are on stacks",
                  (unsigned long long)a->halves, (unsigned long long)halves);
    else if (a->status == SW_OK && shelved != a->shelved)
        SW_BROKEN(a, "caches: %llu large objects are freed, %llu are on shelves",
                  (unsigned long long)a->shelved, (unsigned long long)shelved);
}

/* Checks that the kept span of a class is an idle span of that class, and that no central span of
 * the class has other free slots. Returns the pages of the kept span; 0: none. */
static uint64_t check_kept(sw_audit *a, uint32_t span_class) {
    const sw_heap *heap = a->heap;
    const sw_space *space = heap->space;
    uint32_t id = heap->kept[span_class];
    if (id == 0) return 0;
    bool good = sw_audit_is_span(a, id) && space->cold[id].heap == heap &&
                sw_space_span(space, id)->state == SW_SPAN_KEPT &&
                sw_space_span(space, id)->span_class == span_class &&
                sw_span_is_empty(sw_space_span(space, id)) &&
                heap->central_partial[span_class].count == 0;
    if (!good)
        SW_BROKEN(a, "span class %u: span %u is kept, and it is not the only idle one", span_class,
                  id);
    return good ? space->cold[id].pages : 0;
}

/* Checks that central_idle is set if a central span is wholly free; else it is never released. */
static void check_idle(sw_audit *a, const sw_span_list *partial) {
    for (uint32_t id = partial->head; id != 0 && a->heap->central_idle == 0;) {
        const sw_span *span = sw_space_span(a->heap->space, id);
        id = sw_space_cold(a->heap->space, span)->next;
        if (sw_span_is_empty(span))
            SW_BROKEN(a, "span at page %u: wholly free, but central_idle is not set",
                      sw_space_cold(a->heap->space, span)->page);
    }
}

void sw_audit_lists(sw_audit *a) {
    const sw_heap *heap = a->heap;
    uint64_t seen[SW_SPAN_STATE_COUNT] = {0};
    uint64_t kept_pages = 0;
    uint32_t idle;
    check_caches(a, seen);
    for (uint32_t i = 0; i < heap->span_classes && a->status == SW_OK; i++) {
        seen[SW_SPAN_CENTRAL_PARTIAL] +=
            check_list(a, &heap->central_partial[i], SW_SPAN_CENTRAL_PARTIAL, i, NULL, &idle);
        if (a->status == SW_OK) kept_pages += check_kept(a, i);
        seen[SW_SPAN_KEPT] += heap->kept[i] != 0;
        if (a->status == SW_OK) check_idle(a, &heap->central_partial[i]);
        if (a->status == SW_OK)
            seen[SW_SPAN_CENTRAL_FULL] +=
                check_list(a, &heap->central_full[i], SW_SPAN_CENTRAL_FULL, i, NULL, &idle);
    }
    if (a->status == SW_OK && kept_pages != heap->kept_pages)
        SW_BROKEN(a, "%llu pages of spans are kept, counted as %u", (unsigned long long)kept_pages,
                  heap->kept_pages);
    for (int state = SW_SPAN_CURRENT; state < SW_SPAN_LARGE && a->status == SW_OK; state++)
        if (seen[state] != a->by_state[state])
            SW_BROKEN(a, "%llu spans in state %d, but %llu in lists",
                      (unsigned long long)a->by_state[state], state,
                      (unsigned long long)seen[state]);
    if (a->status == SW_OK) check_records(a);
}

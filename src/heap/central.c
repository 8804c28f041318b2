/* SPDX-License-Identifier: Apache-2.0 */
/* Spans without owner: their records, the choice among partial ones, and the central lists. */
#include "heap/central.h"

#include <string.h>

#include "base/base.h"
#include "heap/cache.h"
#include "heap/checks.h"
#include "heap/heap.h"
#include "heap/target.h"

/* --- span records ----------------------------------------------------------------------------- */

/* Span records: taken from the space in batches, linked while they are unused. */

bool sw_record_add_batch(sw_heap *heap) {
    uint32_t first = sw_space_take_spans(heap->space);
    if (first == 0) return false;
    for (uint32_t id = first; id < first + SW_SPAN_BATCH; id++) {
        sw_span *span = sw_space_span(heap->space, id);
        sw_span_clear(span);
        sw_space_cold(heap->space, span)->next =
            id + 1 < first + SW_SPAN_BATCH ? id + 1 : heap->free_records;
    }
    sw_space_cold(heap->space, sw_space_span(heap->space, first))->batch_next = heap->batches;
    heap->batches = first;
    heap->free_records = first;
    sw_set_counter(&heap->pages.fixed_bytes,
                   heap->pages.fixed_bytes + SW_SPAN_BATCH * sw_heap_record_bytes(heap));
    return true;
}

void sw_record_drop(sw_heap *heap, sw_span *span) {
    if (sw_heap_is_collected(heap)) heap->hooks->gone(heap, span);
    sw_span_clear(span);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    cold->heap = NULL;
    cold->next = heap->free_records;
    heap->free_records = sw_space_span_id(heap->space, span);
}

/* --- placement -------------------------------------------------------------------------------- */

/* --- what a look sees --------------------------------------------------------------------------
 * sw_span_cold.looked of a span in a list has its age in the upper bits, in choices since the span
 * entered the list, and the number of its live objects in the lower ones. No cache allocates from a
 * span in such a list, so that number only becomes smaller. */

enum { LIVE_BITS = 14, AGE_MAX = (1 << (32 - LIVE_BITS)) - 1 };
_Static_assert(SW_TABLE_SLOTS_MAX < 1 << LIVE_BITS, "live objects of a span");

static uint32_t live_of(uint32_t looked) { return looked & ((1u << LIVE_BITS) - 1); }
static uint32_t age_of(uint32_t looked) { return looked >> LIVE_BITS; }

static uint32_t band_of(uint32_t age) {
    uint32_t band = sw_log2_floor(age + 1ull) / 2;
    return band < SW_HISTORY_AGES ? band : SW_HISTORY_AGES - 1;
}

/* --- history ---------------------------------------------------------------------------------- */

static uint32_t load(const uint32_t *count) { return __atomic_load_n(count, __ATOMIC_RELAXED); }
static void store(uint32_t *count, uint32_t value) {
    __atomic_store_n(count, value, __ATOMIC_RELAXED);
}

/* The broken invariant, or NULL (base/base.h). */
static const char *sw_history_check(const sw_history *history) {
    const char *broken = NULL;
    for (uint32_t i = 0; i < SW_HISTORY_AGES && broken == NULL; i++)
        broken = SW_RULE(load(&history->seen[i]) < SW_HISTORY_MAX)
                     ?: SW_RULE(load(&history->gone[i]) < SW_HISTORY_MAX);
    return broken;
}

/* Adds to the history: of objects in spans of this age, `seen` were live and `gone` of these were
 * freed before the next look. */
static void note(sw_history *history, uint32_t age, uint32_t seen, uint32_t gone) {
    uint32_t band = band_of(age);
    uint32_t all_seen = load(&history->seen[band]) + seen;
    uint32_t all_gone = load(&history->gone[band]) + gone;
    uint32_t share = all_seen >= SW_HISTORY_MAX || all_gone >= SW_HISTORY_MAX ? 2 : 1;
    store(&history->seen[band], all_seen / share);
    store(&history->gone[band], all_gone / share);
}

/* Computes the expected remaining life of an object for each age, in sixteenths of a choice: seen /
 * gone. Four deaths at the mean rate of all ages are added to each age, so that an age without a
 * history has that rate. */
static void read_lifetimes(const sw_history *history, uint64_t lifetimes[SW_HISTORY_AGES]) {
    enum { ADDED = 4 };
    uint64_t seen = 1, gone = 1;
    for (uint32_t i = 0; i < SW_HISTORY_AGES; i++) {
        seen += load(&history->seen[i]);
        gone += load(&history->gone[i]);
    }
    uint64_t mean = 16 * seen / gone;
    for (uint32_t i = 0; i < SW_HISTORY_AGES; i++)
        lifetimes[i] = (16ull * load(&history->seen[i]) + ADDED * mean) /
                       (load(&history->gone[i]) + (uint64_t)ADDED);
}

/* The harmonic number H(n) in steps of ln 2 / 16: ln n, from the position of the highest bit of n
 * and the four bits after it, plus Euler's constant (13 steps). If n objects die at the same rate,
 * the last one dies after H(n) mean lifetimes. */
static uint64_t harmonic(uint32_t n) {
    if (n == 0) return 0;
    uint32_t whole = sw_log2_floor(n);
    uint32_t part = (uint32_t)(((uint64_t)n << 4 >> whole) & 15);
    return 16ull * whole + part + 13;
}

/* Visits a span of a list: adds the objects freed since the last visit to the history. Returns an
 * estimate of the time until the span is empty; only the order of these values matters. */
static uint64_t look(sw_space *space, const sw_span *span, sw_history *history,
                     const uint64_t lifetimes[SW_HISTORY_AGES]) {
    sw_span_cold *cold = sw_space_cold(space, span);
    uint32_t live = span->slots - sw_span_free_slots(span), age = 0;
    uint32_t before = live_of(cold->looked);
    if (before != 0) {
        age = age_of(cold->looked);
        note(history, age, before, before > live ? before - live : 0);
        if (age < AGE_MAX) age++;
    }
    cold->looked = age << LIVE_BITS | live;
    return harmonic(live) * lifetimes[band_of(age)];
}

/* In a heap with histories, when an idle span is released: adds the objects that were live at the
 * last visit, which have been freed, to the history. */
static void sw_placement_gone(sw_heap *heap, sw_span *span) {
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t before = live_of(cold->looked);
    if (before != 0) note(&heap->histories[span->span_class], age_of(cold->looked), before, before);
    cold->looked = 0;
}

/* --- policies --------------------------------------------------------------------------------- */

/* Compares logical page numbers instead of addresses, so that a dry heap makes the same choice. */
static bool is_lower(sw_space *space, const sw_span *a, const sw_span *b) {
    return sw_space_cold(space, a)->page < sw_space_cold(space, b)->page;
}

/* True if the policy (lowest address, or fullest) prefers a to b. */
static bool better(sw_space *space, const sw_span *a, const sw_span *b, sw_placement placement) {
    if (placement == SW_PLACE_FULLEST) {
        uint32_t free_a = sw_span_free_slots(a), free_b = sw_span_free_slots(b);
        if (free_a != free_b) return free_a < free_b;
    }
    return is_lower(space, a, b);
}

/* The span of a list that is expected to be empty last; of several equal ones, that of the lowest
 * address. */
static sw_span *choose_lasting(const sw_span_list *list, sw_space *space) {
    sw_span *best = sw_space_span(space, list->head);
    sw_heap *heap = sw_space_cold(space, best)->heap;
    sw_history *history = &heap->histories[best->span_class];
    sw_check2(sw_history_check(history));
    uint64_t lifetimes[SW_HISTORY_AGES], latest = 0;
    read_lifetimes(history, lifetimes);
    for (uint32_t id = list->head; id != 0; id = space->cold[id].next) {
        sw_span *span = sw_space_span(space, id);
        uint64_t end = look(space, span, history, lifetimes);
        if (end > latest || (end == latest && is_lower(space, span, best))) {
            best = span;
            latest = end;
        }
    }
    sw_space_cold(space, best)->looked = 0; /* the caller removes it from the list */
    return best;
}

sw_span *sw_placement_choose(const sw_span_list *list, sw_space *space, sw_placement placement) {
    if (list->head == 0) return NULL;
    sw_span *best = sw_space_span(space, list->head);
    if (placement == SW_PLACE_LIFO) return best;
    if (placement == SW_PLACE_LASTING) return choose_lasting(list, space);
    for (uint32_t id = space->cold[list->head].next; id != 0; id = space->cold[id].next) {
        sw_span *span = sw_space_span(space, id);
        if (better(space, span, best, placement)) best = span;
    }
    return best;
}

/* --- central lists ---------------------------------------------------------------------------- */

/* --- members of the lists --------------------------------------------------------------------- */

/* Removes a span without owner from its list. */
static void unlist(sw_heap *heap, sw_span *span) {
    sw_span_list *list = span->state == SW_SPAN_CENTRAL_PARTIAL
                             ? &heap->central_partial[span->span_class]
                             : &heap->central_full[span->span_class];
    sw_span_list_remove(list, heap->space, span);
}

/* Puts the span into the list of partial ones. If a span of the class is kept, it is released: it
 * is better to place new objects in a span that already has live objects. */
static void list_partial(sw_heap *heap, sw_span *span) {
    sw_span *kept = sw_central_take_kept(heap, span->span_class);
    if (sw_unlikely(kept != NULL)) sw_central_release(heap, kept);
    sw_span_enter(span, SW_SPAN_CENTRAL_PARTIAL);
    sw_span_list_push(&heap->central_partial[span->span_class], heap->space, span);
}

/* --- giving up -------------------------------------------------------------------------------- */

void sw_central_release(sw_heap *heap, sw_span *span) {
    uint32_t size = sw_slot_bytes(heap->table, span);
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page, pages = cold->pages;
    /* The order of these steps matters. Once the page map says that the span was released, no cache
     * makes it its hazard. A cache that has cleared its hazard has set the bit of its free before,
     * so the bits are read last. */
    sw_pages_map(&heap->pages, page, pages, SW_SPAN_RELEASED);
    bool stays = sw_heap_is_collected(heap) && !heap->hooks->may_release(heap);
    if (sw_unlikely(stays || sw_hazard_is_on(heap, span) || !sw_span_is_empty(span))) {
        sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        list_partial(heap, span);
        heap->central_idle = 1;
        return;
    }
    if (!sw_span_has_single_word(span))
        sw_meta_free(&heap->meta, span->words, sw_words_bytes(size, span->slots));
    if (cold->slack != NULL)
        sw_meta_free(heap->instrument, cold->slack, sw_slack_bytes(size, span->slots));
    sw_heap_add_class_pages(heap, span->span_class, -(int64_t)pages);
    if (sw_unlikely(heap->histories != NULL)) sw_placement_gone(heap, span);
    sw_record_drop(heap, span);
    sw_pages_free(&heap->pages, page, pages);
    sw_verify_note(heap, SW_VERIFY_RELEASE);
}

void sw_central_release_idle(sw_heap *heap) {
    if (heap->central_idle == 0) return;
    heap->central_idle = 0;
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        sw_span_list *list = &heap->central_partial[i];
        for (uint32_t id = list->head; id != 0;) {
            sw_span *span = sw_space_span(heap->space, id);
            id = sw_space_cold(heap->space, span)->next;
            if (!sw_span_is_empty(span)) continue;
            if (sw_hazard_is_on(heap, span)) {
                heap->central_idle = 1;
                continue;
            }
            unlist(heap, span);
            sw_central_release(heap, span);
        }
    }
}

/* --- kept spans ------------------------------------------------------------------------------- */

static uint32_t kept_of(const sw_heap *heap, uint32_t span_class) {
    return __atomic_load_n(&heap->kept[span_class], __ATOMIC_RELAXED);
}

/* Whether the span may be kept. No span is kept in a collected heap, nor under placement policies
 * other than LIFO, which choose the next span themselves. */
static bool may_keep(const sw_heap *heap, const sw_span *span, uint32_t pages) {
    uint32_t shift = heap->table->page_shift;
    return heap->options.placement == SW_PLACE_LIFO && (heap->mode & SW_MODE_COLLECTED) == 0 &&
           heap->central_partial[span->span_class].head == 0 &&
           kept_of(heap, span->span_class) == 0 && pages << shift <= SW_KEPT_SPAN_BYTES &&
           (sw_heap_kept_pages(heap) + pages) << shift <= SW_KEPT_BYTES && sw_span_is_empty(span);
}

bool sw_central_keep(sw_heap *heap, sw_span *span) {
    uint32_t pages = sw_space_cold(heap->space, span)->pages;
    if (!may_keep(heap, span, pages)) return false;
    sw_span_enter(span, SW_SPAN_KEPT);
    __atomic_fetch_add(&heap->kept_pages, pages, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->kept[span->span_class], sw_space_span_id(heap->space, span),
                     __ATOMIC_RELEASE);
    return true;
}

static void note_taken(sw_heap *heap, const sw_span *span) {
    __atomic_fetch_sub(&heap->kept_pages, sw_space_cold(heap->space, span)->pages,
                       __ATOMIC_RELAXED);
}

sw_span *sw_central_take_kept(sw_heap *heap, uint32_t span_class) {
    if (kept_of(heap, span_class) == 0) return NULL;
    uint32_t id = __atomic_exchange_n(&heap->kept[span_class], 0, __ATOMIC_ACQUIRE);
    if (id == 0) return NULL;
    sw_span *span = sw_space_span(heap->space, id);
    note_taken(heap, span);
    return span;
}

bool sw_central_remove_kept(sw_heap *heap, sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    if (!__atomic_compare_exchange_n(&heap->kept[span->span_class], &id, 0, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return false;
    note_taken(heap, span);
    sw_central_list_full(heap, span);
    return true;
}

/* Releases up to `count` kept spans of at least `pages` pages. (`pages` of a kept span may be read
 * before the span is taken: only the holder of the lock changes it.) */
static uint32_t give_up(sw_heap *heap, uint32_t pages, uint32_t count) {
    uint32_t given_up = 0;
    for (uint32_t i = heap->span_classes; i-- > 0 && given_up < count;) {
        uint32_t id = kept_of(heap, i);
        if (id == 0 || heap->space->cold[id].pages < pages) continue;
        sw_span *span = sw_central_take_kept(heap, i);
        if (span == NULL) continue;
        sw_central_release(heap, span);
        given_up++;
    }
    return given_up;
}

bool sw_central_give_up_kept(sw_heap *heap, uint32_t pages) {
    if (sw_heap_kept_pages(heap) < pages || heap->kept_credit == 0) return false;
    if (give_up(heap, pages, 1) == 0) return false;
    heap->kept_credit--;
    return true;
}

void sw_central_release_kept(sw_heap *heap) {
    if (sw_heap_kept_pages(heap) != 0) (void)give_up(heap, 0, UINT32_MAX);
}

void sw_central_forget_kept(sw_heap *heap) {
    memset(heap->kept, 0, heap->span_classes * sizeof *heap->kept);
    heap->kept_pages = 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

sw_span *sw_central_take_partial(sw_heap *heap, uint32_t span_class) {
    sw_span_list *partial = &heap->central_partial[span_class];
    sw_span *span = sw_placement_choose(partial, heap->space, heap->options.placement);
    if (span != NULL) unlist(heap, span);
    return span;
}

void sw_central_list_full(sw_heap *heap, sw_span *span) {
    sw_span_enter(span, SW_SPAN_CENTRAL_FULL);
    sw_span_list_push(&heap->central_full[span->span_class], heap->space, span);
}

void sw_central_put(sw_heap *heap, sw_span *span) {
    if (sw_span_is_empty(span)) {
        sw_central_release(heap, span);
    } else if (sw_span_has_free(span)) {
        list_partial(heap, span);
    } else {
        sw_central_list_full(heap, span);
    }
}

void sw_central_drain(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled) {
    unlist(heap, span);
    sw_span_drain(heap->space, span, half, doubled);
    sw_central_put(heap, span);
}

sw_swept sw_central_sweep(sw_heap *heap, sw_span *span, const uint64_t *marks) {
    sw_swept swept = sw_span_sweep(span, marks);
    if (swept.freed == 0) return swept;
    unlist(heap, span);
    sw_span_dirty(span);
    sw_central_put(heap, span);
    return swept;
}

sw_remote_result sw_central_free(sw_heap *heap, sw_span *span, uint32_t slot) {
    sw_word *word = &span->words[slot / 64];
    if (!sw_span_slot_live(span, slot)) return SW_REMOTE_DOUBLE;
    unlist(heap, span);
    sw_word_set_local(word, sw_word_local(word) | 1ull << (slot % 64));
    sw_span_dirty(span);
    sw_central_put(heap, span);
    return SW_REMOTE_DONE;
}

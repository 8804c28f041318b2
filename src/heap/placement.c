/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/placement.h"

#include "base/assert.h"

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

const char *sw_history_check(const sw_history *history) {
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

/* Computes for each age how long an object will live on, in sixteenths of a choice: seen / gone. To
 * each age four deaths at the mean rate of all ages are added, so that an age without a history has
 * that rate. */
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

/* Looks at a span of a list: adds the objects that were freed since the last look to the history.
 * Returns an estimate of how long it takes until the span is empty; only the order of these values
 * counts. */
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

void sw_placement_gone(sw_heap *heap, sw_span *span) {
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t before = live_of(cold->looked);
    if (before != 0) note(&heap->histories[span->span_class], age_of(cold->looked), before, before);
    cold->looked = 0;
}

/* --- policies --------------------------------------------------------------------------------- */

/* Logical page numbers stand for addresses, so that the choice is the same in a dry heap. */
static bool is_lower(sw_space *space, const sw_span *a, const sw_span *b) {
    return sw_space_cold(space, a)->page < sw_space_cold(space, b)->page;
}

/* True when the policy (lowest address, or fullest) prefers a to b. */
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

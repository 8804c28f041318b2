/* SPDX-License-Identifier: Apache-2.0 */
/* The span that serves the next request: a partial one by the placement policy, or an idle one of a
 * medium class. Idle spans serve their class without the lock, count as cached, and are released when
 * pages are needed. */
#include <stdbool.h>

#include "check.h"
#include "faults.h"
#include "heap/heap.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

/* --- placement policies ----------------------------------------------------------------------- */

enum { PAGE = 8192, TEN_SLOT = 800, SLOTS = 10, SPANS = 5 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;
static char *slots[SPANS][SLOTS];

/* Spans 0 to 4, all full, the last one current. Objects with pointers: these get no hints. */
static void fill(sw_placement placement) {
    static const sw_class_spec specs[] = {{TEN_SLOT, 1, 0}};
    table = table_of("ten", PAGE, specs, 1);
    heap = heap_with(
        (heap_setting){.table = table, .placement = placement, .dry = 1, .manual_clock = 1});
    cache = cache_of(heap);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < SLOTS; i++) slots[s][i] = sw_cache_alloc(cache, TEN_SLOT, SW_SCAN);
    for (int s = 1; s < SPANS; s++) CHECK(slots[s][0] == slots[0][0] + s * PAGE);
}

static void free_some(int span, int count) {
    for (int i = 0; i < count; i++) sw_cache_free(cache, slots[span][i]);
}

static int span_of_next(void) {
    char *p = sw_cache_alloc(cache, TEN_SLOT, SW_SCAN);
    CHECK(p != NULL);
    return (int)((p - slots[0][0]) / PAGE);
}

static void end_placement(void) {
    sw_cache_close(cache);
    heap_end(heap);
    sw_table_destroy(table);
}

/* Span `first` serves until it is full, then `second`, then `third`. */
static void serves(const int order[3], const int holes[3]) {
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < holes[order[k]]; i++) CHECK_EQ(span_of_next(), order[k]);
    CHECK_EQ(span_of_next(), SPANS); /* a fresh one */
}

/* central: the cache closes, another takes its spans over. */
static void placement(sw_placement placement, const int holes[3], const int order[3],
                      bool central) {
    fill(placement);
    for (int s = 0; s < 3; s++) free_some(s, holes[s]);
    if (central) {
        sw_cache_close(cache);
        cache = cache_of(heap);
    }
    serves(order, holes);
    end_placement();
}

/* --- lasting, by hand ------------------------------------------------------------------------- */

enum { YOUNG = 1, SECOND = 2, OLD = 3, LAST = SPANS - 1 };

/* A choice, at which all partial spans are looked at. It falls on a span that is full but for one
 * slot: the first and the last in turns, since a current span is not chosen. */
static void choose_once(int *turn) {
    int span = (*turn)++ % 2 == 0 ? 0 : LAST;
    sw_cache_free(cache, slots[span][0]);
    CHECK_EQ(span_of_next(), span);
}

/* One object lives in OLD and one in a younger span of a lower address. Where the class's history has
 * seen objects in young spans die, OLD lasts longer; where it has not, the younger one does.
 *
 * Four choices have looked at OLD: as a new span, then at ages 0, 1 and 2, each time one object of which
 * none was gone: of the first ages 3 seen, 0 gone.
 *  no one saw: YOUNG comes with its one object. A choice looks at both. Then of the first ages 3 seen, 0
 *    gone, of the next ones 1 and 0; the mean lifetime is 16 * 5 / 1 = 80 sixteenths, those of the two
 *    ages are (16 * 3 + 4 * 80) / 4 = 92 and (16 + 320) / 4 = 84: the younger one lasts.
 *  seen: YOUNG comes with 8 objects, a choice looks, 7 are freed, and a choice looks again. Of the first
 *    ages 3 + 8 seen and 7 gone, of the next ones 2 and 0. Mean 16 * 14 / 8 = 28; lifetimes (176 + 112) /
 *    11 = 26 and (32 + 112) / 4 = 36: OLD lasts.
 *  given up: a choice looks at the 8, then all are freed, and SECOND comes with one object. 11 seen and 8
 *    gone, 2 and 0; mean 16 * 14 / 9 = 24; lifetimes (176 + 96) / 12 = 22 and (32 + 96) / 4 = 32: OLD. */
typedef enum deaths { NOBODY_SAW, SEEN, GIVEN_UP } deaths;

static void lasting(deaths young, int next) {
    int turn = 0;
    fill(SW_PLACE_LASTING);
    free_some(OLD, SLOTS - 1);
    for (int i = 0; i < 4; i++) choose_once(&turn);
    free_some(YOUNG, 2);
    if (young != NOBODY_SAW) choose_once(&turn);
    for (int i = 2; i < SLOTS - 1; i++) sw_cache_free(cache, slots[YOUNG][i]);
    if (young == GIVEN_UP) {
        sw_cache_free(cache, slots[YOUNG][SLOTS - 1]);
        free_some(SECOND, SLOTS - 1);
    }
    choose_once(&turn);
    CHECK_EQ(span_of_next(), next);
    end_placement();
}

/* --- idle spans of medium classes -------------------------------------------------------------- */

enum { SECOND_NS = 1000000000, MOST = SW_HINTS_MAX }; /* idle spans of one slot of 8 KiB */

static void make(uint64_t limit_bytes, bool dry, bool tracked) {
    /* every span of a class has one length */
    heap = heap_with((heap_setting){.tracked = tracked,
                                    .table = sw_table_go(),
                                    .manual_clock = 1,
                                    .dry = dry,
                                    .limit_bytes = limit_bytes});
    cache = cache_of(heap);
}

/* Turns of the lock. Builds of grade 3 verify the heap in between, each time by one more: there all
 * are 0. */
static uint64_t turns(void) { return SW_CHECK >= 3 ? 0 : locks_of(heap); }

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    heap_end(heap);
}

static void *take(size_t size) {
    void *p = sw_cache_alloc(cache, size, 0);
    CHECK(p != NULL);
    return p;
}

/* Every object is a span of its own. The first n are freed; the last one stays the current span of
 * its class, and its object lives. */
static void *objects[64];
static void free_full(int n) {
    for (int i = 0; i <= n; i++) objects[i] = take(PAGE);
    for (int i = 0; i < n; i++) sw_cache_free(cache, objects[i]);
}

/* The span that was freed last serves first. */
static void serves_its_class(bool dry) {
    make(0, dry, false);
    free_full(3);
    uint64_t before = turns();
    for (int i = 3; i-- > 0;) CHECK(take(PAGE) == objects[i]);
    CHECK_EQ(turns(), before);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.spans, 4);
    CHECK_EQ(l.live_objects, 4);
    CHECK_EQ(l.cached_bytes, 0);
    end();
}

/* --- what is kept ----------------------------------------------------------------------------- */

/* Idle spans are released at the cache's first request for a span after a tick, by a trim, and when
 * the cache closes. */
static void is_cached(bool dry) {
    make(0, dry, false);
    free_full(5);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.spans, 6);
    CHECK_EQ(l.cached_bytes, 5 * PAGE);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.live_objects, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_set_time(heap, SECOND_NS);
    CHECK_EQ(ledger_of(heap).cached_bytes, 5 * PAGE);
    sw_cache_free(cache, take(16));
    CHECK_EQ(ledger_of(heap).cached_bytes,
             PAGE); /* the span of 16 B: it became idle after the tick */
    sw_cache_trim(cache);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    free_full(3);
    CHECK_EQ(ledger_of(heap).cached_bytes, 3 * PAGE);
    sw_cache_trim(cache);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    free_full(3);
    sw_cache_close(cache);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    CHECK_EQ(ledger_of(heap).spans, 3); /* those of the objects that live */
    cache = cache_of(heap);
    end();
}

/* A span of another class takes the pages of an idle one, so that the heap does not grow. */
static void pages_are_used(bool dry) {
    make(0, dry, false);
    free_full(3);
    uint64_t held = ledger_of(heap).held_bytes;
    char *p = take(4096);
    CHECK(p == objects[0]);
    CHECK_EQ(ledger_of(heap).held_bytes, held);
    CHECK_EQ(ledger_of(heap).cached_bytes, 2 * PAGE + 4096);
    end();
}

int main(void) {
    static const int holes[] = {5, 2, 7}, middle_least[] = {1, 0, 2};
    static const int by_address[] = {0, 1, 2}, newest_first[] = {2, 1, 0};
    static const int equal[] = {4, 4, 4}, falling[] = {9, 8, 1}, last_least[] = {2, 1, 0};
    placement(SW_PLACE_LIFO, holes, newest_first, false);
    for (int central = 0; central < 2; central++) {
        placement(SW_PLACE_ADDRESS, holes, by_address, central != 0);
        placement(SW_PLACE_ADDRESS, falling, by_address, central != 0);
        placement(SW_PLACE_FULLEST, holes, middle_least, central != 0);
        placement(SW_PLACE_FULLEST, falling, last_least, central != 0);
        placement(SW_PLACE_FULLEST, equal, by_address, central != 0);
        /* Spans that came together have one age, so the order is that of what lives in them. */
        placement(SW_PLACE_LASTING, holes, middle_least, central != 0);
        placement(SW_PLACE_LASTING, falling, last_least, central != 0);
        placement(SW_PLACE_LASTING, equal, by_address, central != 0);
    }
    lasting(NOBODY_SAW, YOUNG);
    lasting(SEEN, OLD);
    lasting(GIVEN_UP, OLD);
    remember_faults();
    for (int dry = 0; dry < 2; dry++) {
        serves_its_class(dry);
        is_cached(dry);
        pages_are_used(dry);
    }
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which partial span serves next under each placement: of a cache's own spans, and of those that
 * belong to none. Spans of ten slots; three of them have holes, whose numbers tell them apart. */
#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SLOT = 800, SLOTS = 10, SPANS = 5 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;
static char *objects[SPANS][SLOTS];

/* Spans 0 to 4, all full, the last one current. Objects with pointers: these get no hints. */
static void fill(sw_placement placement) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}};
    sw_heap_options options;
    CHECK_EQ(sw_table_create("ten", PAGE, specs, 1, &table), SW_OK);
    sw_heap_options_init(&options);
    options.table = table;
    options.placement = placement;
    options.dry = options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < SLOTS; i++) objects[s][i] = sw_cache_alloc(cache, SLOT, SW_SCAN);
    for (int s = 1; s < SPANS; s++) CHECK(objects[s][0] == objects[0][0] + s * PAGE);
}

static void empty(int span, int slots) {
    for (int i = 0; i < slots; i++) sw_cache_free(cache, objects[span][i]);
}

static int span_of_next(void) {
    char *p = sw_cache_alloc(cache, SLOT, SW_SCAN);
    CHECK(p != NULL);
    return (int)((p - objects[0][0]) / PAGE);
}

static void end(void) {
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
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
    for (int s = 0; s < 3; s++) empty(s, holes[s]);
    if (central) {
        sw_cache_close(cache);
        CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    }
    serves(order, holes);
    end();
}

/* --- lasting, by hand -------------------------------------------------------------------------- */

enum { YOUNG = 1, SECOND = 2, OLD = 3, LAST = SPANS - 1 };

/* A choice, at which all partial spans are looked at. It falls on a span that is full but for one slot:
 * the first and the last in turns, since a current span is not chosen. */
static void choose_once(int *turn) {
    int span = (*turn)++ % 2 == 0 ? 0 : LAST;
    sw_cache_free(cache, objects[span][0]);
    CHECK_EQ(span_of_next(), span);
}

/* One object lives in OLD and one in a younger span of a lower address. Where the class's history has
 * seen objects in young spans die, OLD lasts longer; where it has not, the younger one does.
 *
 * Four choices have looked at OLD: as a new span, then at ages 0, 1 and 2, each time one object of which
 * none was gone: of the first ages 3 seen, 0 gone.
 *  nobody saw: YOUNG comes with its one object. A choice looks at both. Then of the first ages 3 seen, 0
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
    empty(OLD, SLOTS - 1);
    for (int i = 0; i < 4; i++) choose_once(&turn);
    empty(YOUNG, 2);
    if (young != NOBODY_SAW) choose_once(&turn);
    for (int i = 2; i < SLOTS - 1; i++) sw_cache_free(cache, objects[YOUNG][i]);
    if (young == GIVEN_UP) {
        sw_cache_free(cache, objects[YOUNG][SLOTS - 1]);
        empty(SECOND, SLOTS - 1);
    }
    choose_once(&turn);
    CHECK_EQ(span_of_next(), next);
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
    return check_result();
}

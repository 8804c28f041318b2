/* SPDX-License-Identifier: Apache-2.0 */
/* Which partial span serves next under each placement: of a cache's own spans, and of those that
 * belong to none. Spans of ten slots; three of them have holes, whose numbers tell them apart. */
#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SLOT = 800, SLOTS = 10, SPANS = 4 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;
static char *objects[SPANS][SLOTS];

/* Spans 0 to 3, all full, the last one current. Objects with pointers: these get no hints. */
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
    }
    return check_result();
}

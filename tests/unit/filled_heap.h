/* SPDX-License-Identifier: Apache-2.0 */
/* A heap in which two caches have allocated and freed each other's objects. */
#ifndef TESTS_UNIT_FILLED_HEAP_H
#define TESTS_UNIT_FILLED_HEAP_H

#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { OBJECTS = 3000 };

typedef struct item {
    void *p;
    size_t size;
} item;

static item items[OBJECTS];

static sw_heap *make_heap(const sw_table *table, bool tracked, bool dry) {
    return MADE(sw_heap, o.table = table, o.tracked = tracked, o.dry = dry, o.manual_clock = 1);
}

static size_t random_size(uint64_t *rng) {
    uint64_t r = check_random(rng);
    return (r & 15) == 0 ? (r >> 8) % 200000 : (r & 3) == 0 ? (r >> 8) % 9000 : (r >> 8) % 400;
}

/* Fills the heap through two caches, frees most of it across them, leaves pending remote frees. */
static void fill(sw_heap *heap, sw_cache *caches[2], uint64_t seed) {
    memset(items, 0, sizeof items);
    for (int i = 0; i < 2; i++) CHECK_EQ(sw_cache_open(heap, &caches[i]), SW_OK);
    for (int step = 0; step < 5 * OBJECTS; step++) {
        uint64_t r = check_random(&seed);
        item *it = &items[(r >> 32) % OBJECTS];
        sw_cache *cache = caches[r & 1];
        if (it->p != NULL) {
            sw_cache_free(cache, it->p);
            it->p = NULL;
            continue;
        }
        it->size = random_size(&seed);
        it->p = sw_cache_alloc(cache, it->size, (r & 2) != 0 ? SW_SCAN : 0);
        CHECK(it->p != NULL);
    }
}

#endif

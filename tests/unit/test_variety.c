/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths a cache takes while the classes of its requests vary and while they repeat, and that every
 * request gets a slot of its class, cleared where it asks, before and after each change. */
#include <string.h>

#include "check.h"
#include "heap/variety.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

static sw_heap *heap;
static sw_cache *cache;

static void make(const sw_table *table, bool tracked) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = tracked;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
}

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static bool is_varied(void) { return cache->paths == &heap->varied; }

/* A short model of the account: 3 for a change, 1 back for a repetition, varied from 33 to 0. */
typedef struct model {
    uint32_t last, account;
    bool varied;
} model;

static void step(model *m, uint32_t span_class, bool hints_on) {
    bool changed = m->last != span_class || hints_on;
    m->last = span_class;
    if (changed) {
        m->account += 3;
        if (m->account >= 33) m->account = 32, m->varied = true;
    } else if (m->account > 0) {
        m->account--;
        if (m->account == 0) m->varied = false;
    }
}

static void like_the_model(void) {
    uint64_t rng = 5;
    model m = {0, 0, false};
    uint32_t turns = 0;
    make(sw_table_c16(), false);
    if (cache->paths != NULL) {
        for (uint32_t i = 0; i < 100000; i++) {
            /* Series of one class, and stretches in which one of four follows another. */
            bool mixed = i / 100 % 2 != 0;
            uint32_t random = (uint32_t)(check_random(&rng) >> 32);
            uint32_t span_class = mixed ? 3 + 2 * (random % 4) : 5;
            bool was = m.varied, hints_on = i / 1000 % 5 == 4;
            cache->unhinted_owner = hints_on ? SW_NO_CACHE : cache;
            sw_variety_note(cache, 0, span_class);
            step(&m, span_class, hints_on);
            turns += m.varied != was;
            CHECK_EQ(is_varied(), m.varied);
            CHECK_EQ(cache->cold->variety, m.account);
        }
        CHECK(turns > 100);
        cache->unhinted_owner = cache;
    }
    end();
}

/* By hand: of the first object of each class the slow end finds another class than the one before, so the
 * account is 33, beyond its most, after eleven. Then 64 objects of 8 B share a word: the second word is the
 * first repetition, and the 32nd one comes with object 1 + 32 * 64. */
static void by_requests(void) {
    make(sw_table_c16(), false);
    bool specialised = heap->paths != NULL;
    CHECK_EQ(specialised, !SANITIZED);
    CHECK_EQ(heap->varied.cutoff, 0);
    for (size_t i = 0; i < 10; i++) CHECK(sw_cache_alloc(cache, 16 + 16 * i, 0) != NULL);
    CHECK(!is_varied());
    CHECK(sw_cache_alloc(cache, 8, SW_ZERO) != NULL);
    CHECK_EQ(is_varied(), specialised);
    if (specialised) CHECK_EQ(sw_heap_path(heap, 8, SW_SCAN), SW_PATH_SPECIALISED);
    for (uint32_t i = 0; i < 32 * 64 - 1; i++) CHECK(sw_cache_alloc(cache, 8, 0) != NULL);
    CHECK_EQ(is_varied(), specialised);
    CHECK(sw_cache_alloc(cache, 8, 0) != NULL);
    CHECK(!is_varied());
    end();
}

static bool all_are(const unsigned char *p, size_t bytes, unsigned char byte) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != byte) return false;
    return true;
}

/* Sizes that vary, and series of one size, all kinds of requests: each slot is of the class of its size, and of
 * no other object; cleared ones are clear. Filled with a byte that tells a neighbour who writes here. */
static void slots(const sw_table *table, bool tracked) {
    enum { LIVE = 600 };
    static unsigned char *objects[LIVE];
    static size_t sizes[LIVE];
    uint64_t rng = 11;
    uint32_t turns = 0;
    make(table, tracked);
    bool was = is_varied();
    for (uint32_t i = 0; i < 60000; i++) {
        uint64_t random = check_random(&rng) >> 20;
        uint32_t k = (uint32_t)(random % LIVE);
        unsigned flags = (random >> 12) % 8 == 0 ? SW_SCAN : (random >> 12) % 8 == 1 ? SW_ZERO : 0;
        size_t size = i / 6000 % 2 == 0 ? 24 : (random >> 16) % 700;
        if (objects[k] != NULL) {
            CHECK(all_are(objects[k], sizes[k], (unsigned char)k));
            sw_cache_free(cache, objects[k]);
        }
        objects[k] = sw_cache_alloc(cache, size, flags);
        sizes[k] = size;
        if (flags != 0) CHECK(all_are(objects[k], size, 0));
        memset(objects[k], (unsigned char)k, size);
        CHECK_EQ(sw_heap_usable_size(heap, objects[k]),
                 tracked ? sw_heap_usable_size(heap, objects[k])
                         : table->classes[sw_size_class(table, size)].size);
        turns += is_varied() != was;
        was = is_varied();
    }
    CHECK_EQ(turns > 0, heap->paths != NULL);
    for (uint32_t k = 0; k < LIVE; k++) {
        sw_cache_free(cache, objects[k]);
        objects[k] = NULL;
    }
    end();
}

/* A cache that opens again begins anew, and one that has closed keeps no account. */
static void lives(void) {
    make(sw_table_c16(), false);
    if (heap->paths != NULL) {
        for (uint32_t i = 0; i < 100; i++) sw_variety_note(cache, 0, 3 + 2 * (i % 2));
        CHECK(is_varied());
        for (uint32_t i = 0; i < 20; i++) {
            sw_cache_close(cache);
            CHECK_EQ(cache->paths, NULL);
            sw_variety_note(cache, 0, 5);
            CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
            CHECK_EQ(cache->paths, heap->paths);
            CHECK_EQ(cache->cold->variety, 0);
        }
    }
    end();
}

int main(void) {
    like_the_model();
    by_requests();
    slots(sw_table_c16(), false);
    slots(sw_table_go(), false);
    slots(sw_table_c16(), true);
    lives();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects that caches keep, against hostile callers, one step at a time in every kind of heap:
 * whatever is said of a freed one is told; the limit holds though metadata grows beside objects on shelves;
 * records that these have serve others. Frees that race with reuse: test_large_races.c. */
#include <stdbool.h>

#include "check.h"
#include "heap/target.h"
#include "spanwise/spanwise.h"

enum { K = 1 << 10, M = 1 << 20 };

static sw_heap *heap;
static int faults;
static sw_misuse last_fault;

static sw_fault_action note_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    last_fault = fault->code;
    faults++;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static void make(const sw_heap_options *options) {
    sw_heap_options own = *options;
    own.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&own, &heap), SW_OK);
}

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static bool told(sw_misuse misuse) {
    bool as_expected = faults == 1 && last_fault == misuse;
    faults = 0;
    return as_expected;
}

/* --- one object at a time, in every kind of heap ---------------------------------------------- */

/* Each way to name an object that a cache keeps, from its own cache and from another. */
static void name_freed(sw_cache *const *caches, unsigned char *p, size_t size, size_t page) {
    for (int i = 0; i < 2; i++) {
        sw_cache_free(caches[i], p);
        CHECK(told(SW_MISUSE_DOUBLE_FREE));
        sw_cache_free(caches[i], p + size / page / 2 * page);
        CHECK(told(SW_MISUSE_DOUBLE_FREE));
        CHECK(sw_cache_realloc(caches[i], p, size + 1, 0) == NULL);
        CHECK(told(SW_MISUSE_DOUBLE_FREE));
    }
    sw_heap_free_sized(heap, p, size);
    CHECK(told(SW_MISUSE_DOUBLE_FREE));
    sw_heap_free_sized(heap, p, 1);
    CHECK(told(SW_MISUSE_DOUBLE_FREE));
    CHECK_EQ(sw_heap_usable_size(heap, p), 0);
    CHECK(told(SW_MISUSE_DOUBLE_FREE));
}

static void name_live(unsigned char *p, size_t size) {
    sw_heap_free(heap, p + size / 2);
    CHECK(told(SW_MISUSE_INTERIOR));
    sw_heap_free_sized(heap, p, sw_heap_usable_size(heap, p) + 1);
    CHECK(told(SW_MISUSE_SIZE_MISMATCH));
}

static bool is_zero(const unsigned char *p, size_t size) {
    return size == 0 || (p[0] == 0 && memcmp(p, p + 1, size - 1) == 0);
}

/* Written, shelved, and asked for again: zeroed, scanned, with weaker and stronger alignment. */
static void one_size(sw_cache *const *caches, size_t size, size_t page) {
    bool dry = sw_heap_is_dry(heap) != 0;
    for (unsigned flags = 0; flags < 4; flags++) {
        for (size_t align = 1; align <= 8 * page; align *= 8) {
            unsigned char *p = sw_cache_alloc_aligned(caches[0], size, align, flags);
            CHECK(p != NULL && (uintptr_t)p % align == 0);
            if (!dry && flags != 0) CHECK(is_zero(p, size));
            if (!dry) memset(p, 0xAA, size);
            name_live(p, size);
            sw_cache_free(caches[0], p);
            name_freed(caches, p, size, page);
            CHECK_EQ(sw_heap_verify(heap), SW_OK);
        }
    }
}

static void one_heap(const sw_heap_options *options) {
    sw_cache *caches[2];
    make(options);
    for (int i = 0; i < 2; i++) CHECK_EQ(sw_cache_open(heap, &caches[i]), SW_OK);
    const sw_table *table = sw_heap_table(heap);
    size_t page = sw_table_page_bytes(table), least = sw_table_max_bytes(table) + 1;
    one_size(caches, least, page);
    one_size(caches, least + page, page);
    one_size(caches, M, page);
    one_size(caches, M + 1, page);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    end();
}

static void every_heap(void) {
    static const sw_class_spec specs[] = {{8, 1, 0}, {16, 1, 0}, {1024, 1, 0}};
    sw_table *tables[3] = {NULL};
    CHECK_EQ(sw_table_create("pages of 4 KiB", 4 * K, specs, 3, &tables[1]), SW_OK);
    CHECK_EQ(sw_table_create("pages of 64 KiB", 64 * K, specs, 3, &tables[2]), SW_OK);
    for (int i = 0; i < 3; i++) {
        for (int mode = 0; mode < 8; mode++) {
            sw_heap_options options;
            sw_heap_options_init(&options);
            options.table = tables[i];
            options.tracked = (mode & 1) != 0;
            options.dry = (mode & 2) != 0;
            options.tiny = (mode & 4) != 0;
            one_heap(&options);
        }
    }
    sw_table_destroy(tables[1]);
    sw_table_destroy(tables[2]);
}

/* --- the limit -------------------------------------------------------------------------------- */

/* Large objects take all of a heap that has few records. Small ones follow, in shelved and free pages,
 * and need more: over the limit for that, the heap holds no page that it could give back. */
static void limit_beside_shelved(uint64_t seed) {
    static void *p[1024];
    sw_heap_options options;
    sw_ledger l;
    size_t n = 0;
    sw_heap_options_init(&options);
    options.limit_bytes = 2 * M + seed * 16 * K;
    options.decay_ns = SW_DECAY_NEVER;
    make(&options);
    while ((p[n] = sw_heap_alloc(heap, 33000 + check_random(&seed) % 90000, 0)) != NULL) n++;
    while (n < 1024 && (p[n] = sw_heap_alloc(heap, 8 * K, 0)) != NULL) n++;
    while (n > 0) sw_heap_free(heap, p[--n]);
    for (int i = 0; i < 1200; i++) {
        if (i % 40 == 0) sw_heap_free(heap, sw_heap_alloc(heap, 64 * K, 0));
        uint64_t r = check_random(&seed);
        (void)sw_heap_alloc(heap, 8 + r % 4000, r >> 32 & SW_SCAN);
        if (sw_heap_held_bytes(heap) <= options.limit_bytes) continue;
        CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
        CHECK_EQ(l.free_page_bytes, 0);
    }
    end();
}

/* --- records ---------------------------------------------------------------------------------- */

/* The last records of a space are an object's that a cache keeps: another cache gets them. */
static void records_run_out(void) {
    sw_cache *caches[2];
    sw_ledger l;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.dry = 1;
    options.decay_ns = SW_DECAY_NEVER;
    make(&options);
    for (int i = 0; i < 2; i++) CHECK_EQ(sw_cache_open(heap, &caches[i]), SW_OK);
    heap->space->span_limit = heap->space->span_committed;
    void *first = sw_cache_alloc(caches[1], 2 * M, 0);
    while (sw_cache_alloc(caches[1], 2 * M, 0) != NULL) {
    }
    sw_cache_free(caches[1], first);
    sw_cache_free(caches[0], sw_cache_alloc(caches[0], 64 * K, 0));
    CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.cached_bytes, 64 * K);
    CHECK(sw_cache_alloc(caches[1], 2 * M, 0) != NULL);
    CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.cached_bytes, 0);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    end();
}

/* A free that comes while another gives the record up is a double free, of no other heap. */
static void record_given_up(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    make(&options);
    void *p = sw_heap_alloc(heap, 2 * M, 0);
    sw_span_cold *cold = sw_space_cold(heap->space, sw_target_find(heap, p).span);
    cold->heap = NULL;
    sw_heap_free(heap, p);
    cold->heap = heap;
    CHECK(told(SW_MISUSE_DOUBLE_FREE));
    sw_heap_free(heap, p);
    end();
}

int main(void) {
    sw_set_fault_handler(note_fault, NULL);
    every_heap();
    for (uint64_t seed = 1; seed <= 16; seed++) limit_beside_shelved(seed);
    records_run_out();
    record_given_up();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps under tables of one's own: pages of 4 to 64 KiB, spans of 8192 slots, 255 classes, slots of
 * 256 KiB, one slot a span; live against a model, live against dry, two caches freeing each
 * other's. */
#include <stdbool.h>

#include "check.h"
#include "heaps.h"
#include "page/space.h"
#include "spanwise/spanwise.h"

enum { OBJECTS = 1500, STEPS = 25000 };

static sw_table *make_table(uint32_t page_bytes, const sw_class_spec *specs, uint32_t count) {
    sw_table *table = NULL;
    CHECK_EQ(sw_table_create("custom", page_bytes, specs, count, &table), SW_OK);
    if (table == NULL) puts(sw_last_error()->message);
    return table;
}

static size_t random_size(uint64_t *rng, size_t max) {
    uint64_t r = check_random(rng);
    if ((r & 31) == 0) return (r >> 8) % (4 * max + 1);
    return (r & 1) != 0 ? (r >> 8) % (max + 1) : (r >> 8) % 64;
}

static bool ends_are(const unsigned char *p, size_t n, unsigned char fill) {
    for (size_t i = 0; i < n && i < 40; i++)
        if (p[i] != fill || p[n - 1 - i] != fill) return false;
    return true;
}

/* Two caches of one heap, each freeing what the other made. Contents, zeroes, ledger. */
static void model_run(const sw_table *table, bool tracked, sw_placement placement, uint64_t seed) {
    static struct {
        unsigned char *p;
        size_t size;
        unsigned char fill;
    } items[OBJECTS];
    sw_heap *heap = NULL;
    sw_cache *caches[2];
    sw_heap_options options;
    uint64_t live = 0, requested = 0;
    memset(items, 0, sizeof items);
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = tracked;
    options.placement = placement;
    options.batch_spans = (uint32_t)seed % 3;
    options.batch_by_use = options.batch_spans != 0 && seed % 2 == 0;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    for (int i = 0; i < 2; i++) caches[i] = cache_of(heap);
    size_t max = sw_table_max_bytes(table);
    int steps = STEPS / (int)check_share();
    for (int step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed), i = (r >> 32) % OBJECTS;
        sw_cache *cache = caches[r & 1];
        if (items[i].p != NULL) {
            CHECK(ends_are(items[i].p, items[i].size, items[i].fill));
            requested -= items[i].size;
            if ((r & 14) == 0) {
                size_t size = random_size(&seed, max),
                       keep = size < items[i].size ? size : items[i].size;
                unsigned char *p = sw_cache_realloc(cache, items[i].p, size, 0);
                CHECK(p != NULL &&
                      (keep == 0 || (p[0] == items[i].fill && p[keep / 2] == items[i].fill)));
                items[i].p = p;
                items[i].size = size;
                requested += size;
                memset(p, items[i].fill, size);
                continue;
            }
            sw_cache_free(cache, items[i].p);
            items[i].p = NULL;
            live--;
            continue;
        }
        unsigned flags = ((r & 2) != 0 ? SW_ZERO : 0u) | ((r & 4) != 0 ? SW_SCAN : 0u);
        items[i].size = random_size(&seed, max);
        items[i].fill = (unsigned char)(r >> 8 | 1);
        size_t align = (r & 0xF0) == 0 ? (size_t)1 << (r >> 16) % 18 : 1;
        items[i].p = sw_cache_alloc_aligned(cache, items[i].size, align, flags);
        CHECK(items[i].p != NULL);
        CHECK_EQ((uintptr_t)items[i].p % align, 0);
        CHECK(flags == 0 || all_are(items[i].p, items[i].size, 0));
        memset(items[i].p, items[i].fill, items[i].size);
        requested += items[i].size;
        live++;
        if (step % 5000 == 0) CHECK(heap_is_whole(heap));
    }
    CHECK(heap_is_whole(heap));
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, live);
    if (tracked) CHECK_EQ(ledger.requested_bytes, requested);
    for (int i = 0; i < OBJECTS; i++) sw_cache_free(caches[i % 2], items[i].p);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    (void)sw_heap_trim(heap);
    CHECK(heap_is_whole(heap));
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.held_bytes, ledger.metadata_bytes); /* nothing else is left */
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Fills spans of many slots, frees them all from another cache in random order, and again: every
 * word of both halves goes over the remote stack. */
static void all_remote(const sw_table *table, size_t size, uint32_t count, bool tracked) {
    static void *p[40000];
    sw_cache *owner, *other;
    uint64_t rng = size + count;
    sw_heap *heap = heap_with((heap_setting){.table = table, .tracked = tracked});
    owner = cache_of(heap);
    other = cache_of(heap);
    uint64_t held = 0;
    for (int round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < count; i++) p[i] = sw_cache_alloc(owner, size, 0);
        for (uint32_t i = count; i > 1; i--) { /* shuffle */
            uint32_t k = (uint32_t)(check_random(&rng) % i);
            void *swap = p[i - 1];
            p[i - 1] = p[k];
            p[k] = swap;
        }
        for (uint32_t i = 0; i < count; i++) {
            sw_cache_free(other, p[i]);
            if (i == count / 2) CHECK(heap_is_whole(heap));
        }
        CHECK(heap_is_whole(heap));
        sw_ledger ledger = ledger_of(heap);
        CHECK_EQ(ledger.live_objects, 0);
        if (round == 1) held = ledger.held_bytes;
        if (round > 1) CHECK(ledger.held_bytes <= held); /* what comes back is used again */
    }
    sw_cache_close(owner);
    sw_cache_close(other);
    CHECK(heap_is_whole(heap));
    (void)sw_heap_trim(heap);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* The same operations live and dry. */
static void dry_equals_live(const sw_table *table, uint64_t seed) {
    enum { COUNT = 20000 };
    static sw_op ops[COUNT];
    static bool alive[OBJECTS];
    size_t max = sw_table_max_bytes(table);
    memset(alive, 0, sizeof alive);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t r = check_random(&seed);
        uint32_t id = (uint32_t)(r >> 32) % OBJECTS;
        ops[i] = (sw_op){.time_ns = i * 100000, .object = id, .thread = (uint32_t)r % 3};
        ops[i].kind = !alive[id] ? SW_OP_ALLOC : (r & 0xF00) == 0 ? SW_OP_REALLOC : SW_OP_FREE;
        if (ops[i].kind != SW_OP_FREE) ops[i].size = random_size(&seed, max);
        alive[id] = ops[i].kind != SW_OP_FREE;
    }
    sw_ledger ledgers[2];
    for (int dry = 0; dry < 2; dry++) {
        sw_runner *runner = NULL;
        size_t done;
        sw_heap *heap = heap_with(
            (heap_setting){.table = table, .tracked = 1, .manual_clock = 1, .dry = (uint8_t)dry});
        CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
        CHECK_EQ(sw_runner_run(runner, ops, COUNT / check_share(), 1, NULL, &done), SW_OK);
        CHECK(heap_is_whole(heap));
        CHECK_EQ(sw_heap_ledger(heap, &ledgers[dry], NULL, 0), SW_OK);
        sw_runner_destroy(runner);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    /* Where addresses are scarce, live windows end elsewhere, and so do objects that grow. */
    if (!sw_space_has_extras(sw_space_live()))
        CHECK(memcmp(&ledgers[0], &ledgers[1], sizeof ledgers[0]) == 0);
}

static void exercise(sw_table *table, uint64_t seed) {
    if (table == NULL) return;
    for (int tracked = 0; tracked < 2; tracked++)
        model_run(table, tracked != 0, (sw_placement)((seed + (uint64_t)tracked) % 4), seed);
    dry_equals_live(table, seed);
    sw_table_destroy(table);
}

int main(void) {
    static sw_class_spec many[255];
    const sw_class_spec small[] = {
        {8, 16, 0}, {16, 8, 0}, {64, 16, 0}, {4096, 2, 0}}; /* 4 KiB: 8192 slots */
    const sw_class_spec medium[] = {
        {8, 4, 0}, {24, 4, 0}, {1000, 1, 0}, {16384, 1, 0}}; /* 16 KiB */
    const sw_class_spec large[] = {
        {8, 1, 0}, {40, 5, 0}, {65536, 1, 0}, {262144, 4, 0}};    /* 64 KiB */
    const sw_class_spec single[] = {{8192, 1, 0}, {16384, 2, 0}}; /* one slot a span */
    const sw_class_spec only8[] = {{8, 1, 0}};
    const sw_class_spec huge[] = {
        {128, 32, 0}, {65528, 8, 0}, {65536, 64, 0}, {131072, 100, 0}, {262144, 512, 0}};
    for (uint32_t i = 0; i < 255; i++) many[i] = (sw_class_spec){8 * (i + 1), 1, 0};
    sw_table *t8192 = make_table(4096, small, 4), *t64k = make_table(65536, large, 4);
    for (int tracked = 0; tracked < 2; tracked++) {
        all_remote(t8192, 8, 33000, tracked != 0); /* four spans of 128 words */
        all_remote(t8192, 64, 3000, tracked != 0);
        all_remote(t64k, 8, 20000, tracked != 0);
        all_remote(t64k, 262144, 20, tracked != 0);
    }
    exercise(t8192, 1);
    exercise(t64k, 2);
    exercise(make_table(16384, medium, 4), 3);
    exercise(make_table(8192, single, 2), 4);
    exercise(make_table(8192, only8, 1), 5);
    exercise(make_table(8192, huge, 5), 6);
    exercise(make_table(8192, many, 255), 7);
    exercise(make_table(4096, many, 255), 8);
    return check_result();
}

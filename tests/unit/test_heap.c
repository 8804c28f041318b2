/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps against a model: contents survive, memory is zero where promised, verify and the ledger's
 * identity hold after random work, and live and dry heaps agree to the byte. Under the built-in
 * tables and under odd ones: pages of 4 to 64 KiB, spans of 8192 slots, 255 classes, slots of 256
 * KiB, one slot per span. */
#include "heaps.h"
#include "page/space.h"

enum { OBJECTS = 4000 };

typedef struct item {
    unsigned char *p;
    size_t size;
    unsigned char fill;
} item;

/* How a heap is made and used. */
typedef struct setting {
    const sw_table *table;
    sw_placement placement;
    uint32_t batch_spans;
    bool two_caches; /* that free each other's objects; else the thread's own */
    size_t size_max; /* of requests that have a class; 0: typical sizes */
} setting;

static size_t typical_size(uint64_t r) {
    switch (r % 8) {
    case 0: return (r >> 8) % 16;
    case 1:
    case 2:
    case 3: return (r >> 8) % 256;
    case 4:
    case 5: return (r >> 8) % 2048;
    case 6: return (r >> 8) % 40000;
    default: return (r >> 8) % 100 == 0 ? (r >> 16) % 3000000 : (r >> 8) % 512;
    }
}

static size_t random_size(uint64_t *rng, size_t max) {
    uint64_t r = check_random(rng);
    if (max == 0) return typical_size(r);
    if ((r & 31) == 0) return (r >> 8) % (4 * max + 1);
    return (r & 1) != 0 ? (r >> 8) % (max + 1) : (r >> 8) % 64;
}

static sw_heap *make_heap(setting s, bool tracked, bool dry, bool manual_clock) {
    return heap_with((heap_setting){.table = s.table,
                                    .placement = s.placement,
                                    .batch_spans = s.batch_spans,
                                    .tracked = tracked,
                                    .dry = dry,
                                    .manual_clock = manual_clock});
}

/* Small objects whole, of larger ones the ends. */
static bool holds(const unsigned char *p, size_t n, unsigned char fill) {
    if (n <= 4096) return all_are(p, n, fill);
    return all_are(p, 64, fill) && all_are(p + n / 2, 64, fill) && all_are(p + n - 64, 64, fill);
}

/* Of this thread where there is no cache. */
static void *get(sw_heap *heap, sw_cache *cache, size_t size, size_t align, unsigned flags) {
    return cache == NULL ? sw_heap_alloc_aligned(heap, size, align, flags)
                         : sw_cache_alloc_aligned(cache, size, align, flags);
}

static void *resize(sw_heap *heap, sw_cache *cache, void *p, size_t size) {
    return cache == NULL ? sw_heap_realloc(heap, p, size, 0) : sw_cache_realloc(cache, p, size, 0);
}

static void put(sw_heap *heap, sw_cache *cache, void *p) {
    if (cache == NULL)
        sw_heap_free(heap, p);
    else
        sw_cache_free(cache, p);
}

static void model_run(setting s, bool tracked, uint64_t seed, int steps) {
    static item items[OBJECTS];
    sw_heap *heap = make_heap(s, tracked, false, false);
    sw_cache *caches[2] = {NULL, NULL};
    uint64_t rng = seed, live = 0, requested = 0;
    memset(items, 0, sizeof items);
    for (int i = 0; s.two_caches && i < 2; i++) caches[i] = cache_of(heap);
    for (int step = 0; step < steps; step++) {
        uint64_t r = check_random(&rng);
        item *it = &items[(r >> 32) % OBJECTS];
        sw_cache *cache = caches[r & 1];
        if (it->p != NULL && (r & 14) != 0) {
            CHECK(holds(it->p, it->size, it->fill));
            put(heap, cache, it->p);
            it->p = NULL;
            live--;
            requested -= it->size;
            continue;
        }
        if (it->p == NULL) {
            it->size = random_size(&rng, s.size_max);
            size_t align = (r & 0xF0) == 0 ? (size_t)1 << (r >> 16) % 18 : 1;
            unsigned flags = ((r & 2) != 0 ? SW_ZERO : 0u) | ((r & 4) != 0 ? SW_SCAN : 0u);
            it->p = get(heap, cache, it->size, align, flags);
            CHECK(it->p != NULL);
            CHECK_EQ((uintptr_t)it->p % align, 0);
            CHECK(flags == 0 || all_are(it->p, it->size, 0));
            CHECK(sw_heap_usable_size(heap, it->p) >= it->size);
            live++;
            requested += it->size;
        } else {
            size_t size = random_size(&rng, s.size_max);
            it->p = resize(heap, cache, it->p, size);
            CHECK(it->p != NULL);
            CHECK(holds(it->p, it->size < size ? it->size : size, it->fill));
            requested += size - it->size;
            it->size = size;
        }
        it->fill = (unsigned char)(r >> 8);
        memset(it->p, it->fill, it->size);
        if (step % 6000 == 0) CHECK(heap_is_whole(heap));
    }
    CHECK(heap_is_whole(heap));
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, live);
    if (tracked) CHECK_EQ(ledger.requested_bytes, requested);
    for (int i = 0; i < OBJECTS; i++) put(heap, caches[i % 2], items[i].p);
    for (int i = 0; s.two_caches && i < 2; i++) sw_cache_close(caches[i]);
    (void)sw_heap_trim(heap);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes + ledger.free_page_bytes, 0);
    if (s.two_caches) CHECK_EQ(ledger.held_bytes, ledger.metadata_bytes); /* nothing else is left */
    heap_end(heap);
}

/* The same operations through a live and a dry tracked heap: equal ledgers. */
static void dry_equals_live(setting s, uint64_t seed, size_t count) {
    enum { MOST = 80000, PARTS = 8 };
    static sw_op ops[MOST];
    static bool live[OBJECTS];
    memset(live, 0, sizeof live);
    uint64_t rng = seed;
    for (size_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)(check_random(&rng) % OBJECTS);
        uint64_t r = check_random(&rng);
        ops[i] = (sw_op){.time_ns = i * 40000, .object = id, .thread = (uint32_t)(r >> 8) % 5};
        ops[i].kind = !live[id] ? SW_OP_ALLOC : (r & 7) == 0 ? SW_OP_REALLOC : SW_OP_FREE;
        if (ops[i].kind != SW_OP_FREE) ops[i].size = random_size(&rng, s.size_max);
        if (ops[i].kind == SW_OP_ALLOC && (r & 0x70) == 0)
            ops[i].align_log2 = (uint8_t)((r >> 16) % 15);
        live[id] = ops[i].kind != SW_OP_FREE;
    }
    sw_heap *heaps[2];
    sw_runner *runners[2];
    for (int dry = 0; dry < 2; dry++) {
        heaps[dry] = make_heap(s, true, dry != 0, true);
        CHECK_EQ(sw_runner_create(heaps[dry], &runners[dry]), SW_OK);
    }
    for (size_t at = 0; at + count / PARTS <= count; at += count / PARTS) {
        sw_ledger ledgers[2];
        static sw_ledger_class rows[2][SW_TABLE_CLASSES_MAX];
        memset(rows, 0, sizeof rows);
        for (int dry = 0; dry < 2; dry++) {
            size_t done = 0;
            CHECK_EQ(sw_runner_run(runners[dry], ops + at, count / PARTS, 1, NULL, &done), SW_OK);
            CHECK_EQ(done, count / PARTS);
            CHECK(heap_is_whole(heaps[dry]));
            CHECK_EQ(sw_heap_ledger(heaps[dry], &ledgers[dry], rows[dry], SW_TABLE_CLASSES_MAX),
                     SW_OK);
        }
        /* Where addresses are scarce, live windows end elsewhere, and so do objects that grow. */
        if (sw_space_has_extras(sw_space_live())) continue;
        CHECK(memcmp(&ledgers[0], &ledgers[1], sizeof ledgers[0]) == 0);
        CHECK(memcmp(rows[0], rows[1], sizeof rows[0]) == 0);
    }
    sw_replay_stats stats;
    sw_runner_stats(runners[1], &stats);
    CHECK_EQ(stats.failed, 0);
    CHECK_EQ(stats.skipped, 0);
    for (int dry = 0; dry < 2; dry++) {
        sw_runner_drain(runners[dry]);
        sw_runner_destroy(runners[dry]);
        heap_end(heaps[dry]);
    }
}

static void exercise(sw_table *table, uint64_t seed) {
    setting s = {.table = table, .two_caches = true, .size_max = sw_table_max_bytes(table)};
    dry_equals_live(s, seed, 20000 / check_share());
    s.batch_spans = (uint32_t)seed % 3;
    for (uint64_t tracked = 0; tracked < 2; tracked++) {
        s.placement = (sw_placement)((seed + tracked) % 4);
        model_run(s, tracked != 0, seed, 25000 / (int)check_share());
    }
    sw_table_destroy(table);
}

static void odd_tables(void) {
    static sw_class_spec many[255];
    const sw_class_spec small[] = {
        {8, 16, 0}, {16, 8, 0}, {64, 16, 0}, {4096, 2, 0}}; /* 4 KiB: 8192 slots */
    const sw_class_spec medium[] = {{8, 4, 0}, {24, 4, 0}, {1000, 1, 0}, {16384, 1, 0}};
    const sw_class_spec large[] = {{8, 1, 0}, {40, 5, 0}, {65536, 1, 0}, {262144, 4, 0}};
    const sw_class_spec single[] = {{8192, 1, 0}, {16384, 2, 0}}; /* one slot a span */
    const sw_class_spec only8[] = {{8, 1, 0}};
    const sw_class_spec huge[] = {
        {128, 32, 0}, {65528, 8, 0}, {65536, 64, 0}, {131072, 100, 0}, {262144, 512, 0}};
    for (uint32_t i = 0; i < 255; i++) many[i] = (sw_class_spec){8 * (i + 1), 1, 0};
    sw_table *t8192 = table_of("custom", 4096, small, 4);
    sw_table *t64k = table_of("custom", 65536, large, 4);
    exercise(t8192, 1);
    exercise(t64k, 2);
    exercise(table_of("custom", 16384, medium, 4), 3);
    exercise(table_of("custom", 8192, single, 2), 4);
    exercise(table_of("custom", 8192, only8, 1), 5);
    exercise(table_of("custom", 8192, huge, 5), 6);
    exercise(table_of("custom", 8192, many, 255), 7);
    exercise(table_of("custom", 4096, many, 255), 8);
}

static bool is_scanned(sw_heap *heap, const void *p) {
    static sw_span_info rows[64];
    size_t n = sw_heap_spans(heap, rows, 64);
    for (size_t i = 0; i < n && i < 64; i++)
        if ((uintptr_t)p - rows[i].address < rows[i].bytes) return rows[i].scan;
    CHECK(false);
    return false;
}

/* An object that is to be scanned leaves a span that is not; the other way it may stay. */
static void realloc_to_scan(void) {
    for (int large = 0; large < 2; large++) {
        for (int tracked = 0; tracked < 2; tracked++) {
            size_t size = large ? 100000 : 100;
            sw_heap *heap = heap_with((heap_setting){.tracked = tracked != 0});
            unsigned char *p = sw_heap_alloc(heap, size, 0);
            memset(p, 0x5A, size);
            CHECK(!is_scanned(heap, p));
            p = sw_heap_realloc(heap, p, size, SW_SCAN);
            CHECK(p != NULL && is_scanned(heap, p) && all_are(p, size, 0x5A));
            void *same = sw_heap_realloc(heap, p, size, SW_SCAN);
            CHECK(same == p && sw_heap_realloc(heap, p, size - 1, 0) == p);
            CHECK(heap_is_whole(heap));
            sw_heap_destroy(heap);
        }
    }
}

/* A program may write into all that usable_size says, and what it wrote moves with the object. Only
 * where growth is to be cleared, everything after the requested bytes is. */
static void usable_moves(size_t size, size_t grown) {
    for (uint8_t tracked = 0; tracked < 2; tracked++) {
        sw_heap *heap = heap_with((heap_setting){.tracked = tracked});
        for (unsigned flags = 0; flags <= SW_ZERO; flags += SW_ZERO) {
            unsigned char *p = sw_heap_alloc(heap, size, 0);
            size_t usable = sw_heap_usable_size(heap, p);
            CHECK(usable > size && usable < grown);
            memset(p, 'x', usable);
            p = sw_heap_realloc(heap, p, grown, flags);
            CHECK_EQ(p[size - 1], 'x');
            CHECK_EQ(p[usable - 1], flags != 0 && tracked != 0 ? 0 : 'x');
            CHECK(flags == 0 || p[grown - 1] == 0);
            sw_heap_free(heap, p);
        }
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
}

int main(void) {
    static const setting settings[] = {
        {.placement = SW_PLACE_LIFO},
        {.placement = SW_PLACE_ADDRESS, .batch_spans = 4},
        {.placement = SW_PLACE_FULLEST},
        {.placement = SW_PLACE_LASTING},
        {.placement = SW_PLACE_LIFO, .batch_spans = 8},
        {.placement = SW_PLACE_ADDRESS},
        {.placement = SW_PLACE_FULLEST, .batch_spans = 2},
        {.placement = SW_PLACE_LASTING, .batch_spans = 4},
    };
    realloc_to_scan();
    usable_moves(25, 1000);
    usable_moves(100001, 1000000);
    for (uint64_t i = 0; i < 8; i++) {
        if (!check_mine(i)) continue;
        setting s = settings[i];
        s.table = i < 4 ? sw_table_go() : sw_table_c16();
        model_run(s, i % 4 != 1, 11 + i % 4, 60000);
        dry_equals_live(s, 5 + i % 4, 80000);
    }
    odd_tables();
    return check_result();
}

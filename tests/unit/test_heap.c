/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps against a model: contents survive, memory is zero where promised, verify and the ledger's
 * identity hold after random work, and live and dry heaps agree to the byte. Under the built-in
 * tables and under odd ones: pages of 4 to 64 KiB, spans of 8192 slots, 255 classes, slots of 256
 * KiB, one slot per span. Options and ledgers of programs of other versions. */
#include <stddef.h>

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
    return MADE(sw_heap, o.table = s.table, o.placement = s.placement,
                o.batch_spans = s.batch_spans, o.tracked = tracked, o.dry = dry,
                o.manual_clock = manual_clock);
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
            sw_heap *heap = MADE(sw_heap, o.tracked = tracked != 0);
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
        sw_heap *heap = MADE(sw_heap, o.tracked = tracked);
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

/* --- structs that begin with their size --------------------------------------------------------- */

/* As programs compiled with an older or a later header have them (docs/stability.md). */
static const uint64_t bad_sizes[] = {0,    8,         12, 17, 20, sizeof(sw_heap_options) - 1,
                                     4104, UINT64_MAX};
enum { BAD_SIZES = sizeof bad_sizes / sizeof *bad_sizes };

/* What a program of another version has: the struct as it is now, and room after it. */
typedef union other_options {
    sw_heap_options now;
    unsigned char bytes[sizeof(sw_heap_options) + 64];
} other_options;
typedef union other_ledger {
    sw_ledger now;
    unsigned char bytes[sizeof(sw_ledger) + 64];
} other_ledger;

static void check_bytes(const unsigned char *bytes, size_t from, size_t to, unsigned char want) {
    for (size_t at = from; at < to; at++) CHECK_EQ(bytes[at], want);
}

/* The layout of the first version, in which old programs have been compiled: it never changes. */
static void first_version(void) {
    CHECK_EQ(offsetof(sw_heap_options, table), 8);
    CHECK_EQ(offsetof(sw_heap_options, limit_bytes), 16);
    CHECK_EQ(offsetof(sw_heap_options, decay_ns), 24);
    CHECK_EQ(offsetof(sw_heap_options, placement), 32);
    CHECK_EQ(offsetof(sw_heap_options, tracked), 40);
    CHECK_EQ(offsetof(sw_heap_options, huge_pages), 44);
    CHECK_EQ(offsetof(sw_ledger, requested_bytes), 8);
    CHECK_EQ(offsetof(sw_ledger, held_bytes), 72);
    CHECK_EQ(offsetof(sw_ledger, tracked), 148);
}

static void filled(void) {
    other_options options;
    for (uint64_t size = 16; size <= sizeof options; size += 8) {
        memset(&options, 0xA5, sizeof options);
        CHECK_EQ(sw_heap_options_fill(&options.now, size), SW_OK);
        CHECK_EQ(options.now.struct_bytes, size);
        CHECK(options.now.table == sw_table_default());
        check_bytes(options.bytes, size, sizeof options, 0xA5);
        if (size > sizeof(sw_heap_options))
            check_bytes(options.bytes, sizeof(sw_heap_options), size, 0);
    }
    for (int i = 0; i < BAD_SIZES; i++) {
        memset(&options, 0xA5, sizeof options);
        CHECK_EQ(sw_heap_options_fill(&options.now, bad_sizes[i]), SW_INVALID);
        check_bytes(options.bytes, 0, sizeof options, 0xA5);
    }
    CHECK_STR(sw_last_error()->message,
              "struct_bytes is 18446744073709551615: give sizeof(sw_heap_options)");
}

/* Options of 40 bytes end after batch_spans: that a heap is dry or tracked comes later. */
static void short_options(void) {
    other_options options;
    memset(&options, 1, sizeof options);
    sw_heap_options_init(&options.now);
    options.now.limit_bytes = 1 << 20;
    options.now.tracked = options.now.dry = 1;
    options.now.struct_bytes = 40;
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_OK);
    CHECK_EQ(sw_heap_is_dry(heap), 0);
    CHECK(sw_heap_alloc(heap, 2 << 20, 0) == NULL); /* the limit was read */
    sw_heap_destroy(heap);
    options.now.struct_bytes = 16; /* the table alone: no limit */
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_OK);
    CHECK(sw_heap_alloc(heap, 2 << 20, 0) != NULL);
    sw_heap_destroy(heap);
}

static void later_options(void) {
    other_options options;
    sw_heap *heap = NULL;
    CHECK_EQ(sw_heap_options_fill(&options.now, sizeof options), SW_OK);
    options.now.dry = 1;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_OK);
    CHECK_EQ(sw_heap_is_dry(heap), 1);
    sw_heap_destroy(heap);
    heap = NULL;
    options.bytes[sizeof options - 1] = 1;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_UNSUPPORTED);
    CHECK_STR(sw_last_error()->message,
              "options of 128 bytes use fields that this version lacks: it has 64");
    CHECK_EQ(sw_heap_default_init(&options.now), SW_UNSUPPORTED);
    for (int i = 0; i < BAD_SIZES; i++) {
        options.now.struct_bytes = bad_sizes[i];
        CHECK_EQ(sw_heap_create(&options.now, &heap), SW_INVALID);
        CHECK_EQ(sw_heap_default_init(&options.now), SW_INVALID);
    }
    CHECK(heap == NULL);
    options.now.struct_bytes = 0;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "struct_bytes is 0: call sw_heap_options_init first");
}

static void ledgers(void) {
    sw_heap *heap = MADE(sw_heap, (void)o);
    CHECK(sw_heap_alloc(heap, 64, 0) != NULL);
    other_ledger whole, other;
    CHECK_EQ(sw_heap_ledger(heap, &whole.now, NULL, 0), SW_OK);
    CHECK_EQ(whole.now.struct_bytes, sizeof(sw_ledger));
    for (uint64_t size = 16; size <= sizeof other; size += 8) {
        uint64_t has = size < sizeof(sw_ledger) ? size : sizeof(sw_ledger);
        memset(&other, 0xA5, sizeof other);
        other.now.struct_bytes = size;
        CHECK_EQ(sw_heap_ledger_read(heap, &other.now, NULL, 0), SW_OK);
        CHECK_EQ(other.now.struct_bytes, has);
        CHECK(memcmp(other.bytes + 8, whole.bytes + 8, has - 8) == 0);
        check_bytes(other.bytes, has, sizeof other, 0xA5);
    }
    for (int i = 0; i < BAD_SIZES; i++) {
        memset(&other, 0xA5, sizeof other);
        other.now.struct_bytes = bad_sizes[i];
        CHECK_EQ(sw_heap_ledger_read(heap, &other.now, NULL, 0), SW_INVALID);
        check_bytes(other.bytes, 8, sizeof other, 0xA5);
    }
    sw_heap_destroy(heap);
}

static void version(void) {
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", SW_VERSION_NUMBER / 10000,
             SW_VERSION_NUMBER / 100 % 100, SW_VERSION_NUMBER % 100);
    CHECK_STR(SPANWISE_VERSION, text);
    CHECK_STR(sw_version(), text);
    CHECK_EQ(sw_version_number(), SW_VERSION_NUMBER);
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
    first_version();
    filled();
    short_options();
    later_options();
    ledgers();
    version();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The heap against a model: contents survive, memory is zero where promised, verify and the
 * ledger's identity hold after random work, in live and dry heaps, under several tables. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "heaps.h"
#include "page/space.h"
#include "spanwise/spanwise.h"

enum { OBJECTS = 4000 };

typedef struct item {
    unsigned char *p;
    size_t size;
    unsigned char fill;
} item;

static size_t random_size(uint64_t *rng) {
    uint64_t r = check_random(rng);
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

/* A setting of the knobs that decide where objects go and what caches keep. */
typedef struct setting {
    sw_placement placement;
    uint32_t batch_spans;
    uint8_t batch_by_use;
} setting;

static sw_heap_options options_of(const sw_table *table, setting knobs) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.placement = knobs.placement;
    options.batch_spans = knobs.batch_spans;
    options.batch_by_use = knobs.batch_by_use;
    return options;
}

static void model_run(const sw_table *table, bool tracked, setting knobs, uint64_t seed) {
    sw_heap_options options = options_of(table, knobs);
    options.tracked = tracked;
    sw_heap *heap = NULL;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    static item items[OBJECTS];
    memset(items, 0, sizeof items);
    uint64_t rng = seed, live = 0, requested = 0;
    for (int step = 0; step < 60000; step++) {
        item *it = &items[check_random(&rng) % OBJECTS];
        uint64_t r = check_random(&rng);
        if (it->p == NULL) {
            it->size = random_size(&rng);
            bool zero = r & 1;
            size_t align = (r & 6) == 0 ? (size_t)1 << (r >> 8) % 14 : 1;
            unsigned flags = (zero ? SW_ZERO : 0u) | ((r & 8) != 0 ? SW_SCAN : 0u);
            it->p = sw_heap_alloc_aligned(heap, it->size, align, flags);
            CHECK(it->p != NULL);
            CHECK_EQ((uintptr_t)it->p % align, 0);
            if (zero || (flags & SW_SCAN) != 0) CHECK(all_are(it->p, it->size, 0));
            CHECK(sw_heap_usable_size(heap, it->p) >= it->size);
            live++;
            requested += it->size;
        } else if ((r & 3) == 0) {
            size_t size = random_size(&rng), keep = it->size < size ? it->size : size;
            unsigned char *p = sw_heap_realloc(heap, it->p, size, 0);
            CHECK(p != NULL);
            CHECK(all_are(p, keep, it->fill));
            requested += size - it->size;
            it->p = p;
            it->size = size;
        } else {
            CHECK(all_are(it->p, it->size, it->fill));
            sw_heap_free(heap, it->p);
            it->p = NULL;
            live--;
            requested -= it->size;
            continue;
        }
        it->fill = (unsigned char)(r >> 40);
        memset(it->p, it->fill, it->size);
        if (step % 6000 == 0) {
            CHECK(heap_is_whole(heap));
        }
    }
    CHECK(heap_is_whole(heap));
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, live);
    if (tracked) CHECK_EQ(ledger.requested_bytes, requested);
    for (int i = 0; i < OBJECTS; i++) sw_heap_free(heap, items[i].p);
    CHECK(heap_is_whole(heap));
    sw_heap_trim(heap);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes, 0);
    CHECK_EQ(ledger.free_page_bytes, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* The same operations through a live and a dry tracked heap: equal ledgers, to the byte. */
static void dry_equals_live(const sw_table *table, setting knobs, uint64_t seed) {
    enum { COUNT = 80000 };
    static sw_op ops[COUNT];
    static bool live[OBJECTS];
    memset(live, 0, sizeof live);
    uint64_t rng = seed;
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t id = (uint32_t)(check_random(&rng) % OBJECTS);
        uint64_t r = check_random(&rng);
        ops[i] = (sw_op){.time_ns = i * 40000, .object = id, .thread = (uint32_t)(r >> 8) % 5};
        ops[i].kind = !live[id] ? SW_OP_ALLOC : (r & 7) == 0 ? SW_OP_REALLOC : SW_OP_FREE;
        if (ops[i].kind != SW_OP_FREE) ops[i].size = random_size(&rng);
        if (ops[i].kind == SW_OP_ALLOC && (r & 0x70) == 0)
            ops[i].align_log2 = (uint8_t)((r >> 16) % 15);
        live[id] = ops[i].kind != SW_OP_FREE;
    }
    sw_heap *heaps[2];
    sw_runner *runners[2];
    for (int dry = 0; dry < 2; dry++) {
        sw_heap_options options = options_of(table, knobs);
        options.tracked = 1;
        options.dry = (uint8_t)dry;
        options.manual_clock = 1;
        CHECK_EQ(sw_heap_create(&options, &heaps[dry]), SW_OK);
        CHECK_EQ(sw_runner_create(heaps[dry], &runners[dry]), SW_OK);
    }
    for (size_t at = 0; at < COUNT; at += COUNT / 8) {
        sw_ledger ledgers[2];
        static sw_ledger_class rows[2][SW_TABLE_CLASSES_MAX];
        memset(rows, 0, sizeof rows);
        for (int dry = 0; dry < 2; dry++) {
            size_t done = 0;
            CHECK_EQ(sw_runner_run(runners[dry], ops + at, COUNT / 8, 1, NULL, &done), SW_OK);
            CHECK_EQ(done, COUNT / 8);
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
        CHECK(heap_is_whole(heaps[dry]));
        CHECK_EQ(sw_heap_destroy(heaps[dry]), SW_OK);
    }
}

static void zero_and_huge(void) {
    CHECK(sw_malloc(0) != sw_malloc(0));
    errno = 0;
    CHECK(sw_malloc(SIZE_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(sw_malloc((size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(sw_calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(sw_aligned_alloc(24, 100) == NULL && errno == EINVAL);
    void *p = sw_aligned_alloc(1 << 21, 100);
    CHECK(p != NULL && (uintptr_t)p % (1 << 21) == 0);
    sw_free(p);
    CHECK(heap_is_whole(sw_heap_default()));
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

/* A program may write into all that usable_size tells, and what it wrote moves with the object. Only
 * where growth is to be cleared, everything behind the requested bytes is. */
static void usable_moves(size_t size, size_t grown) {
    for (uint8_t tracked = 0; tracked < 2; tracked++) {
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.tracked = tracked;
        sw_heap *heap;
        CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
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

static void limits(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.limit_bytes = 4 << 20;
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    int n = 0;
    while (sw_heap_alloc(heap, 1000, 0) != NULL) n++;
    CHECK(errno == ENOMEM);
    CHECK_EQ(sw_last_error()->status, SW_LIMIT);
    CHECK(n > 3000 && n < 4200);
    CHECK(sw_heap_held_bytes(heap) <= 4 << 20);
    heap_end(heap);
}

int main(void) {
    zero_and_huge();
    realloc_to_scan();
    usable_moves(25, 1000);
    usable_moves(100001, 1000000);
    limits();
    const sw_table *tables[] = {sw_table_go(), sw_table_c16()};
    static const setting settings[2][4] = {
        {{SW_PLACE_LIFO, 0, 0},
         {SW_PLACE_ADDRESS, 4, 0},
         {SW_PLACE_FULLEST, 0, 0},
         {SW_PLACE_LASTING, 0, 0}},
        {{SW_PLACE_LIFO, 8, 1},
         {SW_PLACE_ADDRESS, 0, 0},
         {SW_PLACE_FULLEST, 2, 1},
         {SW_PLACE_LASTING, 4, 1}},
    };
    for (uint64_t t = 0; t < 2; t++)
        for (uint64_t k = 0; k < 4; k++) {
            if (!check_mine(4 * t + k)) continue;
            model_run(tables[t], k != 1, settings[t][k], 11 + k);
            dry_equals_live(tables[t], settings[t][k], 5 + k);
        }
    return check_result();
}

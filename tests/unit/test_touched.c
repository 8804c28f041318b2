/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a heap are resident: the map of touched pages beside an array of truth values, and the
 * ledger of touched bytes of a dry heap beside that of a real one, which the system is asked for. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "check.h"
#include "child.h"
#include "ds/meta.h"
#include "heap/cache.h"
#include "heaps.h"
#include "os/os.h"
#include "page/touch_map.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

/* --- the map ---------------------------------------------------------------------------------- */

static void map_equals_an_array(void) {
    enum { GRAINS = 1000, STEPS = 3000 };
    static bool truth[GRAINS];
    sw_touch_map touch;
    sw_touch_map_begin(&touch);
    uint64_t grain = 1ull << touch.grain_shift, seed = 9;
    sw_touch_map_reserve(&touch, 100 * grain);
    sw_touch_map_add(&touch, 7 * grain, 1);
    truth[7] = true;
    sw_touch_map_reserve(&touch, GRAINS * grain); /* what was noted stays */
    for (int step = 0; step < STEPS; step++) {
        uint64_t from = check_random(&seed) % (GRAINS * grain);
        uint64_t bytes = check_random(&seed) % (step % 9 == 0 ? 200 * grain : 3 * grain);
        if (from + bytes > GRAINS * grain) bytes = GRAINS * grain - from;
        if (step % 3 == 0) {
            from -= from % grain;
            bytes -= bytes % grain;
            sw_touch_map_remove(&touch, from, bytes);
            for (uint64_t i = from / grain; i < (from + bytes) / grain; i++) truth[i] = false;
        } else {
            sw_touch_map_add(&touch, from, bytes);
            for (uint64_t at = from; at < from + bytes; at++) truth[at / grain] = true;
        }
        uint64_t start = check_random(&seed) % (GRAINS * grain), within = 0, all = 0;
        uint64_t length = check_random(&seed) % (4 * grain);
        if (start + length > GRAINS * grain) length = GRAINS * grain - start;
        for (uint64_t at = start; at < start + length; at++) within += truth[at / grain];
        for (int i = 0; i < GRAINS; i++) all += truth[i];
        if (sw_touch_map_within(&touch, start, length) != within) CHECK_EQ(step, -1);
        if (sw_touch_map_bytes(&touch) != all * grain) CHECK_EQ(step, -2);
    }
    CHECK(sw_touch_map_check(&touch) == NULL);
    touch.count = touch.capacity + 1;
    CHECK_STR(sw_touch_map_check(&touch), "touch->count <= touch->capacity");
    touch.count = 1;
    CHECK(touch.count > 0);
    sw_touch_map_end(&touch);
}

/* --- operations ------------------------------------------------------------------------------- */

enum { OPS = 60000, IDS = 4000, THREADS = 3 };
static sw_op ops[OPS];

/* Sizes of all kinds, in phases: what a phase leaves behind is freed in the next. */
static size_t make_ops(uint64_t seed) {
    static bool live[IDS];
    memset(live, 0, sizeof live);
    for (size_t i = 0; i < OPS; i++) {
        uint64_t r = check_random(&seed);
        uint32_t id = (uint32_t)(r % IDS);
        bool grows = i / 10000 % 2 == 0;
        uint64_t size = r >> 40 & 15 ? r >> 20 & 1023 : r >> 20 & 0xFFFF;
        if ((r >> 44 & 255) == 0) size = r >> 20 & 0xFFFFF;
        ops[i] = (sw_op){.object = id, .thread = (uint32_t)(r >> 60) % THREADS, .size = size};
        ops[i].time_ns = i * 100000; /* ticks of the decay come and go */
        if ((r >> 36 & 7) == 0) ops[i].flags = SW_OP_ZEROED;
        if (!live[id])
            ops[i].kind = SW_OP_ALLOC;
        else if ((r >> 56 & 7) == 0)
            ops[i].kind = SW_OP_REALLOC;
        else if (!grows || (r >> 56 & 3) != 0)
            ops[i] = (sw_op){.kind = SW_OP_FREE,
                             .object = id,
                             .thread = ops[i].thread,
                             .time_ns = ops[i].time_ns};
        else
            ops[i].kind = SW_OP_REALLOC;
        live[id] = ops[i].kind != SW_OP_FREE;
    }
    return OPS;
}

/* --- by hand ---------------------------------------------------------------------------------- */

static sw_heap *make(bool dry, bool tracked, const sw_table *table) {
    sw_heap *heap = heap_with((heap_setting){
        .table = table, .dry = dry, .touch_map = dry, .tracked = tracked, .manual_clock = 1});
    return heap;
}

/* One object of 5,000 bytes in a slot of 5,376 touches two pages of 4 KiB: all that was requested, and of
 * the round-up what lies in the second one, which is all of it. The second slot shares that page. */
static void one_object(void) {
    if (sw_os_page_bytes() != 4096) return;
    sw_heap *heap = make(true, true, sw_table_go());
    sw_runner *runner;
    sw_ledger l;
    sw_op ops[] = {{.kind = SW_OP_ALLOC, .size = 5000}, {.kind = SW_OP_FREE}};
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    CHECK_EQ(sw_runner_run(runner, ops, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    l.struct_bytes = sizeof l;
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.requested_bytes, 5000);
    CHECK_EQ(l.roundup_bytes, 376);
    CHECK_EQ(l.cached_bytes, 8192 - 5376);
    CHECK_EQ(l.tail_bytes + l.free_slot_bytes + l.large_rounding_bytes + l.free_page_bytes, 0);
    CHECK_EQ(l.held_bytes, 8192 + l.metadata_bytes);
    CHECK_EQ(sw_runner_run(runner, ops + 1, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.requested_bytes + l.roundup_bytes, 0);
    CHECK_EQ(l.cached_bytes, 8192);
    (void)sw_heap_trim(heap);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* The peak, beside the ledger of touched bytes after each operation. A heap without a map has none. */
static void peak(void) {
    enum { STEPS = 1500 };
    sw_heap *heap = make(true, true, sw_table_c16());
    sw_runner *runner;
    uint64_t most = 0, most_op = 0, op = 7;
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    make_ops(3);
    for (size_t i = 0; i < STEPS; i++) {
        sw_ledger l = {.struct_bytes = sizeof l};
        ops[i].time_ns = i * 5000000; /* idle pages go back in between */
        ops[i].size *= 8;             /* so that spans reach further pages of the page map */
        if (i > STEPS / 2 && ops[i].kind == SW_OP_REALLOC) ops[i].kind = SW_OP_FREE;
        CHECK_EQ(sw_runner_run(runner, ops + i, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
        CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
        if (l.held_bytes <= most) continue;
        most = l.held_bytes;
        most_op = i + 1;
    }
    CHECK_EQ(sw_runner_resident_peak(runner, &op), most);
    CHECK_EQ(op, most_op);
    CHECK(op > STEPS / 4 && most > 1 << 20);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = make(false, true, sw_table_c16());
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    CHECK_EQ(sw_runner_run(runner, ops, 100, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    CHECK_EQ(sw_runner_resident_peak(runner, NULL), 0);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Of 81 threads at once 80 end, and the other one allocates 4 MB: the peak is the ledger's after the
 * last operation. The records of 16 of the caches have one page left. */
static void ended_threads(void) {
    enum { THREADS = 80, STEPS = 3 * THREADS + 2, LARGE = 4 << 20 };
    sw_heap *heap = make(true, true, sw_table_c16());
    sw_runner *runner;
    sw_ledger l = {.struct_bytes = sizeof l};
    uint64_t op;
    memset(ops, 0, STEPS * sizeof *ops);
    for (uint32_t i = 0; i < THREADS; i++) {
        ops[i] = (sw_op){.kind = SW_OP_ALLOC, .thread = i, .object = i, .size = 100};
        ops[THREADS + i] = (sw_op){.kind = SW_OP_FREE, .thread = i, .object = i};
        ops[2 * THREADS + i] = (sw_op){.kind = SW_OP_THREAD_END, .thread = i};
    }
    for (size_t i = STEPS - 1; i > 0; i--) ops[i] = ops[i - 1];
    ops[0] = (sw_op){.kind = SW_OP_ALLOC, .thread = THREADS, .object = THREADS, .size = 100};
    ops[STEPS - 1] = ops[0];
    ops[STEPS - 1].object = 5;
    ops[STEPS - 1].size = LARGE;
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    CHECK_EQ(sw_runner_run(runner, ops, STEPS, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.requested_bytes, LARGE + 100);
    CHECK_EQ(sw_runner_resident_peak(runner, &op), l.held_bytes);
    CHECK_EQ(op, STEPS);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Of a record of table c16 the first 128 + 134 * 64 bytes are written when the cache opens, on three
 * pages of 4 KiB. Of 80 closed caches, 64 keep these and 16 keep the first. */
static void closed_caches(void) {
    enum { CACHES = 80 };
    if (sw_os_page_bytes() != 4096) return;
    sw_heap *heap = make(true, true, sw_table_c16());
    sw_cache *caches[CACHES];
    sw_ledger open = {.struct_bytes = sizeof open}, closed = {.struct_bytes = sizeof closed};
    for (int i = 0; i < CACHES; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &caches[i]), SW_OK);
    CHECK_EQ(sw_heap_touched_read(heap, &open, NULL, 0), SW_OK);
    for (int i = 0; i < CACHES; i++) sw_cache_close(caches[i]);
    CHECK_EQ(sw_heap_touched_read(heap, &closed, NULL, 0), SW_OK);
    CHECK_EQ(open.metadata_bytes - closed.metadata_bytes, 16 * 2 * 4096);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Requested sizes are an instrument: a tracked heap holds what one holds that keeps none, in each term, and
 * refuses what that refuses. What they take, 2 bytes a slot, is told apart. */
static void instrument(void) {
    enum { STEPS = 9000 };
    sw_ledger l[2];
    make_ops(11);
    for (int tracked = 0; tracked < 2; tracked++) {
        sw_heap *heap = make(true, tracked == 1, sw_table_c16());
        sw_runner *runner;
        CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
        CHECK_EQ(sw_runner_run(runner, ops, STEPS, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
        CHECK_EQ(sw_heap_ledger(heap, &l[tracked], NULL, 0), SW_OK);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        sw_runner_destroy(runner);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    CHECK_EQ(l[0].held_bytes, l[1].held_bytes);
    CHECK_EQ(l[0].metadata_bytes, l[1].metadata_bytes);
    CHECK_EQ(l[0].free_slot_bytes, l[1].free_slot_bytes);
    CHECK_EQ(l[0].requested_bytes, l[1].requested_bytes + l[1].roundup_bytes +
                                       (l[1].large_rounding_bytes - l[0].large_rounding_bytes));
    CHECK_EQ(l[0].instrument_bytes, 0);
    CHECK(l[1].instrument_bytes >= 2 * l[1].live_objects && l[1].instrument_bytes < 1 << 20);
}

/* The end of the newest chunk of metadata, as the system tells: nobody has written to it. */
static void untouched_metadata(void) {
    enum { PAGES = 64 };
    sw_meta meta;
    uint8_t resident[PAGES];
    uint64_t page = sw_os_page_bytes();
    sw_meta_init(&meta);
    CHECK_EQ(sw_meta_untouched_bytes(&meta, 12), 0);
    for (int i = 0; i < 400; i++) {
        size_t block = 64 * (1 + (size_t)i % 9);
        memset(sw_meta_alloc(&meta, block), 1, block);
        uint64_t bytes = meta.chunks == NULL ? 0 : (uint64_t)(meta.bump_end - (char *)meta.chunks);
        uint64_t absent = 0, told = sw_meta_untouched_bytes(&meta, sw_log2_floor(page));
        if (bytes / page > PAGES || !sw_os_resident_pages(meta.chunks, bytes / page, resident))
            break;
        for (uint64_t n = 0; n < bytes / page; n++) absent += resident[n] ? 0 : page;
        if (absent != told) CHECK_EQ(i, -1);
    }
    CHECK(meta.held_bytes > 64 << 10);
    sw_meta_destroy(&meta);
}

/* Of a large object of 1,000,000 bytes 25 % are written: 250,000 bytes, which lie in 62 pages of 4 KiB. An
 * object in a slot is written whole. */
static void part_of_large_objects(void) {
    if (sw_os_page_bytes() != 4096) return;
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_runner *runner;
    sw_ledger l = {.struct_bytes = sizeof l};
    sw_op two[] = {{.kind = SW_OP_ALLOC, .size = 1000000},
                   {.kind = SW_OP_ALLOC, .object = 1, .size = 32768}};
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.dry = options.touch_map = options.tracked = 1;
    options.large_touched_percent = 25;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    CHECK_EQ(sw_runner_run(runner, two, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.requested_bytes, 62 * 4096);
    CHECK_EQ(sw_runner_run(runner, two + 1, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.requested_bytes, 62 * 4096 + 32768);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    options.large_touched_percent = 101;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "large_touched_percent 101 is above 100") != NULL);
    options.large_touched_percent = 25;
    options.touch_map = 0;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "is for heaps with touch_map") != NULL);
}

/* Of a large object of 1,000,000 bytes 32,768 millionths are 8 pages to the byte, one more takes a ninth page; 4 % are
 * 40,000 bytes, in 10 pages; all lie in 245. Of 100,000,003 bytes 2,500 millionths are 250,000.0075 bytes, in 62. */
static void millionths_of_large_objects(void) {
    if (sw_os_page_bytes() != 4096) return;
    static const struct {
        uint64_t ppm, size;
        uint8_t percent, pages;
    } cases[] = {{32768, 1000000, 0, 8},  {32769, 1000000, 0, 9}, {1000000, 1000000, 0, 245},
                 {1, 1000000, 0, 1},      {0, 1000000, 4, 10},    {0, 1000000, 0, 245},
                 {2500, 100000003, 0, 62}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_heap_options options;
        sw_heap *heap = NULL;
        sw_runner *runner;
        sw_ledger l = {.struct_bytes = sizeof l};
        sw_op one = {.kind = SW_OP_ALLOC, .size = cases[i].size};
        sw_heap_options_init(&options);
        options.dry = options.touch_map = options.tracked = 1;
        options.large_touched_ppm = cases[i].ppm;
        options.large_touched_percent = cases[i].percent;
        CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
        CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
        CHECK_EQ(sw_runner_run(runner, &one, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
        CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
        CHECK_EQ((l.requested_bytes + l.large_rounding_bytes) / 4096, cases[i].pages);
        sw_runner_destroy(runner);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
}

static void refused_shares(void) {
    static const struct {
        uint64_t ppm;
        uint8_t percent, touch_map;
        const char *said;
    } cases[] = {{1000001, 0, 1, "large_touched_ppm 1000001 is above 1000000"},
                 {UINT64_MAX, 0, 1, "is above 1000000"},
                 {1, 1, 1, "give one of them"},
                 {1, 0, 0, "large_touched_ppm is for heaps with touch_map"}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_heap_options options;
        sw_heap *heap = NULL;
        sw_heap_options_init(&options);
        options.dry = 1;
        options.touch_map = cases[i].touch_map;
        options.large_touched_ppm = cases[i].ppm;
        options.large_touched_percent = cases[i].percent;
        CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
        CHECK(strstr(sw_last_error()->message, cases[i].said) != NULL);
    }
}

/* Of a class whose hints begin in one page of the cache's record and end in the next, both pages are written once it
 * has all of them; with one hint the first is. No other class has hints. */
static void hints_over_two_pages(void) {
    enum { APART = 64, OBJECTS = APART * SW_HINTS_MAX + 8192 };
    static void *p[OBJECTS];
    sw_heap *heap = make(true, true, sw_table_c16());
    sw_cache *cache = NULL;
    sw_ledger none = {.struct_bytes = sizeof none}, one = none, all = none;
    cache = cache_of(heap);
    uint64_t page = sw_os_page_bytes(), start = (uintptr_t)cache, first = 0, last = 0;
    uint64_t bins_end = ((uintptr_t)&cache->bins[heap->span_classes] - 1 - start) / page;
    uint32_t cls = 0, classes = heap->table->class_count;
    while (first == last && ++cls < classes) {
        const sw_hint *hints = &cache->hints[(size_t)cls << SW_HINTS_LOG2];
        first = ((uintptr_t)hints - start) / page;
        last = ((uintptr_t)(hints + SW_HINTS_MAX) - 1 - start) / page;
    }
    CHECK(cls < classes || page > 4096);
    for (int i = 0; cls < classes && i < OBJECTS; i++)
        p[i] = sw_cache_alloc(cache, heap->table->classes[cls].size, 0);
    for (int i = 0; cls < classes && i <= SW_HINTS_MAX; i++) { /* each in a word of its own */
        CHECK_EQ(sw_heap_touched_read(heap, i == 0 ? &none : i == 1 ? &one : &all, NULL, 0), SW_OK);
        CHECK_EQ(cache->bins[cls * 2 + 1].hinted, (uint64_t)i * sizeof(sw_hint));
        if (i < SW_HINTS_MAX) sw_cache_free(cache, p[i * APART]);
    }
    CHECK_EQ(one.metadata_bytes, none.metadata_bytes + (first > bins_end ? page : 0));
    CHECK_EQ(all.metadata_bytes, one.metadata_bytes + (last > bins_end ? page : 0));
    CHECK(cls == classes || last > bins_end);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Spans that are written wholly, and one that is not: what is resident of objects is what was asked for, to the byte,
 * and all terms together are the pages that the map has. */
static void parts_are_the_map(const sw_heap *heap, const sw_ledger *l) {
    CHECK_EQ(l->held_bytes - l->metadata_bytes, sw_touch_map_bytes(&heap->pages.touch));
}

static void whole_spans(void) {
    enum { COUNT = 5000 };
    sw_heap *heap = make(true, true, sw_table_c16());
    sw_runner *runner;
    sw_ledger l = {.struct_bytes = sizeof l};
    uint64_t requested = 0, live = 0;
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    for (size_t i = 0; i < COUNT; i++) ops[i] = (sw_op){.object = (uint32_t)i, .size = 90 + i % 7};
    CHECK_EQ(sw_runner_run(runner, ops, COUNT, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    for (size_t i = 0; i < COUNT; i++) {
        sw_op death = {.kind = SW_OP_FREE, .object = (uint32_t)i};
        bool dies = i % 3 == 0;
        if (dies) CHECK_EQ(sw_runner_run(runner, &death, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
        requested += dies ? 0 : ops[i].size;
        live += !dies;
    }
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.requested_bytes, requested);
    CHECK_EQ(l.live_objects, live);
    CHECK(l.free_slot_bytes + l.cached_bytes > COUNT / 3 * 90);
    parts_are_the_map(heap, &l);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void refused(void) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_ledger l = {.struct_bytes = sizeof l};
    sw_heap_options_init(&options);
    options.touch_map = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "touch_map: a real heap asks the system") != NULL);
    options.touch_map = 0;
    options.dry = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_STATE);
    CHECK(strstr(sw_last_error()->message, "make it with touch_map") != NULL);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- dry beside real -------------------------------------------------------------------------- */

static void equal(const sw_ledger *a, const sw_ledger *b, size_t at) {
    if (memcmp(a, b, sizeof *a) == 0) return;
    const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
    for (size_t i = 0; i < sizeof *a / 8; i++)
        if (x[i] != y[i])
            fprintf(stderr, "op %zu, field %zu: dry %llu, real %llu\n", at, i,
                    (unsigned long long)x[i], (unsigned long long)y[i]);
    CHECK(false);
}

/* Bytes of [from, from + bytes) in pages that the system has given memory: present, and not the page of zeros, which
 * all that was only read share. Of a process that has not forked since. */
static uint64_t backed(int pagemap, const void *from, uint64_t bytes) {
    uint64_t page = sw_os_page_bytes(), sum = 0;
    uintptr_t start = (uintptr_t)from, end = start + bytes;
    for (uintptr_t at = sw_align_down(start, page); at < end; at += page) {
        uint64_t entry = 0;
        CHECK_EQ(pread(pagemap, &entry, 8, (off_t)(at / page * 8)), 8);
        bool there = (entry >> 63 & 1) != 0 && (entry >> 56 & 1) != 0;
        if (there) sum += sw_min_u64(at + page, end) - sw_max_u64(at, start);
    }
    return sum;
}

/* The first bytes of a chunk of metadata (ds/meta.c). */
typedef struct chunk_head {
    const struct chunk_head *next;
    size_t bytes;
} chunk_head;

/* The metadata of a ledger of touched bytes beside what the system has given memory. */
static void metadata_is_backed(const sw_heap *heap, uint64_t metadata) {
    uint64_t sum = 0, bytes;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) return; /* a kernel without it */
    sum += backed(pagemap, heap, sizeof *heap);
    for (uint32_t id = heap->batches; id != 0; id = heap->space->cold[id].batch_next) {
        sum += backed(pagemap, &heap->space->view.spans[id], SW_SPAN_BATCH * sizeof(sw_span));
        sum += backed(pagemap, &heap->space->cold[id], SW_SPAN_BATCH * sizeof(sw_span_cold));
    }
    for (uint32_t i = 0; i < heap->pages.window_count; i++) {
        const void *map = sw_pages_window_map(&heap->pages, &heap->pages.windows[i], &bytes);
        sum += backed(pagemap, map, bytes);
    }
    uint64_t chunks = 0, caches = 0;
    for (const chunk_head *c = (const void *)heap->meta.chunks; c != NULL; c = c->next) {
        sum += backed(pagemap, c, c->bytes);
        chunks += c->bytes;
    }
    for (const sw_cache *c = heap->caches; c != NULL; c = c->cold->next) {
        sum += backed(pagemap, c, sw_cache_record_bytes(heap));
        caches += sw_cache_record_bytes(heap);
    }
    CHECK(heap->meta.held_bytes >= chunks + caches);
    sum += heap->meta.held_bytes - chunks - caches; /* blocks that are mappings of their own */
    CHECK_EQ(metadata, sum);
    (void)close(pagemap);
}

/* Tracked, because a plain real heap takes specialised paths, which choose other slots. */
static void dry_equals_real(const sw_table *table, uint64_t seed) {
    enum { PARTS = 12, ROWS = 256 };
    static sw_ledger_class rows[2][ROWS];
    sw_ledger ledgers[2];
    sw_heap *heaps[2];
    sw_runner *runners[2];
    size_t count = make_ops(seed);
    uint64_t untouched = 0, returned = 0;
    for (int i = 0; i < 2; i++) {
        heaps[i] = make(i == 0, true, table);
        CHECK_EQ(sw_runner_create(heaps[i], &runners[i]), SW_OK);
    }
    for (size_t part = 0; part < PARTS; part++) {
        size_t at = count / PARTS * part;
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(sw_runner_run(runners[i], ops + at, count / PARTS, SW_TOUCH_PAGES, NULL, NULL),
                     SW_OK);
            ledgers[i].struct_bytes = sizeof ledgers[i];
            CHECK_EQ(sw_heap_touched_read(heaps[i], &ledgers[i], rows[i], ROWS), SW_OK);
        }
        equal(&ledgers[0], &ledgers[1], at);
        parts_are_the_map(heaps[0], &ledgers[0]);
        for (int i = 0; i < 2; i++) metadata_is_backed(heaps[i], ledgers[i].metadata_bytes);
        CHECK(memcmp(rows[0], rows[1], (sw_table_class_count(table) + 1) * sizeof rows[0][0]) == 0);
        sw_ledger held;
        CHECK_EQ(sw_heap_ledger(heaps[0], &held, NULL, 0), SW_OK);
        CHECK(ledgers[0].held_bytes <= held.held_bytes);
        CHECK(ledgers[0].requested_bytes > 0);
        untouched += held.held_bytes - ledgers[0].held_bytes;
        returned = held.returned_bytes;
    }
    CHECK(untouched > 1 << 20 && returned > 1 << 20); /* else nothing was compared */
    for (int i = 0; i < 2; i++) {
        sw_runner_destroy(runners[i]);
        CHECK_EQ(sw_heap_destroy(heaps[i]), SW_OK);
    }
}

/* Metadata of heaps that grow to 1 GiB, of which little is written: the page map as far as spans came, bitmaps of
 * several pages each, and caches whose frees leave hints in a few classes. */
static void metadata_equals_real(const sw_table *table, uint64_t seed) {
    enum { PARTS = 16, LARGE = 64 << 20 };
    sw_ledger ledgers[2];
    sw_heap *heaps[2];
    sw_runner *runners[2];
    size_t count = make_ops(seed) / 2;
    for (size_t i = 0; i < PARTS; i++)
        ops[count + i] = (sw_op){
            .object = IDS + (uint32_t)i, .size = LARGE + (i << 20), .time_ns = ops[count].time_ns};
    for (int i = 0; i < 2; i++) {
        heaps[i] = make(i == 0, true, table);
        CHECK_EQ(sw_runner_create(heaps[i], &runners[i]), SW_OK);
    }
    for (size_t part = 0; part < PARTS; part++) {
        for (int i = 0; i < 2; i++) {
            const sw_op *from = ops + count / PARTS * part, *large = ops + count + part;
            CHECK_EQ(sw_runner_run(runners[i], from, count / PARTS, SW_TOUCH_NONE, NULL, NULL), 0);
            CHECK_EQ(sw_runner_run(runners[i], large, 1, SW_TOUCH_NONE, NULL, NULL), SW_OK);
            ledgers[i].struct_bytes = sizeof ledgers[i];
            CHECK_EQ(sw_heap_touched_read(heaps[i], &ledgers[i], NULL, 0), SW_OK);
        }
        CHECK_EQ(ledgers[0].metadata_bytes, ledgers[1].metadata_bytes);
        for (int i = 0; i < 2; i++) metadata_is_backed(heaps[i], ledgers[i].metadata_bytes);
    }
    sw_ledger held;
    CHECK_EQ(sw_heap_ledger(heaps[0], &held, NULL, 0), SW_OK);
    CHECK(held.held_bytes > 1ull << 30);
    CHECK(held.metadata_bytes > ledgers[0].metadata_bytes + (64 << 10)); /* else it was all */
    for (int i = 0; i < 2; i++) {
        sw_runner_destroy(runners[i]);
        CHECK_EQ(sw_heap_destroy(heaps[i]), SW_OK);
    }
}

/* In a process of its own: what earlier heaps have written of the space stays resident. */
static void in_child(void (*run)(const sw_table *, uint64_t), const sw_table *table,
                     uint64_t seed) {
    int status = 0;
    pid_t child = child_begin();
    if (child == 0) {
        run(table, seed);
        _exit(check_result());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

int main(void) {
#if defined(__linux__)
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
#endif
    uint8_t known;
    static _Alignas(65536) char page[65536];
    page[0] = 1;
    if (sw_os_resident_pages(page, 1, &known)) {
        untouched_metadata();
        for (uint64_t seed = 1; seed <= 2; seed++) {
            in_child(dry_equals_real, sw_table_c16(), seed);
            in_child(dry_equals_real, sw_table_go(), seed);
            in_child(metadata_equals_real, sw_table_c16(), seed);
        }
    }
    map_equals_an_array();
    one_object();
    peak();
    ended_threads();
    closed_caches();
    instrument();
    part_of_large_objects();
    millionths_of_large_objects();
    refused_shares();
    hints_over_two_pages();
    whole_spans();
    refused();
    return check_result();
}

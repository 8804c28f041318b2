/* SPDX-License-Identifier: Apache-2.0 */
/* Touched bytes of a heap: the map of touched pages against an array of bools, and hand-computed
 * ledgers of touched bytes and peaks of a dry heap. Against real heaps: test_touched_pages.c. */
#include "os/os.h"
#include "touched_ops.h"

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

/* The peak, against the ledger of touched bytes after each operation. Its moment is within 1 % of
 * it, and at least as much is requested then as at the peak itself. A heap without a map has
 * none. */
static void peak(void) {
    enum { STEPS = 1500 };
    static uint64_t resident[STEPS + 1], requested[STEPS + 1];
    sw_heap *heap = make(true, true, sw_table_c16());
    uint64_t most = 0, most_op = 0, op = 7;
    sw_runner *runner = runner_of(heap);
    make_ops(3);
    for (size_t i = 0; i < STEPS; i++) {
        ops[i].time_ns = i * 5000000; /* idle pages go back in between */
        ops[i].size *= 8;             /* so that spans reach further pages of the page map */
        if (i > STEPS / 2 && ops[i].kind == SW_OP_REALLOC) ops[i].kind = SW_OP_FREE;
        CHECK_EQ(sw_runner_run(runner, ops + i, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
        sw_ledger l = touched_of(heap);
        resident[i + 1] = l.held_bytes;
        requested[i + 1] = l.requested_bytes;
        if (l.held_bytes <= most) continue;
        most = l.held_bytes;
        most_op = i + 1;
    }
    CHECK_EQ(sw_runner_resident_peak(runner, &op), most);
    CHECK(100 * resident[op] >= 99 * most && requested[op] >= requested[most_op]);
    CHECK(op > STEPS / 4 && most > 1 << 20);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = make(false, true, sw_table_c16());
    runner = runner_of(heap);
    CHECK_EQ(sw_runner_run(runner, ops, 100, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    CHECK_EQ(sw_runner_resident_peak(runner, NULL), 0);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Of 81 threads at once 80 end, and the other one allocates 4 MB: the peak is the ledger's after
 * the last operation. The records of 16 of the caches have one page left. */
static void ended_threads(void) {
    enum { THREADS = 80, STEPS = 3 * THREADS + 2, LARGE = 4 << 20 };
    sw_heap *heap = make(true, true, sw_table_c16());
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
    sw_runner *runner = runner_of(heap);
    CHECK_EQ(sw_runner_run(runner, ops, STEPS, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
    sw_ledger l = touched_of(heap);
    CHECK_EQ(l.requested_bytes, LARGE + 100);
    CHECK_EQ(sw_runner_resident_peak(runner, &op), l.held_bytes);
    CHECK_EQ(op, STEPS);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Requested sizes are an instrument: a tracked heap holds what one holds that keeps none, in each
 * term, and refuses what that refuses. What they take, 2 bytes a slot, is counted apart. */
static void instrument(void) {
    enum { STEPS = 9000 };
    sw_ledger l[2];
    make_ops(11);
    for (int tracked = 0; tracked < 2; tracked++) {
        sw_heap *heap = make(true, tracked == 1, sw_table_c16());
        sw_runner *runner = runner_of(heap);
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

/* Of a large object of 1,000,000 bytes 32,768 millionths are 8 pages to the byte, one more takes a
 * ninth page; 4 % are 40,000 bytes, in 10 pages, 25 % are 250,000 in 62; all are in 245. Of
 * 100,000,003 bytes 2,500 millionths are 250,000.0075 bytes, in 62. */
static void part_of_large_objects(void) {
    if (sw_os_page_bytes() != 4096) return;
    static const struct {
        uint64_t ppm, size;
        uint8_t percent, pages;
    } cases[] = {{32768, 1000000, 0, 8},     {32769, 1000000, 0, 9},
                 {1000000, 1000000, 0, 245}, {1, 1000000, 0, 1},
                 {0, 1000000, 4, 10},        {0, 1000000, 0, 245},
                 {2500, 100000003, 0, 62},   {0, 1000000, 25, 62},
                 {0, 32768, 25, 8}}; /* the last has a slot, which is written whole */
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_op one = {.kind = SW_OP_ALLOC, .size = cases[i].size};
        sw_heap *heap =
            MADE(sw_heap, o.dry = o.touch_map = o.tracked = 1, o.large_touched_ppm = cases[i].ppm,
                 o.large_touched_percent = cases[i].percent);
        sw_runner *runner = runner_of(heap);
        CHECK_EQ(sw_runner_run(runner, &one, 1, SW_TOUCH_PAGES, NULL, NULL), SW_OK);
        sw_ledger l = touched_of(heap);
        CHECK_EQ((l.requested_bytes + l.large_rounding_bytes) / 4096, cases[i].pages);
        sw_runner_destroy(runner);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
}

static void refused(void) {
    static const struct {
        uint64_t ppm;
        uint8_t percent, touch_map, dry;
        const char *said;
    } cases[] = {{1000001, 0, 1, 1, "large_touched_ppm 1000001 is above 1000000"},
                 {UINT64_MAX, 0, 1, 1, "is above 1000000"},
                 {1, 1, 1, 1, "give one of them"},
                 {1, 0, 0, 1, "large_touched_ppm is for heaps with touch_map"},
                 {0, 101, 1, 1, "large_touched_percent 101 is above 100"},
                 {0, 25, 0, 1, "is for heaps with touch_map"},
                 {0, 0, 1, 0, "touch_map: a real heap asks the system"}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        REFUSED(sw_heap, SW_INVALID, o.dry = cases[i].dry, o.touch_map = cases[i].touch_map,
                o.large_touched_ppm = cases[i].ppm, o.large_touched_percent = cases[i].percent);
        CHECK(strstr(sw_last_error()->message, cases[i].said) != NULL);
    }
    sw_heap *heap = MADE(sw_heap, o.dry = true);
    CHECK_EQ(sw_heap_touched_read(heap, &(sw_ledger){.struct_bytes = sizeof(sw_ledger)}, NULL, 0),
             SW_STATE);
    CHECK(strstr(sw_last_error()->message, "make it with touch_map") != NULL);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Of a class whose hints begin in one page of the cache's record and end in the next, both pages
 * are written once it has all of them; with one hint the first is. No other class has hints. */
static void hints_over_two_pages(void) {
    enum { APART = 64, OBJECTS = APART * SW_HINTS_MAX + 8192 };
    static void *p[OBJECTS];
    sw_heap *heap = make(true, true, sw_table_c16());
    sw_ledger none = {.struct_bytes = sizeof none}, one = none, all = none;
    sw_cache *cache = cache_of(heap);
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

int main(void) {
    map_equals_an_array();
    peak();
    ended_threads();
    instrument();
    part_of_large_objects();
    hints_over_two_pages();
    refused();
    return check_result();
}

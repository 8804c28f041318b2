/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a heap are resident: the map of touched pages beside an array of truth values, and the
 * ledger of touched bytes of a dry heap beside that of a real one, which the system is asked for. */
#include "base/bits.h"
#include "check.h"
#include "ds/meta.h"
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
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    options.table = table;
    options.dry = options.touch_map = dry;
    options.tracked = tracked;
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
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

int main(void) {
#if defined(__linux__)
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
#endif
    map_equals_an_array();
    one_object();
    peak();
    instrument();
    part_of_large_objects();
    refused();
    uint8_t known;
    static _Alignas(65536) char page[65536];
    page[0] = 1;
    if (sw_os_resident_pages(page, 1, &known)) untouched_metadata();
    if (sw_os_resident_pages(page, 1, &known))
        for (uint64_t seed = 1; seed <= 2; seed++) {
            dry_equals_real(sw_table_c16(), seed);
            dry_equals_real(sw_table_go(), seed);
        }
    return check_result();
}

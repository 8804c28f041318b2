/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's measurements: of short histories by hand (the mean of held over requested, a row of
 * the time line), and of a long random one against the program's own counts. */
#include "runner_ops.h"

enum { ALLOC = SW_OP_ALLOC, FREE = SW_OP_FREE, REALLOC = SW_OP_REALLOC, STEPS_MAX = 16 };

static sw_heap *heap;
static sw_runner *runner;
static uint64_t held[STEPS_MAX]; /* after each operation */
static uint64_t steady_from;

/* Runs operations one by one. */
static sw_replay_stats run_steps(const sw_op *ops, size_t count) {
    sw_replay_stats stats;
    heap = MADE(sw_heap, o.table = sw_table_go(), o.tracked = 1, o.dry = 1, o.manual_clock = 1);
    runner = runner_of(heap);
    CHECK_EQ(sw_runner_sample_every(runner, 1), SW_OK);
    sw_runner_steady_from(runner, steady_from);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(sw_runner_run(runner, &ops[i], 1, 0, NULL, NULL), SW_OK);
        held[i] = sw_heap_held_bytes(heap);
    }
    sw_runner_stats(runner, &stats);
    return stats;
}

static void end_run(void) {
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* An operation after which nothing is live has no part in the mean. */
static void mean_of_held_over_requested(void) {
    const sw_op ops[] = {{.kind = ALLOC, .object = 0, .size = 40},
                         {.kind = REALLOC, .object = 0, .size = 80},
                         {.kind = FREE, .object = 0},
                         {.kind = ALLOC, .object = 0, .size = 0},
                         {.kind = ALLOC, .object = 1, .size = 160}};
    sw_replay_stats s = run_steps(ops, 5);
    double sum = (double)held[0] / 40 + (double)held[1] / 80 + (double)held[4] / 160;
    CHECK_EQ(s.held_over_requested_count, 3);
    CHECK(s.held_over_requested_sum > sum * 0.9999999);
    CHECK(s.held_over_requested_sum < sum * 1.0000001);
    CHECK_EQ(s.allocated_bytes, 40 + 40 + 160); /* a realloc adds what it grows by */
    CHECK_EQ(s.reallocs, 1);
    CHECK_EQ(s.allocs, 3);
    CHECK_EQ(s.frees, 1);
    end_run();
}

/* The start has no part in the steady mean: it begins with the third operation, after which 200
 * bytes are live, and goes on where fewer are. */
static void mean_without_the_start(void) {
    const sw_op ops[] = {{.kind = ALLOC, .object = 0, .size = 40},
                         {.kind = ALLOC, .object = 1, .size = 150},
                         {.kind = ALLOC, .object = 2, .size = 10},
                         {.kind = FREE, .object = 1},
                         {.kind = ALLOC, .object = 3, .size = 1000}};
    (void)run_steps(ops, 5);
    CHECK(sw_runner_steady_mean(runner) == 0);
    uint64_t seen[5];
    memcpy(seen, held, sizeof seen);
    end_run();
    static const uint64_t live[] = {40, 190, 200, 50, 1050}, from[] = {1, 190, 200, 201, 1051};
    static const size_t first[] = {0, 1, 2, 4, 5};
    for (size_t i = 0; i < 5; i++) {
        double sum = 0;
        for (size_t k = first[i]; k < 5; k++) sum += (double)seen[k] / (double)live[k];
        double mean = first[i] == 5 ? 0 : sum / (double)(5 - first[i]);
        steady_from = from[i];
        (void)run_steps(ops, 5);
        steady_from = 0;
        double reported = sw_runner_steady_mean(runner);
        CHECK(reported >= mean * 0.9999999 && reported <= mean * 1.0000001);
        end_run();
    }
}

/* Slots: 100 bytes take 112, 50 take 64; 40,000 take five pages. */
static void rows_of_the_time_line(void) {
    const sw_op ops[] = {{.kind = ALLOC, .object = 0, .size = 100, .time_ns = 5},
                         {.kind = ALLOC, .object = 1, .size = 50, .time_ns = 7},
                         {.kind = ALLOC, .object = 2, .size = 40000, .time_ns = 7},
                         {.kind = ALLOC, .object = 4, .size = 2 << 20, .time_ns = 9},
                         {.kind = FREE, .object = 4, .time_ns = 11}};
    static const uint64_t requested[] = {100, 150, 40150, 40150 + (2 << 20), 40150};
    static const uint64_t slots[] = {112, 176, 176 + 40960, 176 + 40960 + (2 << 20), 176 + 40960};
    static const uint64_t objects[] = {1, 2, 3, 4, 3}, free_pages[] = {0, 0, 0, 0, 2 << 20};
    sw_replay_sample rows[8];
    (void)run_steps(ops, 5);
    CHECK_EQ(sw_runner_samples(runner, rows, 8), 5);
    for (size_t i = 0; i < 5; i++) {
        CHECK_EQ(rows[i].op, i + 1);
        CHECK_EQ(rows[i].time_ns, ops[i].time_ns);
        CHECK_EQ(rows[i].requested_bytes, requested[i]);
        CHECK_EQ(rows[i].live_objects, objects[i]);
        CHECK_EQ(rows[i].slot_bytes, slots[i]);
        CHECK_EQ(rows[i].held_bytes, held[i]);
        CHECK_EQ(rows[i].free_page_bytes, free_pages[i]);
    }
    end_run();
}

/* What the runner must report after all of ops, from the operations and the heap's held bytes. */
static void stats_are_true(bool dry) {
    static uint64_t size[OBJECTS];
    sw_heap *heap = make_heap(dry);
    sw_replay_stats s, w = {0};
    make_ops(3);
    memset(size, 0, sizeof size);
    sw_runner *runner = runner_of(heap);
    for (size_t i = 0; i < COUNT; i++) {
        size_t done = 9;
        const sw_op *op = &ops[i];
        CHECK_EQ(sw_runner_run(runner, op, 1, 1, NULL, &done), SW_OK);
        CHECK_EQ(done, 1);
        w.requested_bytes += op->size - (op->kind == SW_OP_ALLOC ? 0 : size[op->object]);
        w.allocs += op->kind == SW_OP_ALLOC;
        w.frees += op->kind == SW_OP_FREE;
        w.reallocs += op->kind == SW_OP_REALLOC;
        w.live_objects += op->kind == SW_OP_ALLOC;
        w.live_objects -= op->kind == SW_OP_FREE;
        size[op->object] = op->size;
        uint64_t held = sw_heap_held_bytes(heap);
        if (w.requested_bytes > w.peak_requested_bytes) {
            w.peak_requested_bytes = w.requested_bytes;
            w.peak_op = i + 1;
            w.held_at_peak = held;
        }
        if (held > w.peak_held_bytes) {
            w.peak_held_bytes = held;
            w.requested_at_peak_held = w.requested_bytes;
        }
        if (w.live_objects > w.peak_live_objects) w.peak_live_objects = w.live_objects;
        if (w.requested_bytes != 0) {
            w.held_over_requested_sum += (double)held / (double)w.requested_bytes;
            w.held_over_requested_count++;
        }
    }
    sw_runner_stats(runner, &s);
    CHECK_EQ(s.ops, COUNT);
    CHECK_EQ(s.allocs, w.allocs);
    CHECK_EQ(s.frees, w.frees);
    CHECK_EQ(s.reallocs, w.reallocs);
    CHECK_EQ(s.failed, 0);
    CHECK_EQ(s.skipped, 0);
    CHECK_EQ(s.requested_bytes, w.requested_bytes);
    CHECK_EQ(s.live_objects, w.live_objects);
    CHECK_EQ(s.peak_requested_bytes, w.peak_requested_bytes);
    CHECK_EQ(s.peak_op, w.peak_op);
    CHECK_EQ(s.peak_live_objects, w.peak_live_objects);
    CHECK_EQ(s.held_bytes, sw_heap_held_bytes(heap));
    CHECK_EQ(s.peak_held_bytes, w.peak_held_bytes);
    CHECK_EQ(s.held_at_peak, w.held_at_peak);
    CHECK_EQ(s.requested_at_peak_held, w.requested_at_peak_held);
    CHECK_EQ(s.held_over_requested_count, w.held_over_requested_count);
    CHECK(s.held_over_requested_sum > w.held_over_requested_sum * 0.999999);
    CHECK(s.held_over_requested_sum < w.held_over_requested_sum * 1.000001);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.requested_bytes, s.requested_bytes);
    CHECK_EQ(ledger.live_objects, s.live_objects);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_runner_drain(runner);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void samples(void) {
    static sw_replay_sample rows[2048];
    sw_heap *heap = make_heap(true);
    make_ops(4);
    sw_runner *runner = runner_of(heap);
    CHECK_EQ(sw_runner_samples(runner, rows, 2048), 0);
    CHECK_EQ(sw_runner_sample_every(runner, 1), SW_OK);
    CHECK_EQ(sw_runner_run(runner, ops, COUNT, 0, NULL, NULL), SW_OK);
    size_t n = sw_runner_samples(runner, NULL, 0);
    CHECK(n >= 1000 && n <= 2048);
    CHECK_EQ(sw_runner_samples(runner, rows, 2048), n);
    for (size_t i = 0; i < n; i++) {
        CHECK_EQ(rows[i].time_ns, (rows[i].op - 1) * 1000);
        CHECK(rows[i].slot_bytes >= rows[i].requested_bytes);
        CHECK(rows[i].held_bytes >= rows[i].slot_bytes + rows[i].free_page_bytes);
        if (i > 0) CHECK(rows[i].op > rows[i - 1].op);
        if (i > 1) CHECK_EQ(rows[i].op - rows[i - 1].op, rows[1].op - rows[0].op);
    }
    CHECK(rows[n - 1].op > COUNT * 3 / 4);
    CHECK_EQ(sw_runner_sample_every(runner, 0), SW_OK);
    size_t done;
    sw_op op = {.kind = SW_OP_ALLOC, .object = OBJECTS + 1, .size = 5};
    CHECK_EQ(sw_runner_run(runner, &op, 1, 0, NULL, &done), SW_OK);
    CHECK_EQ(sw_runner_samples(runner, NULL, 0), n); /* off */
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    mean_of_held_over_requested();
    mean_without_the_start();
    rows_of_the_time_line();
    stats_are_true(true);
    stats_are_true(false);
    samples();
    return check_result();
}

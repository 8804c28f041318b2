/* SPDX-License-Identifier: Apache-2.0 */
/* The message server: bins of latencies, replies that do not depend on the strategy, open and
 * closed loops, invalid loads. tests/python/lessons/test_service.py checks the replies against a
 * model. */
#include <stdbool.h>

#include "check.h"
#include "service/service.h"
#include "spanwise/spanwise.h"

/* Below 128 a bin is one number; above, bins adjoin and are at most a 128th of their floor wide. */
static void bins_are_narrow(void) {
    uint64_t before = 0;
    for (uint32_t bin = 0; bin < SW_SERVICE_BINS; bin++) {
        uint64_t floor = sw_service_bin_floor(bin);
        CHECK_EQ(sw_service_bin(floor), bin);
        if (bin > 0) CHECK_EQ(sw_service_bin(floor - 1), bin - 1);
        if (bin < 128) CHECK_EQ(floor, bin);
        if (bin > 128) CHECK(floor - before <= before / 128);
        before = floor;
    }
    CHECK_EQ(sw_service_bin(UINT64_MAX), SW_SERVICE_BINS - 1);
    CHECK_EQ(sw_service_bin(1000),
             506); /* 250 times 4: of bins that are 4 wide, which follow bin 256 */
}

static sw_service_load load_of(uint32_t strategy) {
    return (sw_service_load){.strategy = strategy,
                             .connections = 20,
                             .messages = 3000,
                             .batch = 32,
                             .payload_bytes = 128,
                             .churn = 50,
                             .percent = 100,
                             .seed = 1};
}

static void every_strategy_replies_the_same(void) {
    sw_service_result first = {0};
    for (uint32_t strategy = 0; strategy < SW_SERVICE_STRATEGY_COUNT; strategy++) {
        for (uint32_t safe = 0; safe < 2; safe++) {
            sw_service_load load = load_of(strategy);
            sw_service_result result;
            load.safe = safe;
            if (strategy == SW_SERVICE_collected) load.messages = 40000 / (1 + 9 * safe);
            sw_status status = sw_service_run(&load, NULL, &result);
            if (safe != 0 && status == SW_NOMEM) continue; /* the system tells of no faults */
            CHECK_EQ(status, SW_OK);
            CHECK_EQ(result.allocs, 4 * load.messages);
            CHECK_EQ(result.opened, 20 + load.messages / 50);
            if (strategy == SW_SERVICE_collected) {
                CHECK(safe != 0 || (result.collections > 0 && result.pause_ns > 0));
                CHECK(result.longest_pause_ns <= result.pause_ns);
                continue;
            }
            CHECK_EQ(result.collections, 0);
            if (strategy == 0 && safe == 0) first = result;
            CHECK_EQ(result.checksum, first.checksum);
            CHECK_EQ(result.requested_bytes, first.requested_bytes);
        }
    }
    CHECK(first.checksum != 0 && first.requested_bytes > first.allocs * 32);
}

static void a_collected_heap_replies_the_same(void) {
    sw_service_result one, other;
    sw_service_load load = load_of(SW_SERVICE_collected);
    load.live_bytes = 100000;
    CHECK_EQ(sw_service_run(&load, NULL, &one), SW_OK);
    load = load_of(SW_SERVICE_heap);
    CHECK_EQ(sw_service_run(&load, NULL, &other), SW_OK);
    CHECK_EQ(one.checksum, other.checksum);
}

/* An arena a message, or a batch, and one that no message came to any more. */
static void arenas_are_as_many_as_batches(void) {
    static const struct {
        uint32_t strategy, batch;
        uint64_t arenas;
    } cases[] = {{SW_SERVICE_heap, 32, 0},
                 {SW_SERVICE_arena, 32, 3001},
                 {SW_SERVICE_batch, 32, 94}, /* 93 of 32 messages, and one of 24 */
                 {SW_SERVICE_arena_pool, 1500, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_service_load load = load_of(cases[i].strategy);
        sw_service_result result;
        sw_tracker *tracker = NULL;
        sw_tracker_totals totals;
        load.batch = cases[i].batch;
        CHECK_EQ(sw_tracker_create(NULL, &tracker), SW_OK);
        CHECK_EQ(sw_service_run(&load, NULL, &result), SW_OK);
        CHECK_EQ(sw_tracker_check(tracker, &totals), SW_OK);
        CHECK_EQ(totals.events, 2 * cases[i].arenas); /* made and freed */
        sw_tracker_destroy(tracker);
    }
}

/* Of how many messages there are times, and the sum of these, each rounded down to its bin. */
static uint64_t times_of(const uint64_t *bins, uint64_t *sum_ns) {
    uint64_t times = 0;
    *sum_ns = 0;
    for (uint32_t bin = 0; bin < SW_SERVICE_BINS; bin++) {
        times += bins[bin];
        *sum_ns += bins[bin] * sw_service_bin_floor(bin);
    }
    return times;
}

/* In a closed loop the latencies do not overlap, so their sum is at most the elapsed time. If all
 * messages are due at once, each waits for its predecessors, and the sum is larger. */
static void open_loops_count_from_the_arrival(void) {
    static uint64_t bins[SW_SERVICE_BINS];
    sw_service_load load = load_of(SW_SERVICE_batch);
    sw_service_result open, closed;
    uint64_t sum_ns;
    CHECK_EQ(sw_service_run(&load, bins, &closed), SW_OK);
    CHECK_EQ(times_of(bins, &sum_ns), load.messages);
    CHECK(sum_ns <= closed.elapsed_ns);
    load.rate = 1e12;
    CHECK_EQ(sw_service_run(&load, bins, &open), SW_OK);
    CHECK_EQ(times_of(bins, &sum_ns), load.messages);
    CHECK(sum_ns > open.elapsed_ns);
    CHECK_EQ(open.checksum, closed.checksum);
    load.messages = 100;
    load.rate = 1e5; /* a millisecond in all */
    CHECK_EQ(sw_service_run(&load, bins, &open), SW_OK);
    CHECK(open.elapsed_ns > 500000);
}

static void refuses_what_is_wrong(void) {
    sw_service_load bad[7];
    sw_service_result result;
    for (int i = 0; i < 7; i++) bad[i] = load_of(SW_SERVICE_heap);
    bad[0].strategy = SW_SERVICE_STRATEGY_COUNT;
    bad[1].connections = 0;
    bad[2].messages = 0;
    bad[3].batch = 0;
    bad[4].payload_bytes = 0;
    bad[5].payload_bytes = SW_SERVICE_PAYLOAD_MAX / 4 + 1;
    bad[6].rate = -1;
    for (int i = 0; i < 7; i++) CHECK_EQ(sw_service_run(&bad[i], NULL, &result), SW_INVALID);
}

int main(void) {
    bins_are_narrow();
    every_strategy_replies_the_same();
    a_collected_heap_replies_the_same();
    arenas_are_as_many_as_batches();
    open_loops_count_from_the_arrival();
    refuses_what_is_wrong();
    return check_result();
}

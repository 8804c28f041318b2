/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a call on a range as the number of holes grows: machine instructions, counted by the
 * processor's single-step trap, so that the count is the same on a busy machine. free_size and
 * largest_hole of trees execute as many with 4,096 holes as with 64 (O(1)); find, a pair of alloc
 * and free, and a buddy's largest_hole at most four times as many (of O(log n) they would be twice,
 * of O(n) 64 times). */
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>
#include <x86intrin.h>

#include "check.h"
#include "spanwise/range.h"

enum { FEW = 64, MANY = 4096, PIECE_MAX = 64, REQUESTS = 4, STEPS_MAX = 20000 };

static const unsigned long long TRAP_FLAG = 1 << 8;

static volatile sig_atomic_t steps;

static void count_step(int number) {
    (void)number;
    if (++steps < STEPS_MAX) return;
    static const char text[] = "a call executes more than 20,000 instructions\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

/* Each instruction from here on is a SIGTRAP, until step_end. */
static inline __attribute__((always_inline)) void step_begin(void) {
    steps = 0;
    __writeeflags(__readeflags() | TRAP_FLAG);
}
static inline __attribute__((always_inline)) uint64_t step_end(void) {
    __writeeflags(__readeflags() & ~TRAP_FLAG);
    return (uint64_t)steps;
}

typedef struct cost {
    uint64_t free_size, largest_hole, find, pair;
} cost;

/* Holes of 1 to PIECE_MAX, each after a taken piece; of a buddy one unit each. */
static sw_range *make(uint32_t backend, uint64_t holes) {
    sw_range_options options;
    sw_range *range = NULL;
    sw_range_options_init(&options);
    options.backend = backend;
    options.unit = 1;
    uint64_t size = holes * (backend == SW_RANGE_BUDDY ? 2 : PIECE_MAX + 1), seed = 21;
    CHECK_EQ(sw_range_create(size, &options, &range), SW_OK);
    if (backend == SW_RANGE_BUDDY) {
        for (uint64_t i = 0; i < 2 * holes; i++) CHECK(sw_range_alloc(range, 1) != SW_RANGE_NONE);
        for (uint64_t i = 0; i < holes; i++) CHECK_EQ(sw_range_free(range, 2 * i, 1), SW_OK);
        return range;
    }
    CHECK_EQ(sw_range_alloc(range, size), 0);
    for (uint64_t i = 0; i < holes; i++)
        CHECK_EQ(sw_range_free(range, 1 + i * (PIECE_MAX + 1), 1 + check_random(&seed) % PIECE_MAX),
                 SW_OK);
    return range;
}

static cost cost_of(uint32_t backend, uint64_t holes) {
    sw_range *range = make(backend, holes);
    cost found = {0, 0, 0, 0};
    volatile uint64_t answer;
    (void)sw_range_find(range, PIECE_MAX); /* the hole that grew last is recorded now */
    step_begin();
    answer = sw_range_free_size(range);
    found.free_size = step_end();
    CHECK(answer >= holes);
    step_begin();
    answer = sw_range_largest_hole(range);
    found.largest_hole = step_end();
    CHECK_EQ(answer, backend == SW_RANGE_BUDDY ? 1 : PIECE_MAX);
    for (uint64_t i = 0; i < REQUESTS; i++) {
        uint64_t size = backend == SW_RANGE_BUDDY ? 1 : PIECE_MAX - i;
        step_begin();
        answer = sw_range_find(range, size);
        found.find += step_end();
        CHECK(answer != SW_RANGE_NONE);
        step_begin();
        uint64_t at = sw_range_alloc(range, size);
        sw_status status = sw_range_free(range, at, size);
        found.pair += step_end();
        CHECK_EQ(at, answer);
        CHECK_EQ(status, SW_OK);
    }
    found.find /= REQUESTS;
    found.pair /= REQUESTS;
    CHECK_EQ(sw_range_verify(range), SW_OK);
    sw_range_destroy(range);
    return found;
}

static void costs_do_not_grow_with_holes(uint32_t backend) {
    cost few = cost_of(backend, FEW), many = cost_of(backend, MANY);
    printf("%-6s instructions with %d and %d holes: free_size %" PRIu64 ", %" PRIu64
           "; largest_hole %" PRIu64 ", %" PRIu64 "; find %" PRIu64 ", %" PRIu64
           "; alloc and free %" PRIu64 ", %" PRIu64 "\n",
           sw_range_backend_name(backend), FEW, MANY, few.free_size, many.free_size,
           few.largest_hole, many.largest_hole, few.find, many.find, few.pair, many.pair);
    CHECK_EQ(many.free_size, few.free_size);
    if (backend != SW_RANGE_BUDDY) CHECK_EQ(many.largest_hole, few.largest_hole);
    CHECK(many.largest_hole <= 4 * few.largest_hole);
    CHECK(many.find <= 4 * few.find);
    CHECK(many.pair <= 4 * few.pair);
}

/* A loop that executes more is counted as more. Without the trap (an emulator) nothing is to be
 * learnt. */
static bool counts_steps(void) {
    uint64_t counts[2];
    for (uint64_t round = 0; round < 2; round++) {
        volatile uint64_t sum = 0;
        step_begin();
        for (uint64_t i = 0; i < 10 + 10 * round; i++) sum += i;
        counts[round] = step_end();
        CHECK_EQ(sum, round == 0 ? 45 : 190); /* the sums of the numbers below 10 and below 20 */
    }
    CHECK(counts[0] == 0 || counts[1] > counts[0] + 10);
    return counts[0] != 0;
}

int main(void) {
    struct sigaction action = {.sa_handler = count_step};
    CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
    if (!counts_steps()) puts("skipped: single steps raise no signal here");
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++)
        costs_do_not_grow_with_holes(backend);
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Range allocators: hand-written cases of arguments, buddies, owners and locks, scopes; then random
 * requests and frees of every kind, also invalid ones, against a map of bytes (range_model.h). The
 * latter covers every back end with every placement that it supports, and their metadata: no
 * allocation once grown, no change if memory is refused. Costs in machine instructions. One argument:
 * operations per combination (10,000,000 for the full form, which takes some minutes). */
#include "range/range.h"
#include "range_memory.h"
#include "range_model.h"
#include "spawn.h"

static sw_range_options options_of(uint32_t backend, uint64_t unit) {
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = backend;
    options.unit = unit;
    return options;
}

static sw_range *make(uint32_t backend, uint64_t size, uint64_t unit) {
    sw_range_options options = options_of(backend, unit);
    sw_range *range = NULL;
    CHECK_EQ(sw_range_create(size, &options, &range), SW_OK);
    return range;
}

static void end(sw_range *range) {
    CHECK_EQ(sw_range_verify(range), SW_OK);
    sw_range_destroy(range);
}

/* Every list of holes as text: "0+10 30+5". */
static const char *holes_of(sw_range *range) {
    static char text[400];
    sw_range_hole holes[16];
    size_t count = sw_range_holes(range, 0, holes, 16), used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 "+%" PRIu64,
                                 i == 0 ? "" : " ", holes[i].start, holes[i].size);
    return text;
}

static void refuses_bad_arguments(uint32_t backend) {
    sw_range *range = make(backend, 4096, 64);
    uint64_t at = sw_range_alloc(range, 64);
    sw_range_stats before = STATS(sw_range, range);
    CHECK_EQ(sw_range_alloc(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK_EQ(sw_range_find(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK_EQ(sw_range_alloc(range, 4097), SW_RANGE_NONE);
    CHECK_EQ(sw_range_alloc(range, UINT64_MAX), SW_RANGE_NONE);
    CHECK_EQ(sw_range_find(range, UINT64_MAX), SW_RANGE_NONE);
    CHECK_EQ(sw_range_free(range, at, 0), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 4096, 1), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 4095, 2), SW_INVALID);
    CHECK_EQ(sw_range_free(range, UINT64_MAX, 2), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 1, UINT64_MAX), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "not inside the range") != NULL);
    CHECK_EQ(sw_range_free_size(range), before.free_size);
    CHECK_EQ(sw_range_free(range, at, 64), SW_OK);
    end(range);
}

static void refuses_bad_options(void) {
    sw_range_options options;
    sw_range *range = NULL;
    sw_range_options_init(&options);
    CHECK_EQ(sw_range_create(0, &options, &range), SW_INVALID);
    CHECK_EQ(sw_range_create(SW_RANGE_SIZE_MAX + 1, &options, &range), SW_INVALID);
    options.backend = SW_RANGE_BACKEND_COUNT;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.backend = SW_RANGE_BUDDY;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID); /* no unit of 1024 fits */
    options.unit = 3;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.unit = 4;
    options.orders = 49;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.orders = 0;
    options.placement = SW_RANGE_FIT_NEXT;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_UNSUPPORTED);
    options.placement = SW_RANGE_FIT_COUNT;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.struct_bytes = 4;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    CHECK(range == NULL);
    CHECK(sw_range_backend_name(SW_RANGE_BACKEND_COUNT) == NULL);
}

/* --- buddies ---------------------------------------------------------------------------------- */

static void buddy_of_an_odd_size(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 23 * 8 + 5, 8); /* 16 + 4 + 2 + 1 units */
    CHECK_STR(holes_of(range), "0+128 128+32 160+16 176+8");
    CHECK_EQ(STATS(sw_range, range).tail, 5);
    CHECK_EQ(sw_range_free_size(range), 184);
    CHECK_EQ(sw_range_free(range, 184, 5), SW_INVALID);
    CHECK_EQ(sw_range_alloc(range, 16), 160);
    end(range);
}

/* The last block ends where the table does, so its buddy would be past both. The memory is exactly
 * as large as the request, and a sanitizer finds a read past it. */
static void buddy_without_a_buddy(void) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(SW_RANGE_BUDDY, 8);
    sw_range *range;
    options.memory = &allocator;
    CHECK_EQ(sw_range_create(24 * 8, &options, &range), SW_OK); /* 16 + 8 units */
    CHECK_EQ(sw_range_alloc(range, 64), 128);
    CHECK_EQ(sw_range_free(range, 128, 64), SW_OK);
    CHECK_STR(holes_of(range), "0+128 128+64");
    end(range);
}

static void buddy_has_a_small_table(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 64 * 1024, 1024);
    CHECK(STATS(sw_range, range).held_bytes < 1024);
    end(range);
}

/* An earlier library rounded sizes of a buddy up in 32 bits. */
static void buddy_of_sizes_above_32_bits(void) {
    sw_range *range = make(SW_RANGE_BUDDY, UINT64_C(64) << 32, UINT64_C(1) << 30);
    CHECK_EQ(sw_range_alloc(range, (UINT64_C(5) << 32) + 1), 0); /* 8 << 32 of 64 */
    CHECK_EQ(sw_range_free_size(range), UINT64_C(56) << 32);
    CHECK_EQ(sw_range_alloc(range, UINT64_C(33) << 32), SW_RANGE_NONE); /* rounded up to 64 << 32 */
    CHECK_EQ(sw_range_alloc(range, UINT64_C(32) << 32), UINT64_C(32) << 32);
    CHECK_EQ(sw_range_free(range, 0, (UINT64_C(5) << 32) + 1), SW_OK);
    CHECK_EQ(sw_range_free_size(range), UINT64_C(32) << 32);
    end(range);
}

/* --- threads and scopes ----------------------------------------------------------------------- */

static void *takes_a_foreign_range(void *arg) {
    sw_range *range = arg;
    sw_range_stats stats;
    sw_range_hole hole;
    CHECK_EQ(sw_range_alloc(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    CHECK_EQ(sw_range_find(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_range_fast_find(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_range_free(range, 0, 10), SW_OWNER);
    CHECK_EQ(sw_range_reset(range), SW_OWNER);
    CHECK_EQ(sw_range_free_size(range), 0);
    CHECK_EQ(sw_range_largest_hole(range), 0);
    CHECK_EQ(sw_range_holes(range, 0, &hole, 1), 0);
    CHECK_EQ(sw_range_get_stats(range, &stats), SW_OWNER);
    CHECK_EQ(sw_range_verify(range), SW_OWNER);
    sw_range_destroy(range);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    return NULL;
}

static void *takes_it_over(void *arg) {
    CHECK_EQ(sw_range_adopt(arg), SW_OK);
    CHECK_EQ(sw_range_alloc(arg, 10), 10);
    return NULL;
}

/* The article's example of two threads that share an unlocked allocator. */
static void another_thread_is_refused(uint32_t backend) {
    sw_range *range = make(backend, 4096, 2);
    CHECK_EQ(sw_range_alloc(range, 10), 0);
    (void)in_thread(takes_a_foreign_range, range);
    CHECK_EQ(sw_range_free_size(range), backend == SW_RANGE_BUDDY ? 4096 - 16 : 4096 - 10);
    CHECK_EQ(STATS(sw_range, range).refused, 0);
    sw_range_destroy(range);
    range = make(SW_RANGE_BTREE, 4096, 0);
    CHECK_EQ(sw_range_alloc(range, 10), 0);
    (void)in_thread(takes_it_over, range);
    CHECK_EQ(sw_range_alloc(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    CHECK_EQ(sw_range_adopt(range), SW_OK);
    end(range);
}

enum { ROUNDS = 2000 };

static void *takes_and_gives(void *range) {
    uint64_t at[16];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < 16; i++) at[i] = sw_range_alloc(range, i + 1);
        for (uint64_t i = 0; i < 16; i++) CHECK_EQ(sw_range_free(range, at[i], i + 1), SW_OK);
    }
    return NULL;
}

static void a_lock_lets_all_threads_in(uint32_t backend) {
    sw_range_options options = options_of(backend, 1);
    sw_range *range;
    options.locked = 1;
    CHECK_EQ(sw_range_create(4096, &options, &range), SW_OK);
    in_threads(2, takes_and_gives, range, 0);
    CHECK_EQ(sw_range_free_size(range), 4096);
    CHECK_EQ(range->lock.acquisitions, 2 * 2 * 16 * ROUNDS + 1); /* a turn each, one to ask above */
    CHECK_EQ(STATS(sw_range, range).allocs, 2 * 16 * ROUNDS);
    CHECK_EQ(sw_range_adopt(range), SW_OK); /* and it stays everybody's */
    (void)in_thread(takes_and_gives, range);
    end(range);
}

static void a_scope_gives_back(void) {
    sw_range *range = make(SW_RANGE_TWO_TREAPS, 100, 0);
    {
        SW_RANGE_SCOPE(outer, range, 60);
        SW_RANGE_SCOPE(none, range, 60);
        CHECK_EQ(outer.offset, 0);
        CHECK_EQ(none.offset, SW_RANGE_NONE);
        CHECK_EQ(sw_range_free_size(range), 40);
        SW_RANGE_SCOPE(early, range, 10);
        CHECK_EQ(sw_range_scope_end(&early), SW_OK);
        CHECK_EQ(sw_range_scope_end(&early), SW_OK);
        CHECK_EQ(sw_range_free_size(range), 40);
    }
    CHECK_EQ(sw_range_free_size(range), 100);
    end(range);
}

static void campaign(uint32_t backend, uint32_t placement, uint64_t size, uint64_t most,
                     uint64_t steps) {
    static model m;
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(backend, 0);
    options.placement = placement;
    options.memory = &allocator;
    options.orders = size % 2 ? 5 : 0;
    sw_range *range = model_begin(&m, &options, size, most);
    if (range == NULL) return;
    uint64_t seed = size * 31 + placement;
    for (uint64_t i = 0; i < steps && !check_failed(); i++) {
        /* A look joins what a buddy has kept, and settles what grew: some steps go without one. */
        bool looks = (backend != SW_RANGE_BUDDY && i / 256 % 2 == 0) || i % 8 == 0;
        model_step(range, &m, &options, check_random(&seed), looks);
        if (i % 64 == 0) CHECK_EQ(sw_range_verify(range), SW_OK);
    }
    if (check_failed())
        fprintf(stderr, "backend %s placement %u size %" PRIu64 ": %s\n",
                sw_range_backend_name(backend), placement, size, sw_last_error()->message);
    sw_range_stats stats = STATS(sw_range, range);
    CHECK(stats.allocs == m.allocs && stats.refused == m.refused && stats.frees == m.frees);
    CHECK_EQ(sw_range_reset(range), SW_OK);
    if (backend != SW_RANGE_BUDDY) CHECK_EQ(sw_range_largest_hole(range), size);
    sw_range_destroy(range);
    CHECK_EQ(memory.held_bytes, 0);
}

enum { PIECES = 2000 };

/* Every other piece is freed, and taken again: as many holes, in another order each time. */
static void churn(sw_range *range, uint64_t *seed) {
    bool is_free[PIECES] = {false};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PIECES / 2; i++) {
            uint64_t piece = check_random(seed) % (PIECES / 2) * 2;
            if (is_free[piece]) continue;
            is_free[piece] = true;
            CHECK_EQ(sw_range_free(range, piece * 16, 16), SW_OK);
        }
        while (sw_range_alloc(range, 16) != SW_RANGE_NONE) {
        }
        memset(is_free, 0, sizeof is_free);
    }
}

static void needs_no_memory_once_grown(uint32_t backend) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(backend, 16);
    sw_range *range;
    uint64_t seed = backend;
    options.memory = &allocator;
    CHECK_EQ(sw_range_create(PIECES * 16, &options, &range), SW_OK);
    while (sw_range_alloc(range, 16) != SW_RANGE_NONE) {
    }
    for (uint64_t i = 0; i < PIECES; i += 2) CHECK_EQ(sw_range_free(range, i * 16, 16), SW_OK);
    while (sw_range_alloc(range, 16) != SW_RANGE_NONE) {
    }
    uint64_t calls = memory.calls;
    CHECK_EQ(STATS(sw_range, range).held_bytes, memory.held_bytes);
    for (int i = 0; i < 20; i++) churn(range, &seed);
    CHECK_EQ(memory.calls, calls);
    end(range);
    CHECK_EQ(memory.held_bytes, 0);
}

/* A free that needs a record of a hole which nobody gives changes nothing, and can be repeated. */
static void survives_refused_memory(uint32_t backend) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(backend, 0);
    sw_range *range;
    options.memory = &allocator;
    memory.refuses = 1;
    CHECK_EQ(sw_range_create(PIECES * 16, &options, &range), SW_NOMEM);
    memory.refuses = 0;
    CHECK_EQ(sw_range_create(PIECES * 16, &options, &range), SW_OK);
    CHECK_EQ(sw_range_alloc(range, PIECES * 16), 0);
    memory.refuses = 1;
    uint64_t freed = 0, piece = 0;
    for (; piece < PIECES; piece += 2) {
        if (sw_range_free(range, piece * 16, 16) != SW_OK) break;
        freed += 16;
    }
    CHECK(piece < PIECES);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK_EQ(sw_range_free_size(range), freed);
    CHECK_EQ(sw_range_verify(range), SW_OK);
    memory.refuses = 0;
    for (; piece < PIECES; piece += 2) CHECK_EQ(sw_range_free(range, piece * 16, 16), SW_OK);
    CHECK_EQ(sw_range_free_size(range), PIECES / 2 * 16);
    end(range);
}

/* --- costs ------------------------------------------------------------------------------------ */

/* The cost of a call as the number of holes grows: machine instructions, counted by the processor's
 * single-step trap, so that the count is the same on a busy machine. free_size and largest_hole of
 * trees execute as many with 4,096 holes as with 64 (O(1)); find, a pair of alloc and free, and a
 * buddy's largest_hole at most four times as many (of O(log n) they would be twice, of O(n) 64
 * times). With a sanitizer or grade 3, code takes ten times as many steps, and a step could stop
 * ThreadSanitizer while it holds its locks. */
#if defined(__x86_64__) && !SANITIZED && SW_CHECK < 3
#include <signal.h>
#include <x86intrin.h>

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
static sw_range *make_holes(uint32_t backend, uint64_t holes) {
    uint64_t size = holes * (backend == SW_RANGE_BUDDY ? 2 : PIECE_MAX + 1), seed = 21;
    sw_range *range = make(backend, size, 1);
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
    sw_range *range = make_holes(backend, holes);
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

static void costs(void) {
    struct sigaction action = {.sa_handler = count_step};
    CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
    if (!counts_steps()) puts("skipped: single steps raise no signal here");
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++)
        costs_do_not_grow_with_holes(backend);
}
#else
static void costs(void) {}
#endif

int main(int argc, char **argv) {
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        refuses_bad_arguments(backend);
        another_thread_is_refused(backend);
        a_lock_lets_all_threads_in(backend);
    }
    refuses_bad_options();
    buddy_of_an_odd_size();
    buddy_without_a_buddy();
    buddy_has_a_small_table();
    buddy_of_sizes_above_32_bits();
    a_scope_gives_back();
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000 / check_share();
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        uint32_t usual = backend == SW_RANGE_TWO_TREAPS ? SW_RANGE_FIT_BEST : SW_RANGE_FIT_FIRST;
        uint32_t last = backend == SW_RANGE_BUDDY ? SW_RANGE_FIT_FIRST : SW_RANGE_FIT_WORST;
        for (uint32_t placement = SW_RANGE_FIT_FIRST; placement <= last; placement++) {
            uint64_t share = placement == usual ? steps : steps / 4;
            campaign(backend, placement, 300, 40, share);     /* a few holes */
            campaign(backend, placement, 24, 24, share / 4);  /* one or none, again and again */
            campaign(backend, placement, 4001, 3, share / 4); /* a thousand: nodes split and join */
        }
    }
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        needs_no_memory_once_grown(backend);
        if (backend != SW_RANGE_BUDDY) survives_refused_memory(backend);
    }
    costs();
    return check_result();
}

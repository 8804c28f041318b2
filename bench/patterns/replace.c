/* SPDX-License-Identifier: Apache-2.0 */
/* Random replacement: free a live object, and allocate another of a random size in its place. */
#include "patterns.h"

enum { SMALLEST = 8, LARGEST = 1000 };

/* A set of live objects, and the random numbers for their replacement. */
struct set {
    void **live;
    uint32_t count;
    struct pattern_random random;
    uint64_t check;
};

static void set_fill(struct set *set, uint32_t count, uint64_t seed) {
    set->live = pattern_must(malloc(count * sizeof *set->live));
    set->count = count;
    set->random.state = seed;
    set->check = 0;
    for (uint32_t i = 0; i < count; i++) {
        set->live[i] = pattern_new(pattern_between(&set->random, SMALLEST, LARGEST), i);
    }
}

static void set_replace(struct set *set, uint64_t times) {
    for (uint64_t i = 0; i < times; i++) {
        uint32_t victim = pattern_below(&set->random, set->count);
        uint32_t bytes = pattern_between(&set->random, SMALLEST, LARGEST);
        set->check += pattern_drop(set->live[victim]);
        set->live[victim] = pattern_new(bytes, i);
    }
}

static void set_drop(struct set *set) {
    for (uint32_t i = 0; i < set->count; i++) set->check += pattern_drop(set->live[i]);
    free(set->live);
}

static void run_random(uint64_t live, uint64_t times, struct pattern_result *result) {
    struct set set;
    set_fill(&set, (uint32_t)live, 1);
    set_replace(&set, times);
    set_drop(&set);
    *result = (struct pattern_result){live + times, set.check};
}

/* RANDOM defines the program that replaces TIMES of LIVE objects. */
#define RANDOM(name, live, times)                                                                  \
    static void name(uint64_t percent, struct pattern_result *result) {                            \
        run_random(live, pattern_share(times, percent), result);                                   \
    }

RANDOM(random_100, 100, 60000000)
RANDOM(random_300, 300, 50000000)
RANDOM(random_1k, 1000, 40000000)
RANDOM(random_5k, 5000, 25000000)
RANDOM(random_10k, 10000, 20000000)
RANDOM(random_100k, 100000, 8000000)
RANDOM(random_1m, pattern_share(1000000, percent), 2000000)

/* --- handover between threads ----------------------------------------------------------------- */

enum { CHAIN_LIVE = 3000, CHAIN_REPLACEMENTS = 100000 };

static void *replace_once(void *argument) {
    set_replace(argument, CHAIN_REPLACEMENTS);
    return NULL;
}

/* A set, and the number of threads that work on it one after the other. */
struct chain {
    struct set set;
    uint64_t threads;
};

static void *hand_over(void *argument) {
    struct chain *chain = argument;
    for (uint64_t i = 0; i < chain->threads; i++) {
        pattern_join(pattern_start(replace_once, &chain->set));
    }
    return NULL;
}

static void run_handover(uint32_t chains, uint64_t threads, struct pattern_result *result) {
    struct chain chain[2];
    pthread_t conductor[2];
    for (uint32_t i = 0; i < chains; i++) {
        set_fill(&chain[i].set, CHAIN_LIVE, i + 1);
        chain[i].threads = threads;
        conductor[i] = pattern_start(hand_over, &chain[i]);
    }
    *result = (struct pattern_result){chains * threads * CHAIN_REPLACEMENTS, 0};
    for (uint32_t i = 0; i < chains; i++) {
        pattern_join(conductor[i]);
        set_drop(&chain[i].set);
        result->check += chain[i].set.check;
    }
}

static void handover_1(uint64_t percent, struct pattern_result *result) {
    run_handover(1, pattern_share(300, percent), result);
}
static void handover_2(uint64_t percent, struct pattern_result *result) {
    run_handover(2, pattern_share(150, percent), result);
}

/* --- small objects, a few of them long-lived -------------------------------------------------- */

enum { YOUNG = 1000, OLD = 50000, OLD_EVERY = 64, OLD_LARGEST = 256 };

/* Keep one in OLD_EVERY replaced objects until OLD more have been kept. */
static void long_lived(uint64_t percent, struct pattern_result *result) {
    static void *young[YOUNG], *old[OLD];
    struct pattern_random random = {7};
    uint64_t times = pattern_share(30000000, percent), kept = 0;
    *result = (struct pattern_result){times, 0};
    for (uint64_t i = 0; i < times; i++) {
        void **place = &young[pattern_below(&random, YOUNG)];
        void *leaving = *place;
        *place = pattern_new(pattern_between(&random, SMALLEST, OLD_LARGEST), i);
        if (i % OLD_EVERY == 0) {
            void **shelf = &old[kept++ % OLD];
            void *oldest = *shelf;
            *shelf = leaving;
            leaving = oldest;
        }
        if (leaving != NULL) result->check += pattern_drop(leaving);
    }
    for (uint32_t i = 0; i < YOUNG; i++) result->check += young[i] ? pattern_drop(young[i]) : 0;
    for (uint32_t i = 0; i < OLD; i++) result->check += old[i] ? pattern_drop(old[i]) : 0;
}

const struct pattern_program pattern_replacing[] = {
    {"random-100", random_100},
    {"random-300", random_300},
    {"random-1k", random_1k},
    {"random-5k", random_5k},
    {"random-10k", random_10k},
    {"random-100k", random_100k},
    {"random-1m", random_1m},
    {"handover-1", handover_1},
    {"handover-2", handover_2},
    {"long-lived", long_lived},
    {NULL, NULL},
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Tail latency: the 99.9th percentile of the cycles of malloc and free under a mixed load of two
 * threads. Prints `malloc_p999 CYCLES` and `free_p999 CYCLES`. */
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "patterns.h"

/* Read a counter of constant rate; on x86-64 it counts cycles of the nominal frequency. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value)::"memory");
    return value;
#else
#error "no counter of ticks is known here"
#endif
}

/* A histogram of calls by ticks: exact below EXACT, then powers of two. */
enum { EXACT = 65536, POWERS = 64 };

struct times {
    uint32_t exact[EXACT];
    uint32_t power[POWERS];
    uint64_t count;
};

static void times_add(struct times *times, uint64_t taken) {
    times->count++;
    if (taken < EXACT) {
        times->exact[taken]++;
    } else {
        times->power[63 - __builtin_clzll(taken)]++;
    }
}

static void times_merge(struct times *into, const struct times *from) {
    for (uint32_t i = 0; i < EXACT; i++) into->exact[i] += from->exact[i];
    for (uint32_t i = 0; i < POWERS; i++) into->power[i] += from->power[i];
    into->count += from->count;
}

/* The ticks that 999 of 1,000 calls do not exceed. */
static uint64_t times_p999(const struct times *times) {
    uint64_t above = times->count / 1000;
    for (uint32_t i = POWERS; i-- > 0;) {
        if (times->power[i] > above) return (uint64_t)1 << i;
        above -= times->power[i];
    }
    for (uint32_t i = EXACT; i-- > 0;) {
        if (times->exact[i] > above) return i;
        above -= times->exact[i];
    }
    return 0;
}

enum { HELD = 5000, COUNTERS = 256 };
static _Atomic(void *) counters[COUNTERS];

struct caller {
    uint64_t seed, calls;
    void *held[HELD];
    struct times allocating, freeing;
};

/* 90 % of requests are small, and 1 % have 4 to 64 KiB. */
static uint32_t mixed_size(struct pattern_random *random) {
    uint32_t kind = pattern_below(random, 100);
    if (kind < 90) return pattern_between(random, 8, 512);
    return kind < 99 ? pattern_between(random, 513, 4096) : pattern_between(random, 4097, 65536);
}

static void timed_free(struct caller *caller, void *object) {
    if (object == NULL) return;
    uint64_t start = ticks();
    free(object);
    times_add(&caller->freeing, ticks() - start);
}

/* The other thread frees one in eight objects. */
static void *call(void *argument) {
    struct caller *caller = argument;
    struct pattern_random random = {caller->seed};
    for (uint64_t i = 0; i < caller->calls; i++) {
        void **place = &caller->held[pattern_below(&random, HELD)];
        uint32_t bytes = mixed_size(&random);
        void *leaving = *place;
        if (i % 8 == 0)
            leaving = atomic_exchange(&counters[pattern_below(&random, COUNTERS)], leaving);
        timed_free(caller, leaving);
        uint64_t start = ticks();
        void *made = malloc(bytes);
        times_add(&caller->allocating, ticks() - start);
        *(uint64_t *)pattern_must(made) = bytes;
        *place = made;
    }
    return NULL;
}

static void latency(uint64_t percent, struct pattern_result *result) {
    static struct caller here, there;
    here.seed = 1;
    there.seed = 2;
    here.calls = there.calls = pattern_share(1500000, percent);
    pthread_t thread = pattern_start(call, &there);
    call(&here);
    pattern_join(thread);
    times_merge(&here.allocating, &there.allocating);
    times_merge(&here.freeing, &there.freeing);
    printf("malloc_p999 %llu\n", (unsigned long long)times_p999(&here.allocating));
    printf("free_p999 %llu\n", (unsigned long long)times_p999(&here.freeing));
    *result = (struct pattern_result){2 * here.calls, here.allocating.count};
}

const struct pattern_program pattern_measuring[] = {{"latency", latency}, {NULL, NULL}};

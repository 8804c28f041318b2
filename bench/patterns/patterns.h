/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation patterns (docs/design/bench.md). Each calls the preloaded malloc and free in one
 * pattern, for half a second to a second, with fixed seeds. */
#ifndef BENCH_PATTERNS_H
#define BENCH_PATTERNS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The figures of a program. `check` depends on the seeds and the content of objects, but not on the
 * allocator or on thread scheduling. */
struct pattern_result {
    uint64_t ops;
    uint64_t check;
};

/* A program; `run` does `percent` of its full work. */
struct pattern_program {
    const char *name;
    void (*run)(uint64_t percent, struct pattern_result *result);
};

/* A linear congruential generator with Knuth's MMIX constants; use its upper bits. */
struct pattern_random {
    uint64_t state;
};

static inline uint64_t pattern_next(struct pattern_random *random) {
    random->state = random->state * 6364136223846793005U + 1442695040888963407U;
    return random->state;
}

/* A number below `limit`, which is at most 2^32. */
static inline uint32_t pattern_below(struct pattern_random *random, uint64_t limit) {
    return (uint32_t)(((pattern_next(random) >> 32) * limit) >> 32);
}

/* A number from `low` to `high`, inclusive. */
static inline uint32_t pattern_between(struct pattern_random *random, uint32_t low, uint32_t high) {
    return low + pattern_below(random, (uint64_t)high - low + 1);
}

static inline uint64_t pattern_share(uint64_t full, uint64_t percent) {
    uint64_t part = full * percent / 100;
    return part == 0 ? 1 : part;
}

_Noreturn static inline void pattern_fail(const char *what) {
    fprintf(stderr, "bench_patterns: %s failed\n", what);
    exit(1);
}

static inline void *pattern_must(void *pointer) {
    if (pointer == NULL) pattern_fail("an allocation");
    return pointer;
}

/* Allocate at least 8 bytes and store a number, which pattern_drop returns. */
static inline void *pattern_new(size_t bytes, uint64_t mark) {
    uint64_t *object = pattern_must(malloc(bytes));
    *object = mark;
    return object;
}

static inline uint64_t pattern_drop(void *pointer) {
    uint64_t mark = *(uint64_t *)pointer;
    free(pointer);
    return mark;
}

static inline pthread_t pattern_start(void *(*work)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument) != 0) pattern_fail("pthread_create");
    return thread;
}

static inline void pattern_join(pthread_t thread) {
    if (pthread_join(thread, NULL) != 0) pattern_fail("pthread_join");
}

/* The lists of programs end with a name of NULL. */
extern const struct pattern_program pattern_replacing[]; /* replace.c: random replacement */
extern const struct pattern_program pattern_bursting[];  /* bursts.c: bursts, short threads */
extern const struct pattern_program pattern_crossing[];  /* cross.c: frees by other threads */
extern const struct pattern_program pattern_measuring[]; /* latency.c: cycles of single calls */
extern const struct pattern_program pattern_building[];  /* build.c: text, maps, rows, arrays */
extern const struct pattern_program pattern_linking[];  /* link.c: trees, documents, event queues */
extern const struct pattern_program pattern_spawning[]; /* spawn.c: many small processes */

#endif

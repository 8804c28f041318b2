/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over one allocation path each, which bench/instructions.py counts under callgrind.
 *
 * paths.c is the main program. paths_spanwise.c has the paths of the library (bench_paths, and
 * bench_paths_bare without checks), paths_malloc.c those of the dynamically linked malloc
 * (bench_paths_malloc, run with libspanwise-malloc.so preloaded). */
#ifndef SPANWISE_BENCH_PATHS_H
#define SPANWISE_BENCH_PATHS_H

#include <stddef.h>
#include <stdint.h>

enum {
    COUNT_MAX = 1 << 17, /* operations of one run */
    LIVE_MAX = 1 << 18,  /* objects that a replacing path holds */
    REPLACE_MIN = 8,
    REPLACE_MAX = 1024,
    REPLACE_MEAN = (REPLACE_MIN + REPLACE_MAX) / 2,
};

typedef void path_fn(size_t count);

typedef struct path {
    const char *name;
    void (*ready)(void); /* one heap per process: valgrind leaves little address space */
    path_fn *before;
    path_fn *run;
    int weight; /* of an operation; fewer heavy operations are counted */
} path;

/* The paths of the program. */
extern const path paths[];
extern const size_t path_count;

extern void *held[LIVE_MAX];

static inline void touch(void *p) { *(volatile long *)p = 1; }

extern uint64_t random_state;

/* The next number of 31 bits, the same in every run: the upper bits of a linear congruential
 * generator. */
static inline uint32_t next_random(void) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33);
}

/* 0 .. n - 1; n is at most 2^31. */
static inline uint32_t random_below(uint32_t n) {
    return (uint32_t)(((uint64_t)next_random() * n) >> 31);
}
static inline size_t replace_size(void) {
    return REPLACE_MIN + random_below(REPLACE_MAX - REPLACE_MIN + 1);
}

void nothing(size_t count);
void shuffle(size_t count);
__attribute__((noreturn)) void die(const char *what, const char *why);

/* PAIR defines a path that allocates and frees at once, FILL one that fills `held`, and EACH one
 * that does something with each object of `held`. */
#define PAIR(name, allocate, release)                                                              \
    static void name(size_t count) {                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            void *p = allocate;                                                                    \
            touch(p);                                                                              \
            release;                                                                               \
        }                                                                                          \
    }
#define EACH(name, action)                                                                         \
    static void name(size_t count) {                                                               \
        for (size_t i = 0; i < count; i++) action;                                                 \
    }
#define FILL(name, allocate) EACH(name, held[i] = allocate)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The same rows on the conservative collector of Boehm, Demers and Weiser (Debian's libgc-dev). Its own number of
 * markers is that of the environment variable GC_MARKERS. */
#include <gc.h>
#include <gc/gc_inline.h>

#include "shapes.h"

enum { HELD = 256 };

/* Static data is a root. Nothing here reads `held`, so without `volatile` the compiler would leave
 * the stores out, and only stale values on the stack, if any, would hold the objects. */
static void *volatile held[HELD];
static size_t held_count;

static void start(void) { GC_INIT(); }
static void hold(void *object) { held[held_count++] = object; }
static void drop(void) { held[--held_count] = NULL; }
static void pause_collecting(bool on) {
    if (on)
        GC_disable();
    else
        GC_enable();
}
static void collect(void) { GC_gcollect(); }

static inline __attribute__((always_inline)) void *make(int kind) {
    void *object = GC_MALLOC(bytes_of[kind]);
    if (object == NULL) __builtin_abort();
    return object;
}

static double *make_numbers(size_t count) {
    double *numbers = GC_MALLOC_ATOMIC(count * sizeof *numbers);
    if (numbers == NULL) __builtin_abort();
    return numbers;
}

static bool own_row(const char *row, uint32_t size);
#define PROGRAM_ROW own_row
#include "rows.h"

static inline __attribute__((always_inline)) void *make_pair_inline(void) {
    static void *lists[GC_TINY_FREELISTS];
    void *made;
    GC_MALLOC_WORDS(made, 2, lists);
    return made;
}

/* Row new16 by the macros of gc_inline.h, which take from free lists of the program's one thread. */
static bool own_row(const char *row, uint32_t size) {
    if (strcmp(row, "new16_inline") != 0) return false;
    pause_collecting(true);
    for (uint32_t i = 0; i < size; i++) seen = make_pair_inline();
    seen = NULL;
    pause_collecting(false);
    collect();
    pause_collecting(true);
    uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < size; i++) seen = make_pair_inline();
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    tell(cpu, now_ns(CLOCK_MONOTONIC) - wall, size);
    return true;
}

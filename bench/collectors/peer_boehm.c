/* SPDX-License-Identifier: Apache-2.0 */
/* The same rows on the conservative collector of Boehm, Demers and Weiser (Debian's libgc-dev). Its own number of
 * markers is that of the environment variable GC_MARKERS. */
#include <gc.h>

#include "shapes.h"

enum { HELD = 256 };

/* Static data is a root. Nothing reads it here, so without `volatile` the compiler leaves the stores out, and the objects are held by
 * whatever old values lie on the stack, or not at all. */
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

static inline void *make(int kind) {
    void *object = GC_MALLOC(bytes_of[kind]);
    if (object == NULL) __builtin_abort();
    return object;
}

static double *make_numbers(size_t count) {
    double *numbers = GC_MALLOC_ATOMIC(count * sizeof *numbers);
    if (numbers == NULL) __builtin_abort();
    return numbers;
}

#define PROGRAM_ROW(row, size) ((void)(row), (void)(size), false)
#include "rows.h"

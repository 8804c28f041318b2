/* SPDX-License-Identifier: Apache-2.0 */
/* The rows on the conservative collector of Boehm, Demers and Weiser (Debian's libgc-dev). The
 * environment variable GC_MARKERS sets its number of marker threads. */
#include <gc.h>

#include "shapes.h"

enum { HELD = 256 };

/* Static data is a root. Nothing here reads `held`, so without `volatile` the compiler would remove
 * the stores, and the objects might be collected. */
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

static bool own_row(const char *row, uint32_t size) {
    (void)row;
    (void)size;
    return false;
}

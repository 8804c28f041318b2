/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of one path each, to be counted under callgrind by instructions.py.
 *
 *   bench_paths --key          what the counts depend on: compiler, its version, architecture, grade
 *   bench_paths --list         the names of the paths
 *   bench_paths PATH COUNT     runs COUNT operations of the path inside measured()
 *
 * instructions.py collects inside measured() only and subtracts two runs, so that what remains is one
 * operation and its loop (the path `loop` is the loop that fills and drains share, alone).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spanwise/fast.h"
#include "spanwise/spanwise.h"

enum { COUNT_MAX = 1 << 17, BYTES = 16 };

static void *held[COUNT_MAX];
static sw_cache *generic_cache;

typedef void path_fn(size_t count);

static void touch(void *p) { *(volatile long *)p = 1; }

/* --- what is measured --------------------------------------------------------------------------- */

static void loop(size_t count) {
    for (size_t i = 0; i < count; i++) *(void *volatile *)&held[i] = &held[i];
}

static void inline_pair(size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *p = sw_fast_malloc(BYTES);
        touch(p);
        sw_fast_free(p);
    }
}

static void inline_zeroed(size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *p = sw_fast_zalloc(BYTES);
        touch(p);
        sw_fast_free(p);
    }
}

static void inline_alloc(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = sw_fast_malloc(BYTES);
}

static void inline_free(size_t count) {
    for (size_t i = 0; i < count; i++) sw_fast_free(held[i]);
}

static void exported_alloc(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = sw_malloc(BYTES);
}

static void exported_calloc(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = sw_calloc(1, BYTES);
}

static void exported_free(size_t count) {
    for (size_t i = 0; i < count; i++) sw_free(held[i]);
}

static void generic_alloc(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = sw_cache_alloc(generic_cache, BYTES, 0);
}

static void generic_free(size_t count) {
    for (size_t i = 0; i < count; i++) sw_cache_free(generic_cache, held[i]);
}

/* --- what happens before ------------------------------------------------------------------------ */

static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_paths: %s: %s\n", what, why);
    exit(2);
}

static void default_heap(void) { sw_free(sw_malloc(1)); }

/* A heap with a copy of c16 made at run time: no specialised path serves it. */
static void generic_heap(void) {
    const sw_table *c16 = sw_table_c16();
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    uint32_t count = sw_table_class_count(c16);
    for (uint32_t cls = 1; cls <= count; cls++) {
        sw_class_info info;
        if (sw_table_class(c16, cls, &info) != SW_OK) die("sw_table_class", "no such class");
        specs[cls - 1].size_bytes = info.size_bytes;
        specs[cls - 1].pages = info.span_bytes / sw_table_page_bytes(c16);
    }
    sw_table *table;
    sw_heap *heap;
    sw_heap_options options;
    sw_heap_options_init(&options);
    if (sw_table_create("copy", sw_table_page_bytes(c16), specs, count, &table) != SW_OK)
        die("sw_table_create", sw_last_error()->message);
    options.table = table;
    if (sw_heap_create(&options, &heap) != SW_OK || sw_cache_open(heap, &generic_cache) != SW_OK)
        die("sw_heap_create", sw_last_error()->message);
}

static void nothing(size_t count) { (void)count; }

/* The same numbers in every run: a linear congruential generator, its upper bits. */
static void shuffle(size_t count) {
    uint64_t state = 1;
    for (size_t i = count; i > 1; i--) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t j = (size_t)((state >> 33) % i);
        void *p = held[i - 1];
        held[i - 1] = held[j];
        held[j] = p;
    }
}

static void exported_alloc_shuffled(size_t count) {
    exported_alloc(count);
    shuffle(count);
}

typedef struct path {
    const char *name;
    void (*ready)(void); /* one heap a process: valgrind leaves little address space to reserve */
    path_fn *before;
    path_fn *run;
} path;

static const path paths[] = {
    {"loop", default_heap, nothing, loop},
    {"inline_pair", default_heap, nothing, inline_pair},
    {"inline_zeroed_pair", default_heap, nothing, inline_zeroed},
    {"inline_malloc", default_heap, nothing, inline_alloc},
    {"inline_free", default_heap, exported_alloc, inline_free},
    {"inline_free_random", default_heap, exported_alloc_shuffled, inline_free},
    {"exported_malloc", default_heap, nothing, exported_alloc},
    {"exported_calloc", default_heap, nothing, exported_calloc},
    {"exported_free", default_heap, exported_alloc, exported_free},
    {"exported_free_random", default_heap, exported_alloc_shuffled, exported_free},
    {"generic_malloc", generic_heap, nothing, generic_alloc},
    {"generic_free", generic_heap, generic_alloc, generic_free},
};
enum { PATHS = sizeof paths / sizeof paths[0] };

/* The function inside which callgrind collects. */
__attribute__((noinline)) static void measured(path_fn *run, size_t count) {
    run(count);
    __asm__ volatile("" ::: "memory"); /* not a tail call: measured() must still be on the stack */
}

/* --- the program -------------------------------------------------------------------------------- */

static void print_key(void) {
#if defined(__clang__)
    printf("clang-%d.%d.%d", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    printf("gcc-%d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
#if defined(__x86_64__)
    printf(" x86_64");
#elif defined(__aarch64__)
    printf(" aarch64");
#else
    printf(" other");
#endif
    printf(" check%d %s\n", SW_CHECK, BENCH_BUILD_TYPE);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--key") == 0) {
        print_key();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < PATHS; i++) puts(paths[i].name);
        return 0;
    }
    if (argc != 3) die("usage", "bench_paths --key | --list | PATH COUNT");
    size_t count = (size_t)strtoul(argv[2], NULL, 10);
    if (count == 0 || count > COUNT_MAX) die(argv[2], "the count must be 1 .. 131072");
    for (int i = 0; i < PATHS; i++) {
        if (strcmp(argv[1], paths[i].name) != 0) continue;
        paths[i].ready();
        paths[i].before(count);
        measured(paths[i].run, count);
        return 0;
    }
    die(argv[1], "no such path; --list names them");
}

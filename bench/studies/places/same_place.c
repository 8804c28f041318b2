/* SPDX-License-Identifier: Apache-2.0 */
/* How often a pair is slow because of where its pages lie in the machine's memory.
 *
 *   bench_same_place [MOVES [WORD]]     default: 400 moves, word 0
 *
 * For each path and size: gives the pages of the cache and of an object other frames of memory, at
 * the same addresses, MOVES times, and times pairs after each move; each pair writes word WORD of
 * its object. Prints the time of a quick move (the tenth of a hundred), the share of moves whose
 * pairs take a fifth more, and the slowest. docs/design/heap.md, "Places", says what it is about.
 */
#define _GNU_SOURCE
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "copy_table.h"

enum { PAGE = 4096, PAGES_OF_CACHE = 3, HELD = 64, MOVES_MAX = 10000, PAIRS = 50000, TRIES = 8 };

static sw_cache *generic_cache;
static size_t word;

static void die(const char *what) {
    fprintf(stderr, "bench_same_place: %s\n", what);
    exit(1);
}

__attribute__((noinline)) static void called_pairs(size_t size) {
    for (int i = 0; i < PAIRS; i++) {
        volatile uint64_t *p = sw_malloc(size);
        p[word] = 1;
        sw_free((void *)(uintptr_t)p);
    }
}

__attribute__((noinline)) static void generic_pairs(size_t size) {
    for (int i = 0; i < PAIRS; i++) {
        volatile uint64_t *p = sw_cache_alloc(generic_cache, size, 0);
        p[word] = 1;
        sw_cache_free(generic_cache, (void *)(uintptr_t)p);
    }
}

/* The page at `at` keeps its address and bytes and gets another frame. As many other frames are
 * held a while, so that the kernel does not hand out the same two in turn. */
static void move_page(uintptr_t at) {
    static void *held[HELD];
    static unsigned turn;
    static char bytes[PAGE];
    void *page = (void *)(at & ~(uintptr_t)(PAGE - 1));
    int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    if (held[turn] != NULL) munmap(held[turn], PAGE);
    held[turn] = mmap(NULL, PAGE, access, kind, -1, 0);
    if (held[turn] == MAP_FAILED) die("no memory");
    *(char *)held[turn] = 1;
    turn = (turn + 1) % HELD;
    memcpy(bytes, page, PAGE);
    if (mmap(page, PAGE, access, kind | MAP_FIXED, -1, 0) != page) die("a page can not be moved");
    memcpy(page, bytes, PAGE);
}

static double pair_ns(void (*pairs)(size_t), size_t size) {
    double best = 1e9;
    for (int i = 0; i < TRIES; i++) {
        struct timespec start, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        pairs(size);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        double ns =
            (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
        if (ns / PAIRS < best) best = ns / PAIRS;
    }
    return best;
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *path, void (*pairs)(size_t), const sw_cache *cache, size_t size,
                    size_t moves) {
    static double ns[MOVES_MAX];
    pairs(size);
    void *object = sw_cache_alloc((sw_cache *)(uintptr_t)cache, size, 0);
    uintptr_t object_at = (uintptr_t)object;
    sw_cache_free((sw_cache *)(uintptr_t)cache, object);
    for (size_t i = 0; i < moves; i++) {
        for (int page = 0; page < PAGES_OF_CACHE; page++)
            move_page((uintptr_t)cache + (uintptr_t)page * PAGE);
        move_page(object_at);
        ns[i] = pair_ns(pairs, size);
    }
    qsort(ns, moves, sizeof *ns, by_time);
    double quick = ns[moves / 10];
    size_t slow = 0;
    for (size_t i = 0; i < moves; i++) slow += ns[i] > quick * 1.2;
    printf("%-8s %5zu %10.2f %8.1f%% %10.2f\n", path, size, quick,
           100.0 * (double)slow / (double)moves, ns[moves - 1]);
    fflush(stdout);
}

/* Reads a whole number from least to most; another text ends the program. */
static size_t number(const char *text, size_t least, size_t most) {
    char *end;
    size_t value = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || *text == '-' || value < least || value > most) {
        fprintf(stderr, "bench_same_place: %s is no number from %zu to %zu\n", text, least, most);
        die("usage: bench_same_place [MOVES, 1 .. 10000 [WORD, 0 or 1]]");
    }
    return value;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {16, 32, 64, 96, 128, 512};
    size_t moves = argc > 1 ? number(argv[1], 1, MOVES_MAX) : 400;
    word = argc > 2 ? number(argv[2], 0, 1) : 0;
    if (sysconf(_SC_PAGESIZE) != PAGE) die("moves pages of 4 KiB only; this system has others");
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = copy_table(sw_table_c16());
    sw_heap *heap;
    if (options.table == NULL || sw_heap_create(&options, &heap) != SW_OK ||
        sw_cache_open(heap, &generic_cache) != SW_OK)
        die(sw_last_error()->message);
    sw_free(sw_malloc(1));
    printf("%-8s %5s %10s %9s %10s\n", "path", "bytes", "quick, ns", "slow", "worst, ns");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        measure("called", called_pairs, sw_tls.cache, sizes[i], moves);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        measure("generic", generic_pairs, generic_cache, sizes[i], moves);
    return 0;
}

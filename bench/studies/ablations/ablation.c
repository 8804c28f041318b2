/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the study `ablations`, which compiles this program with the library's sources, once for
 * each variant of them.
 *
 *   bench_ablation --list
 *   bench_ablation ROW hot|cold time MILLISECONDS [OPTIONS]   prints nanoseconds of an operation
 *   bench_ablation ROW hot|cold count COUNT [OPTIONS]         runs COUNT operations in measured()
 *   bench_ablation ROW hot|cold prepare COUNT [OPTIONS]       the same with empty operations
 *
 * Options say what heap the rows through a cache use: --table NAME or PAGE_BYTES:SIZE*PAGES,... (of
 * which no specialised path is known), --copy (the table is copied, with the same effect), --tiny,
 * --scan.
 *
 * hot: operations follow each other in a loop. cold: before each one comes more code than the
 * first-level instruction cache holds, which is not timed; an empty row is subtracted.
 */
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "callgrind.h"
#include "copy_table.h"

enum {
    ROUND = 1 << 14,     /* operations between two looks at the clock, hot */
    COLD_ROUND = 1 << 9, /* the same, cold */
    COUNT_MAX = 1 << 17,
    LIVE = 1000, /* objects that `replace` holds: half a MiB, so that cold is cold code, not data */
    WARM_BYTES = 128, /* of an object that readies a heap's pages: no size that shares blocks */
};

/* A row makes only the heap that it uses, since under valgrind there is little address space. */
typedef struct row {
    const char *name;
    uint32_t from, to; /* sizes[] of the row */
    void (*ready)(void);
    /* `before` and `after` of the operations first ... first + count - 1 */
    void (*before)(size_t first, size_t count);
    void (*run)(size_t first, size_t count);
    void (*after)(size_t first, size_t count);
} row;

static void *held[COUNT_MAX];
static uint32_t sizes[COUNT_MAX];
static void *live[LIVE];
static uint32_t picks[COUNT_MAX];
static sw_heap_options options;
static sw_heap *heap;
static sw_cache *cache;
static unsigned flags;
static uint64_t random_state = 1;

_Noreturn static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_ablation: %s: %s\n", what, why);
    exit(2);
}

/* 0 .. n - 1, the same numbers in every run. */
static uint32_t random_below(uint32_t n) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((random_state >> 33) * n) >> 31);
}

static inline void touch(void *p) { *(volatile char *)p = 1; }

/* --- rows ------------------------------------------------------------------------------------- */

#define EACH(i, first, count) for (size_t i = (first), end = (first) + (count); i < end; i++)

static void nothing(size_t first, size_t count) {
    (void)first;
    (void)count;
}

static void empty(size_t first, size_t count) {
    EACH(i, first, count) __asm__ volatile("" ::"r"(i));
}

/* Inline code with a size that is a compile-time constant, on the default heap. */
#define INLINE_PAIR(name, allocate, bytes)                                                         \
    static void name##_##bytes(size_t first, size_t count) {                                       \
        EACH(i, first, count) {                                                                    \
            void *p = allocate(bytes);                                                             \
            touch(p);                                                                              \
            sw_fast_free(p);                                                                       \
        }                                                                                          \
    }
INLINE_PAIR(pair, sw_fast_malloc, 16)
INLINE_PAIR(pair, sw_fast_malloc, 512)
INLINE_PAIR(zpair, sw_fast_zalloc, 16)
INLINE_PAIR(zpair, sw_fast_zalloc, 64)
INLINE_PAIR(zpair, sw_fast_zalloc, 512)

static void malloc_16(size_t first, size_t count) {
    EACH(i, first, count) held[i] = sw_fast_malloc(16);
}

static void free_16(size_t first, size_t count) { EACH(i, first, count) sw_fast_free(held[i]); }

static void hold_16(size_t first, size_t count) {
    malloc_16(first, count);
    for (size_t i = count; i > 1; i--) {
        size_t j = first + random_below((uint32_t)i);
        void *p = held[first + i - 1];
        held[first + i - 1] = held[j];
        held[j] = p;
    }
}

/* Calls of sw_cache_alloc with a size that is not a constant. */
static inline void cache_pair(size_t size, unsigned more) {
    void *p = sw_cache_alloc(cache, size, flags | more);
    touch(p);
    sw_cache_free(cache, p);
}

static void call(size_t first, size_t count) { EACH(i, first, count) cache_pair(sizes[i], 0); }

static void zcall(size_t first, size_t count) {
    EACH(i, first, count) cache_pair(sizes[i], SW_ZERO);
}

static void keep(size_t first, size_t count) {
    EACH(i, first, count) touch(held[i] = sw_cache_alloc(cache, sizes[i], flags));
}

static void free_kept(size_t first, size_t count) {
    EACH(i, first, count) sw_cache_free(cache, held[i]);
}

static void replace(size_t first, size_t count) {
    EACH(i, first, count) {
        void **place = &live[picks[i]];
        sw_cache_free(cache, *place);
        touch(*place = sw_cache_alloc(cache, sizes[i], flags));
    }
}

/* --- before and after ------------------------------------------------------------------------- */

static void default_heap(void) { sw_free(sw_malloc(1)); }

static void make_heap(void) {
    if (sw_heap_create(&options, &heap) != SW_OK || sw_cache_open(heap, &cache) != SW_OK)
        die("sw_heap_create", sw_last_error()->message);
}

/* Objects that share blocks are freed only with their heap. The next heap begins with free pages
 * that were touched, or a row would time the system's page faults. */
static void new_heap(size_t first, size_t count) {
    (void)first;
    sw_cache_close(cache);
    if (sw_heap_destroy(heap) != SW_OK) die("sw_heap_destroy", sw_last_error()->message);
    make_heap();
    size_t warm = count * 16 / WARM_BYTES + 1; /* each object takes 16 bytes or less */
    for (size_t i = 0; i < warm; i++) touch(held[i] = sw_cache_alloc(cache, WARM_BYTES, 0));
    free_kept(0, warm);
    sw_cache_trim(cache);
}

/* Makes the objects of `replace`, and replaces them until the heap is in a steady state. */
static void fill(size_t first, size_t count) {
    (void)first;
    (void)count;
    if (live[0] != NULL) return;
    for (size_t i = 0; i < LIVE; i++) live[i] = sw_cache_alloc(cache, sizes[i], flags);
    replace(0, COUNT_MAX);
}

static const row rows[] = {
    {"empty", 8, 8, default_heap, nothing, empty, nothing},
    {"pair/16", 16, 16, default_heap, nothing, pair_16, nothing},
    {"pair/512", 512, 512, default_heap, nothing, pair_512, nothing},
    {"zpair/16", 16, 16, default_heap, nothing, zpair_16, nothing},
    {"zpair/64", 64, 64, default_heap, nothing, zpair_64, nothing},
    {"zpair/512", 512, 512, default_heap, nothing, zpair_512, nothing},
    {"malloc/16", 16, 16, default_heap, nothing, malloc_16, free_16},
    {"free/16", 16, 16, default_heap, hold_16, free_16, nothing},
    {"call/16", 16, 16, make_heap, nothing, call, nothing},
    {"call/64", 64, 64, make_heap, nothing, call, nothing},
    {"zcall/16", 16, 16, make_heap, nothing, zcall, nothing},
    {"zcall/64", 64, 64, make_heap, nothing, zcall, nothing},
    {"zcall/512", 512, 512, make_heap, nothing, zcall, nothing},
    {"zcall/1024", 1024, 1024, make_heap, nothing, zcall, nothing},
    {"call/8-1024", 8, 1024, make_heap, nothing, call, nothing},
    {"zcall/8-1024", 8, 1024, make_heap, nothing, zcall, nothing},
    {"keep/1-15", 1, 15, make_heap, new_heap, keep, nothing},
    {"keep/8-128", 8, 128, make_heap, nothing, keep, free_kept},
    {"replace/8-1024", 8, 1024, make_heap, fill, replace, nothing},
};

/* --- the cold instruction cache --------------------------------------------------------------- */

#if defined(__x86_64__)
#define WIDE_NOP ".byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n\t" /* 8 bytes */
#else
#define WIDE_NOP "nop\n\tnop\n\t"
#endif

/* 128 KiB of code in straight line: several times a first-level instruction cache. In a section of
 * its own, so that .text holds what is compared. */
__attribute__((noinline, section(".sweep"))) static void sweep(void) {
    __asm__ volatile(".rept 16384\n\t" WIDE_NOP ".endr" ::: "memory");
}

/* A counter that is read in few instructions; the system's clock tells the length of a tick. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now)::"memory");
    return now;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static double clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* --- timing and counting -------------------------------------------------------------------- */

static double time_hot(const row *chosen, double most_ns) {
    double spent = 0, operations = 0;
    for (int round = 0; round == 0 || spent < most_ns; round++) {
        size_t first = (size_t)round * ROUND % COUNT_MAX;
        chosen->before(first, ROUND);
        double begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        chosen->run(first, ROUND);
        double took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
        chosen->after(first, ROUND);
        if (round == 0) continue; /* the first round meets an unused heap */
        spent += took;
        operations += ROUND;
    }
    return operations == 0 ? 0 : spent / operations;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The mean of the middle half of COLD_ROUND operations, in ticks, which leaves out interrupts and
 * refills. */
static double cold_ticks(const row *chosen, size_t first) {
    static uint64_t took[COLD_ROUND];
    chosen->before(first, COLD_ROUND);
    for (size_t i = 0; i < COLD_ROUND; i++) {
        sweep();
        uint64_t begin = ticks();
        chosen->run(first + i, 1);
        took[i] = ticks() - begin;
    }
    chosen->after(first, COLD_ROUND);
    qsort(took, COLD_ROUND, sizeof took[0], by_value);
    double sum = 0;
    for (size_t i = COLD_ROUND / 4; i < COLD_ROUND * 3 / 4; i++) sum += (double)took[i];
    return sum / (COLD_ROUND / 2.0);
}

static double time_cold(const row *chosen, double most_ns) {
    double begin = clock_ns(CLOCK_MONOTONIC), spent = 0, sum = 0;
    uint64_t first = ticks();
    int rounds = -1; /* the first one is a warm-up */
    for (; rounds < 1 || spent < most_ns; rounds++) {
        size_t at = (size_t)(rounds + 1) * COLD_ROUND % COUNT_MAX;
        double more = cold_ticks(chosen, at) - cold_ticks(&rows[0], at);
        if (rounds >= 0) sum += more;
        spent = clock_ns(CLOCK_MONOTONIC) - begin;
    }
    return sum / rounds * (spent / (double)(ticks() - first));
}

/* The function inside which callgrind collects: gcc may make no copy of it under another name. */
#if defined(__clang__)
#define ONE_FUNCTION __attribute__((noinline))
#else
#define ONE_FUNCTION __attribute__((noipa))
#endif
void measured(const row *chosen, size_t first, size_t count);
ONE_FUNCTION void measured(const row *chosen, size_t first, size_t count) {
    chosen->run(first, count);
    __asm__ volatile("" ::: "memory"); /* not a tail call: measured() must still be on the stack */
}

static void count_operations(const row *chosen, bool cold, size_t count, bool prepare) {
    chosen->before(0, count);
    if (prepare) chosen = &rows[0];
    CALLGRIND_START_INSTRUMENTATION;
    if (!cold) {
        measured(chosen, 0, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sweep();
        measured(chosen, i, 1);
    }
}

/* --- the command line ------------------------------------------------------------------------- */

static sw_table *make_table(const char *name, uint32_t page, const sw_class_spec *specs,
                            uint32_t count) {
    sw_table *table;
    if (sw_table_create(name, page, specs, count, &table) != SW_OK)
        die("--table", sw_last_error()->message);
    return table;
}

static const sw_table *parse_table(const char *text) {
    const sw_table *builtin = sw_table_builtin(text);
    if (builtin != NULL) return builtin;
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    char *rest;
    uint32_t page = (uint32_t)strtoul(text, &rest, 10), count = 0;
    for (char mark = ':'; *rest == mark && count < SW_TABLE_CLASSES_MAX; mark = ',', count++) {
        specs[count].size_bytes = (uint32_t)strtoul(rest + 1, &rest, 10);
        if (*rest != '*') break;
        specs[count].pages = (uint32_t)strtoul(rest + 1, &rest, 10);
    }
    if (*rest != '\0' || count == 0)
        die("--table", "give go, c16 or PAGE_BYTES:SIZE*PAGES,SIZE*PAGES,...");
    return make_table("given", page, specs, count);
}

static const sw_table *copy_of(const sw_table *table) {
    const sw_table *copy = copy_table(table);
    if (copy == NULL) die("copy_table", sw_last_error()->message);
    return copy;
}

static void parse_options(int argc, char **argv) {
    bool copy = false;
    sw_heap_options_init(&options);
    options.table = sw_table_c16();
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--table") == 0 && i + 1 < argc)
            options.table = parse_table(argv[++i]);
        else if (strcmp(argv[i], "--copy") == 0)
            copy = true;
        else if (strcmp(argv[i], "--tiny") == 0)
            options.tiny = 1;
        else if (strcmp(argv[i], "--scan") == 0)
            flags = SW_SCAN;
        else
            die(argv[i], "no such option; --table T, --copy, --tiny, --scan");
    }
    if (copy) options.table = copy_of(options.table);
}

static const row *find_row(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    die(name, "no such row; --list names them");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) puts(rows[i].name);
        return 0;
    }
    if (argc < 5) die("usage", "--list | ROW hot|cold time|count|prepare N [OPTIONS]");
    const row *chosen = find_row(argv[1]);
    bool cold = strcmp(argv[2], "cold") == 0;
    unsigned long n = strtoul(argv[4], NULL, 10);
    if (!cold && strcmp(argv[2], "hot") != 0) die(argv[2], "say hot or cold");
    if (n == 0 || n > COUNT_MAX) die(argv[4], "the number must be 1 .. 131072");
    parse_options(argc - 5, argv + 5);
    for (size_t i = 0; i < COUNT_MAX; i++) {
        sizes[i] = chosen->from + random_below(chosen->to - chosen->from + 1);
        picks[i] = random_below(LIVE);
    }
    chosen->ready();
    if (strcmp(argv[3], "time") == 0)
        printf("%.4f\n", (cold ? time_cold : time_hot)(chosen, (double)n * 1e6));
    else if (strcmp(argv[3], "count") == 0 || strcmp(argv[3], "prepare") == 0)
        count_operations(chosen, cold, n, argv[3][0] == 'p');
    else
        die(argv[3], "say time, count or prepare");
    return 0;
}

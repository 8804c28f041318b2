/* SPDX-License-Identifier: Apache-2.0 */
/* The cases stackIt and stackIt2, which the study `anatomy` takes apart.
 *
 *   stackIt   returns an int by value: nothing is allocated
 *   stackIt2  returns a pointer to an int that escapes: one object an operation
 *
 * In Go the object of stackIt2 becomes garbage; here the caller frees it, `live` objects at a time.
 * As Go does, every object is zeroed.
 *
 *   bench_anatomy --key                          what the counts depend on
 *   bench_anatomy --list                         the cases, each with objects an operation
 *   bench_anatomy --classes                      bytes of the classes, in order
 *   bench_anatomy CASE SIZE LIVE COUNT           COUNT operations inside measured(), for callgrind,
 *                                                after as many outside
 *   bench_anatomy CASE SIZE LIVE COUNT ROUNDS    ns an operation of each round, after one untimed
 */
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "callgrind.h"
#include "copy_table.h"

#define NOINLINE __attribute__((noinline))
/* Keeps the compiler from computing a call before it is made, or leaving it out. */
#define OPAQUE(value) __asm__ volatile("" : "+r"(value)::"memory")

enum { LIVE_MAX = 1 << 16, COUNT_MAX = 1 << 24 };

static sw_cache *cache; /* of special, generic, pointer and tracked */
static size_t size;
static size_t live;
static int64_t *held[LIVE_MAX];
static volatile int64_t sink;

_Noreturn static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_anatomy: %s: %s\n", what, why);
    exit(2);
}

/* --- the functions that are called ------------------------------------------------------------ */

NOINLINE static int64_t stack_it(int64_t y) {
    OPAQUE(y);
    int64_t res = y * 2;
    return res;
}

NOINLINE static int64_t *stack_it2(int64_t y) {
    OPAQUE(y);
    int64_t *res = sw_cache_alloc(cache, size, SW_ZERO);
    *res = y * 2;
    return res;
}

/* The object holds a pointer: a scan class. */
NOINLINE static int64_t *stack_it2_pointer(int64_t y) {
    OPAQUE(y);
    int64_t *res = sw_cache_alloc(cache, size, SW_SCAN);
    *res = y * 2;
    return res;
}

/* With a constant size; one function for each class that has an inline path. */
#define SIZES(each)                                                                                \
    each(8) each(16) each(32) each(48) each(64) each(80) each(96) each(112) each(128) each(144)    \
        each(160) each(176) each(192) each(208) each(224) each(240) each(256) each(288) each(320)  \
            each(352) each(384) each(416) each(448) each(480) each(512) each(576) each(640)        \
                each(704) each(768) each(896) each(1024)

#define DEFINE(bytes)                                                                              \
    NOINLINE static int64_t *stack_it2_inline_##bytes(int64_t y) {                                 \
        OPAQUE(y);                                                                                 \
        int64_t *res = sw_fast_zalloc(bytes);                                                      \
        *res = y * 2;                                                                              \
        return res;                                                                                \
    }
SIZES(DEFINE)

/* --- the loops -------------------------------------------------------------------------------- */

static void run_value(size_t count) {
    for (size_t i = 0; i < count; i++) sink = stack_it((int64_t)i);
}

typedef int64_t *stack_it2_fn(int64_t y);

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE void use(const int64_t *p) { sink = *p; }
ALWAYS_INLINE void free_cache(int64_t *p) { sw_cache_free(cache, p); }
ALWAYS_INLINE void free_inline(int64_t *p) { sw_fast_free(p); }

/* One object at a time, or `live` of them. */
ALWAYS_INLINE void run_pointers(size_t count, stack_it2_fn *call, void (*drop)(int64_t *p)) {
    for (size_t i = 0; live == 1 && i < count; i++) {
        int64_t *p = call((int64_t)i);
        use(p);
        drop(p);
    }
    for (size_t done = 0; live > 1 && done < count; done += live) {
        for (size_t i = 0; i < live; i++) {
            held[i] = call((int64_t)i);
            use(held[i]);
        }
        for (size_t i = 0; i < live; i++) drop(held[i]);
    }
}

static stack_it2_fn *inline_fn;

static void run_cache(size_t count) { run_pointers(count, stack_it2, free_cache); }
static void run_scan(size_t count) { run_pointers(count, stack_it2_pointer, free_cache); }
static void run_inline(size_t count) { run_pointers(count, inline_fn, free_inline); }

/* --- heaps ------------------------------------------------------------------------------------ */

static void open_heap(const sw_table *table, uint8_t tracked) {
    sw_heap_options options;
    sw_heap *heap;
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = tracked;
    if (sw_heap_create(&options, &heap) != SW_OK || sw_cache_open(heap, &cache) != SW_OK)
        die("sw_heap_create", sw_last_error()->message);
}

static const sw_table *copy_of_c16(void) {
    const sw_table *copy = copy_table(sw_table_c16());
    if (copy == NULL) die("copy_table", sw_last_error()->message);
    return copy;
}

static void ready_value(void) {}
static void ready_special(void) { open_heap(sw_table_c16(), 0); }
static void ready_generic(void) { open_heap(copy_of_c16(), 0); }
static void ready_tracked(void) { open_heap(copy_of_c16(), 1); }

/* The inline path of the class that serves `size`. */
static void ready_inline(void) {
#define TAKE(bytes)                                                                                \
    if (inline_fn == NULL && size <= bytes) inline_fn = stack_it2_inline_##bytes;
    SIZES(TAKE)
    if (inline_fn == NULL) die("inline", "the size has no inline path; use 1 .. 1024");
    sw_free(sw_malloc(1)); /* the default heap and this thread's cache */
}

typedef struct anatomy_case {
    const char *name;
    int objects; /* allocated an operation */
    void (*ready)(void);
    void (*run)(size_t count);
} anatomy_case;

static const anatomy_case cases[] = {
    {"value", 0, ready_value, run_value},     {"inline", 1, ready_inline, run_inline},
    {"special", 1, ready_special, run_cache}, {"generic", 1, ready_generic, run_cache},
    {"pointer", 1, ready_special, run_scan},  {"tracked", 1, ready_tracked, run_cache},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* --- the program ------------------------------------------------------------------------------ */

/* The function inside which callgrind collects. */
NOINLINE static void measured(void (*run)(size_t count), size_t count) {
    run(count);
    __asm__ volatile("" ::: "memory"); /* not a tail call: measured() must still be on the stack */
}

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void time_rounds(const anatomy_case *chosen, size_t count, size_t rounds) {
    chosen->run(count);
    for (size_t i = 0; i < rounds; i++) {
        double start = cpu_ns();
        chosen->run(count);
        printf("%.4f\n", (cpu_ns() - start) / (double)count);
    }
}

static size_t number(const char *text, const char *what, size_t least, size_t most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "bench_anatomy: %s is '%s'; use %zu .. %zu\n", what, text, least, most);
        exit(2);
    }
    return value;
}

static void print_key(void) {
#if defined(__clang__)
    printf("clang %d.%d.%d", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    printf("gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
    printf(" check%d %s\n", SW_CHECK, BENCH_BUILD_TYPE);
}

static void print_cases(void) {
    for (size_t i = 0; i < CASES; i++) printf("%s %d\n", cases[i].name, cases[i].objects);
}

static void print_classes(void) {
    const sw_table *c16 = sw_table_c16();
    for (uint32_t cls = 1; cls <= sw_table_class_count(c16); cls++) {
        sw_class_info info;
        if (sw_table_class(c16, cls, &info) != SW_OK) die("sw_table_class", "no such class");
        printf("%u\n", info.size_bytes);
    }
}

static const anatomy_case *find(const char *name) {
    for (size_t i = 0; i < CASES; i++)
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    die(name, "no such case; --list names them");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--key") == 0) {
        print_key();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        print_cases();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--classes") == 0) {
        print_classes();
        return 0;
    }
    if (argc != 5 && argc != 6)
        die("usage", "bench_anatomy --key | --list | --classes | CASE SIZE LIVE COUNT [ROUNDS]");
    const anatomy_case *chosen = find(argv[1]);
    size = number(argv[2], "SIZE", sizeof(int64_t), 32768);
    live = number(argv[3], "LIVE", 1, LIVE_MAX);
    size_t count = number(argv[4], "COUNT", 1, COUNT_MAX);
    size_t rounds = argc == 6 ? number(argv[5], "ROUNDS", 1, 1000) : 0;
    chosen->ready();
    if (rounds > 0) {
        time_rounds(chosen, count, rounds);
    } else {
        chosen->run(count);
        CALLGRIND_START_INSTRUMENTATION;
        measured(chosen->run, count);
    }
    return 0;
}

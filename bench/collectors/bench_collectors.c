/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of our collector: bench_collectors ROW SIZE. */
#include <pthread.h>

#include "shapes.h"
#include "spanwise/gc_fast.h"
#include "spanwise/spanwise.h"

enum { HELD = 256, PERCENT = 100, STEP_NS = 100000, SLOTS = 1024, ROUNDS = 20000 };
enum { LIVE = 12 * 1024 * 1024 / 64, BATCH = 32, SESSION = 32, TEXT = 16, REPLY = 18 };

static sw_gc *gc;
static uint32_t type_of[KINDS], number_type;
static sw_gc_type_allocator makers[KINDS];
static void *held[HELD];
static size_t held_count;

/* Disable or enable the pace. As in the other collectors, a cycle is due when as many bytes have
 * been allocated as were live after the last cycle. */
static void pause_collecting(bool on) {
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .percent = on ? 0 : PERCENT};
    if (sw_gc_set_pace(gc, &pace) != SW_OK) __builtin_abort();
}

static void start(void) {
    /* Bitmaps of pointer words: 4 in a node, 2 in branches, 1 in a pair. */
    static const uint64_t pointers[KINDS] = {15, 3, 3, 1, 3};
    static const char *const names[KINDS] = {"node", "long branch", "branch", "pair", "tree node"};
    const sw_gc_type number = {.name = "number", .bytes = sizeof(double)};
    uint32_t root;
    sw_heap_options options;
    sw_heap_options_init(&options);
    if (sw_gc_create(&options, &gc) != SW_OK) __builtin_abort();
    for (int i = 0; i < KINDS; i++) {
        sw_gc_type type = {.name = names[i], .bytes = bytes_of[i], .pointers = &pointers[i]};
        if (sw_gc_add_type(gc, &type, &type_of[i]) != SW_OK) __builtin_abort();
        if (sw_gc_type_allocator_begin(gc, type_of[i], &makers[i]) != SW_OK) __builtin_abort();
    }
    if (sw_gc_add_type(gc, &number, &number_type) != SW_OK) __builtin_abort();
    if (sw_gc_add_roots(gc, held, sizeof held, &root) != SW_OK) __builtin_abort();
    pause_collecting(false);
}

static void hold(void *object) { held[held_count++] = object; }
static void drop(void) { held[--held_count] = NULL; }

static void collect(void) {
    if (sw_gc_collect(gc, NULL) != SW_OK) __builtin_abort();
}

static inline __attribute__((always_inline)) void *make(int kind) {
    void *object = sw_gc_type_alloc(&makers[kind]);
    if (object == NULL) __builtin_abort();
    return object;
}

static double *make_numbers(size_t count) {
    double *numbers = sw_gc_new(gc, number_type, count);
    if (numbers == NULL) __builtin_abort();
    return numbers;
}

static bool own_row(const char *row, uint32_t size);
#define PROGRAM_ROW own_row
#include "rows.h"

/* Print by how many nanoseconds a store through the write barrier (inline, and by calling
 * sw_gc_write) is slower than a plain store, while no cycle is running. */
static void barrier(void) {
    static void *words[SLOTS];
    uint64_t ns[3], from = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SLOTS; i++) ((void *volatile *)words)[i] = words;
    ns[0] = now_ns(CLOCK_PROCESS_CPUTIME_ID) - from;
    from = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SLOTS; i++) {
            sw_gc_fast_write(&makers[NODE], &words[i], words);
            __asm__ volatile("" ::: "memory");
        }
    ns[1] = now_ns(CLOCK_PROCESS_CPUTIME_ID) - from;
    from = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SLOTS; i++) sw_gc_write(gc, &words[i], words);
    ns[2] = now_ns(CLOCK_PROCESS_CPUTIME_ID) - from;
    double stores = (double)SLOTS * ROUNDS, plain = (double)ns[0];
    printf("{\"more_ns\": %.4f, \"call_more_ns\": %.4f}\n", ((double)ns[1] - plain) / stores,
           ((double)ns[2] - plain) / stores);
}

/* Return the CPU time of marking in a cycle with steps of about step_ns; *longest receives the time
 * of the longest step. */
static uint64_t mark_in_steps(uint64_t step_ns, uint64_t *longest) {
    uint64_t from = now_ns(CLOCK_THREAD_CPUTIME_ID);
    if (sw_gc_start(gc) != SW_OK) __builtin_abort();
    uint64_t sum = now_ns(CLOCK_THREAD_CPUTIME_ID) - from;
    *longest = sum;
    while (sw_gc_current_phase(gc) != SW_GC_IDLE) {
        bool marks = sw_gc_current_phase(gc) == SW_GC_MARKING;
        from = now_ns(CLOCK_THREAD_CPUTIME_ID);
        if (sw_gc_step_ns(gc, step_ns) != SW_OK) __builtin_abort();
        uint64_t took = now_ns(CLOCK_THREAD_CPUTIME_ID) - from;
        if (took > *longest) *longest = took;
        if (marks) sum += took;
    }
    return sum;
}

/* Compare a cycle in steps with a cycle at once. */
static void steps(uint32_t count) {
    uint64_t longest;
    random_graph(count);
    collect();
    uint64_t at_once = mark_in_steps(UINT64_MAX, &longest);
    uint64_t in_steps = mark_in_steps(STEP_NS, &longest);
    printf("{\"longest_ms\": %.4f, \"mark_ratio\": %.4f}\n", (double)longest / 1e6,
           (double)in_steps / (double)at_once);
}

/* Compare the elapsed time of marking by two threads with one thread, the least of five each. */
static void two_markers(uint32_t count) {
    uint64_t least[2] = {UINT64_MAX, UINT64_MAX};
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    random_graph(count);
    for (int round = 0; round < 5; round++)
        for (unsigned threads = 1; threads <= 2; threads++) {
            if (sw_gc_set_markers(gc, threads) != SW_OK) __builtin_abort();
            if (sw_gc_collect(gc, &cycle) != SW_OK) __builtin_abort();
            if (cycle.mark_ns < least[threads - 1]) least[threads - 1] = cycle.mark_ns;
        }
    printf("{\"one_ms\": %.3f, \"two_ms\": %.3f, \"ratio\": %.4f}\n", (double)least[0] / 1e6,
           (double)least[1] / 1e6, (double)least[1] / (double)least[0]);
}

/* --- messages --------------------------------------------------------------------------------- */

/* The last counted cycle, and the total time of all counted cycles. */
static sw_gc_cycle seen_cycle = {.struct_bytes = sizeof seen_cycle};
static uint64_t pause_ns;

static void look_at_cycle(void) {
    uint64_t before = seen_cycle.number;
    if (sw_gc_last_cycle(gc, &seen_cycle) == SW_OK && seen_cycle.number != before)
        pause_ns += seen_cycle.mark_ns + seen_cycle.sweep_ns;
}

static void *must(void *object) {
    if (object == NULL) __builtin_abort();
    return object;
}

/* Allocate the four objects of a message. The message points to the heap's list, and the list's
 * head points to the message. */
static void serve(sw_arena *arena, node *live) {
    bool in_arena = arena != NULL;
    node *message = in_arena ? must(sw_arena_new(arena, sizeof(node), 8, SW_SCAN)) : make(NODE);
    held[1] = message;
    message->to[0] = live;
    message->to[1] = in_arena ? must(sw_arena_new(arena, 32, 8, SW_SCAN)) : make(LONG_BRANCH);
    double *text = in_arena ? must(sw_arena_alloc(arena, TEXT * 8, 8, 0)) : make_numbers(TEXT);
    message->to[2] = (void *)text;
    double *reply = in_arena ? must(sw_arena_alloc(arena, REPLY * 8, 8, 0)) : make_numbers(REPLY);
    message->to[3] = (void *)reply;
    for (int i = 0; i < TEXT; i++) reply[i] = text[i] = i;
    sw_gc_write(gc, &live->to[2], message);
}

static sw_arena *begin_arena(void) {
    sw_arena *arena;
    if (sw_arena_create(NULL, &arena) != SW_OK) __builtin_abort();
    if (sw_arena_attach(arena, gc) != SW_OK) __builtin_abort();
    return arena;
}

/* Allocate a list of 12 MiB that stays live. */
static node *make_live(void) {
    for (int i = 0; i < LIVE; i++) {
        node *made = make(NODE);
        made->to[0] = held[0];
        held[0] = made;
    }
    collect();
    look_at_cycle();
    pause_ns = 0;
    return held[0];
}

/* Serve messages while a list is live; each batch also allocates 256 bytes in the heap. The objects
 * of messages come from the heap, or from an arena that is freed after the batch. */
static void messages(uint32_t count, bool in_arenas) {
    node *live = make_live();
    sw_arena *arena = NULL;
    uint64_t first = seen_cycle.number, cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t i = 0; i < count; i++) {
        if (i % BATCH == 0) {
            sw_gc_write(gc, &live->to[1], make_numbers(SESSION));
            if (in_arenas) arena = begin_arena();
        }
        serve(arena, live);
        look_at_cycle();
        if ((i + 1) % BATCH != 0) continue;
        held[1] = NULL;
        sw_gc_write(gc, &live->to[2], NULL);
        (void)sw_arena_free(arena);
        arena = NULL;
    }
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("{\"collections\": %llu, \"pause_ns\": %llu, \"cpu_ns\": %.4f}\n",
           (unsigned long long)(seen_cycle.number - first), (unsigned long long)pause_ns,
           (double)cpu / count);
}

#include "concurrent.h"

static bool own_row(const char *row, uint32_t size) {
    if (strcmp(row, "concurrent") == 0) {
        concurrent((plan){size, 1, 1, 0, 0, 1, true, false});
    } else if (strcmp(row, "concurrent_reads") == 0) {
        concurrent((plan){size, 1, 1, 8, 0, 1, true, false});
    } else if (strcmp(row, "concurrent_two") == 0) {
        concurrent((plan){size, 1, 2, 0, 0, 1, true, false});
    } else if (strcmp(row, "concurrent_markers") == 0) {
        concurrent((plan){size, 1, 1, 8, 0, 2, true, false});
    } else if (strcmp(row, "stops") == 0) {
        uint32_t cycles = STOPS_OBJECTS / size < STOPS_MOST ? STOPS_OBJECTS / size : STOPS_MOST;
        concurrent((plan){size, 16, 1, 8, cycles, 1, true, true});
    } else if (strcmp(row, "trees_two") == 0) {
        set_markers(2);
        binary_trees(size);
    } else if (strcmp(row, "gcbench_two") == 0) {
        set_markers(2);
        gc_bench(size);
    } else if (strcmp(row, "outrun") == 0) {
        outrun(size);
    } else if (strcmp(row, "barrier") == 0) {
        barrier();
    } else if (strcmp(row, "steps") == 0) {
        steps(size);
    } else if (strcmp(row, "two_markers") == 0) {
        two_markers(size);
    } else if (strcmp(row, "messages") == 0) {
        messages(size, false);
    } else if (strcmp(row, "messages_arena") == 0) {
        messages(size, true);
    } else {
        return false;
    }
    return true;
}

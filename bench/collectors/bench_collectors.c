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

/* --- concurrent marking ----------------------------------------------------------------------- */

enum { MUTATORS_MOST = 2, CYCLES_LEAST = 10, CYCLES_MOST = 40, TREE_DEGREE = 2 };
enum { WINDOW_NODES = 160000000 };

typedef struct mutator {
    pthread_t thread;
    node **nodes; /* a binary tree, which stays live */
    uint32_t count;
    uint32_t reads; /* of each operation */
    uint64_t random;
    uint64_t done[3];  /* atomic: operations, by sw_gc_phase */
    const int *is_end; /* atomic */
} mutator;

/* Follow edges, each to an object that is far away. */
static node *walk(mutator *own, node *from) {
    for (uint32_t i = 0; i < own->reads; i++) {
        node *next = from->to[below(&own->random, 4)];
        if (next != NULL) from = next;
    }
    return from;
}

/* An operation allocates an object, which replaces another, and writes one more edge. Without
 * reads, nothing waits for memory but what the barrier reads. */
static void *mutate(void *arg) {
    mutator *own = arg;
    sw_gc_type_allocator nodes;
    if (sw_gc_type_allocator_begin(gc, type_of[NODE], &nodes) != SW_OK) __builtin_abort();
    while (!__atomic_load_n(own->is_end, __ATOMIC_RELAXED)) {
        node *made = must(sw_gc_type_alloc(&nodes)); /* a safepoint */
        node *from = walk(own, own->nodes[below(&own->random, own->count)]);
        sw_gc_fast_write(&nodes, &from->to[2], made);
        from = own->nodes[below(&own->random, own->count)];
        sw_gc_fast_write(&nodes, &from->to[3], own->nodes[below(&own->random, own->count)]);
        uint64_t *done = &own->done[sw_gc_current_phase(gc)];
        __atomic_store_n(done, *done + 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static uint64_t done_in(const mutator *mutators, int count, sw_gc_phase phase) {
    uint64_t sum = 0;
    for (int m = 0; m < count; m++)
        sum += __atomic_load_n(&mutators[m].done[phase], __ATOMIC_RELAXED);
    return sum;
}

static uint64_t done_by(const mutator *mutators, int count) {
    return done_in(mutators, count, SW_GC_IDLE) + done_in(mutators, count, SW_GC_MARKING) +
           done_in(mutators, count, SW_GC_SWEEPING);
}

static double each_of(uint64_t ns, uint64_t count) {
    return count == 0 ? 0 : (double)ns / (double)count;
}

static void sleep_ns(uint64_t ns) {
    struct timespec span = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    if (sw_gc_block(gc) != SW_OK) __builtin_abort();
    nanosleep(&span, NULL);
    if (sw_gc_unblock(gc) != SW_OK) __builtin_abort();
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_stops(const char *name, uint64_t *ns, uint32_t count) {
    qsort(ns, count, sizeof *ns, by_value);
    printf("\"%s_p50_us\": %.1f, \"%s_p99_us\": %.1f, \"%s_max_us\": %.1f, ", name,
           (double)ns[count / 2] / 1e3, name, (double)ns[(count - 1) * 99 / 100] / 1e3, name,
           (double)ns[count - 1] / 1e3);
}

static node **make_tree(uint32_t count) {
    node **nodes = make_nodes(count);
    for (uint32_t i = 1; i < count; i++)
        nodes[(i - 1) / TREE_DEGREE]->to[(i - 1) % TREE_DEGREE] = nodes[i];
    hold(nodes[0]);
    return nodes;
}

/* Run cycles in the background while mutators run; print the stops of the cycles, and the mutators'
 * rate of operations during cycles over that between them. */
static void concurrent(uint32_t count, int mutator_count, uint32_t reads) {
    static uint64_t starts[CYCLES_MOST], ends[CYCLES_MOST], both[2 * CYCLES_MOST];
    mutator mutators[MUTATORS_MOST] = {0};
    uint32_t cycles = WINDOW_NODES / count;
    int is_end = 0;
    if (cycles < CYCLES_LEAST) cycles = CYCLES_LEAST;
    if (cycles > CYCLES_MOST) cycles = CYCLES_MOST;
    node **nodes = make_tree(count);
    if (sw_gc_set_concurrent(gc, 1) != SW_OK) __builtin_abort();
    for (int m = 0; m < mutator_count; m++) {
        mutators[m] = (mutator){.nodes = nodes,
                                .count = count,
                                .reads = reads,
                                .random = (uint64_t)m,
                                .is_end = &is_end};
        if (pthread_create(&mutators[m].thread, NULL, mutate, &mutators[m]) != 0) __builtin_abort();
    }
    uint64_t during_ns = 100000000, during = 0, between = 0, sums[2] = {0, 0}, stops = 0;
    uint64_t mark_ns = 0, sweep_ns = 0;
    for (uint32_t i = 0; i < cycles; i++) {
        sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
        uint64_t first = done_by(mutators, mutator_count), from = now_ns(CLOCK_MONOTONIC);
        sleep_ns(during_ns);
        uint64_t second = done_by(mutators, mutator_count), middle = now_ns(CLOCK_MONOTONIC);
        if (sw_gc_start(gc) != SW_OK || sw_gc_wait(gc, &cycle) != SW_OK) __builtin_abort();
        if (cycle.given_up != 0 || cycle.concurrent == 0) __builtin_abort();
        during_ns = now_ns(CLOCK_MONOTONIC) - middle;
        between += second - first;
        during += done_by(mutators, mutator_count) - second;
        sums[0] += middle - from;
        sums[1] += during_ns;
        stops += cycle.end_stops;
        mark_ns += cycle.mark_ns;
        sweep_ns += cycle.sweep_ns;
        starts[i] = both[2 * i] = cycle.start_stop_ns;
        ends[i] = both[2 * i + 1] = cycle.end_stop_ns;
    }
    __atomic_store_n(&is_end, 1, __ATOMIC_RELAXED);
    if (sw_gc_block(gc) != SW_OK) __builtin_abort();
    for (int m = 0; m < mutator_count; m++) pthread_join(mutators[m].thread, NULL);
    if (sw_gc_unblock(gc) != SW_OK) __builtin_abort();
    free(nodes);
    printf("{\"cycles\": %u, \"end_stops\": %llu, ", cycles, (unsigned long long)stops);
    print_stops("start", starts, cycles);
    print_stops("end", ends, cycles);
    print_stops("stop", both, 2 * cycles);
    printf("\"mark_ms\": %.2f, \"sweep_ms\": %.2f, ", (double)mark_ns / cycles / 1e6,
           (double)sweep_ns / cycles / 1e6);
    double rate = (double)during / (double)sums[1], idle_rate = (double)between / (double)sums[0];
    printf("\"cycle_ms\": %.2f, \"idle_op_ns\": %.1f, \"mark_op_ns\": %.1f, "
           "\"sweep_op_ns\": %.1f, \"throughput_ratio\": %.3f, \"slowdown\": %.3f}\n",
           (double)sums[1] / cycles / 1e6, 1 / idle_rate,
           each_of(mark_ns, done_in(mutators, mutator_count, SW_GC_MARKING)),
           each_of(sweep_ns, done_in(mutators, mutator_count, SW_GC_SWEEPING)), rate / idle_rate,
           idle_rate / rate);
}

static bool own_row(const char *row, uint32_t size) {
    if (strcmp(row, "concurrent") == 0) {
        concurrent(size, 1, 0);
    } else if (strcmp(row, "concurrent_reads") == 0) {
        concurrent(size, 1, 8);
    } else if (strcmp(row, "concurrent_two") == 0) {
        concurrent(size, 2, 0);
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

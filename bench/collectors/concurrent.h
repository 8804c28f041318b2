/* SPDX-License-Identifier: Apache-2.0 */
/* The concurrent rows of bench_collectors.c. */
#ifndef SPANWISE_BENCH_COLLECTOR_CONCURRENT_H
#define SPANWISE_BENCH_COLLECTOR_CONCURRENT_H

enum {
    MUTATORS_MOST = 2,
    CYCLES_LEAST = 10,
    CYCLES_USUAL = 40,
    CYCLES_MOST = 1000,
    TREE_DEGREE = 2
};
enum {
    WINDOW_NODES = 160000000,
    STOPS_OBJECTS = 40000000,
    STOPS_MOST = 200,
    NAP_OPERATIONS = 1024
};

typedef struct mutator {
    pthread_t thread;
    node **nodes; /* a binary tree, which stays live */
    uint32_t count;
    uint32_t reads; /* of each operation */
    bool naps;
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
 * reads, nothing waits for memory but what the barrier reads. Naps leave the system the 5 % of a
 * processor without which it stops threads of real-time priority for 50 ms of each second. */
static void *mutate(void *arg) {
    mutator *own = arg;
    static const struct timespec nap = {0, 60000};
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
        if (own->naps && *done % NAP_OPERATIONS == 0) nanosleep(&nap, NULL);
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

/* A concurrent row. */
typedef struct plan {
    uint32_t count; /* live objects: a binary tree */
    uint32_t nodes; /* of an object, each of 64 B */
    int mutators;
    uint32_t reads;  /* of each operation */
    uint32_t cycles; /* 0: by the count */
    unsigned markers;
    bool rests; /* between two cycles, as long as the last one took */
    bool naps;  /* mutators sleep for 60 us in about each millisecond */
} plan;

static node **make_tree(uint32_t count, uint32_t nodes_each) {
    node **nodes = malloc(count * sizeof *nodes);
    if (nodes == NULL) __builtin_abort();
    pause_collecting(true);
    for (uint32_t i = 0; i < count; i++) {
        nodes[i] = must(nodes_each == 1 ? make(NODE) : sw_gc_new(gc, type_of[NODE], nodes_each));
        if (i == 0)
            hold(nodes[0]);
        else
            nodes[(i - 1) / TREE_DEGREE]->to[(i - 1) % TREE_DEGREE] = nodes[i];
    }
    return nodes;
}

static void set_markers(unsigned markers) {
    if (sw_gc_set_markers(gc, markers) != SW_OK) __builtin_abort();
}

static void set_concurrent(unsigned markers) {
    if (sw_gc_set_concurrent(gc, 1) != SW_OK) __builtin_abort();
    set_markers(markers);
}

static void start_mutators(const plan *row, node **nodes, mutator *mutators, const int *is_end) {
    for (int m = 0; m < row->mutators; m++) {
        mutators[m] = (mutator){.nodes = nodes,
                                .count = row->count,
                                .reads = row->reads,
                                .naps = row->naps,
                                .random = (uint64_t)m,
                                .is_end = is_end};
        if (pthread_create(&mutators[m].thread, NULL, mutate, &mutators[m]) != 0) __builtin_abort();
    }
}

static void join_mutators(mutator *mutators, int count, int *is_end) {
    __atomic_store_n(is_end, 1, __ATOMIC_RELAXED);
    if (sw_gc_block(gc) != SW_OK) __builtin_abort();
    for (int m = 0; m < count; m++) pthread_join(mutators[m].thread, NULL);
    if (sw_gc_unblock(gc) != SW_OK) __builtin_abort();
}

static uint32_t cycles_of(const plan *row) {
    if (row->cycles != 0) return row->cycles < CYCLES_MOST ? row->cycles : CYCLES_MOST;
    uint32_t cycles = WINDOW_NODES / row->count;
    return cycles < CYCLES_LEAST ? CYCLES_LEAST : cycles > CYCLES_USUAL ? CYCLES_USUAL : cycles;
}

static sw_gc_cycle run_cycle(void) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    if (sw_gc_start(gc) != SW_OK || sw_gc_wait(gc, &cycle) != SW_OK) __builtin_abort();
    if (cycle.given_up != 0 || cycle.concurrent == 0) __builtin_abort();
    return cycle;
}

/* Run cycles in the background while mutators run; print the stops of the cycles, and the mutators'
 * rate of operations during cycles over that between them. */
static void concurrent(plan row) {
    static uint64_t starts[CYCLES_MOST], ends[CYCLES_MOST], both[2 * CYCLES_MOST];
    mutator mutators[MUTATORS_MOST] = {0};
    uint32_t cycles = cycles_of(&row);
    int is_end = 0;
    node **nodes = make_tree(row.count, row.nodes);
    set_concurrent(row.markers);
    start_mutators(&row, nodes, mutators, &is_end);
    uint64_t during_ns = 100000000, during = 0, between = 0, sums[2] = {0, 0}, stops = 0;
    uint64_t mark_ns = 0, sweep_ns = 0, work_ns = 0;
    for (uint32_t i = 0; i < cycles; i++) {
        uint64_t first = done_by(mutators, row.mutators), from = now_ns(CLOCK_MONOTONIC);
        if (row.rests || i == 0) sleep_ns(during_ns);
        uint64_t second = done_by(mutators, row.mutators), middle = now_ns(CLOCK_MONOTONIC);
        sw_gc_cycle cycle = run_cycle();
        during_ns = now_ns(CLOCK_MONOTONIC) - middle;
        between += second - first;
        during += done_by(mutators, row.mutators) - second;
        sums[0] += middle - from;
        sums[1] += during_ns;
        stops += cycle.end_stops;
        mark_ns += cycle.mark_ns;
        sweep_ns += cycle.sweep_ns;
        if (cycle.longest_ns > work_ns) work_ns = cycle.longest_ns;
        starts[i] = both[2 * i] = cycle.start_stop_ns;
        ends[i] = both[2 * i + 1] = cycle.end_stop_ns;
    }
    join_mutators(mutators, row.mutators, &is_end);
    free(nodes);
    printf("{\"cycles\": %u, \"end_stops\": %llu, ", cycles, (unsigned long long)stops);
    print_stops("start", starts, cycles);
    print_stops("end", ends, cycles);
    print_stops("stop", both, 2 * cycles);
    printf("\"stop_work_max_us\": %.1f, \"mark_ms\": %.2f, \"sweep_ms\": %.2f, ",
           (double)work_ns / 1e3, (double)mark_ns / cycles / 1e6, (double)sweep_ns / cycles / 1e6);
    double rate = (double)during / (double)sums[1], idle_rate = (double)between / (double)sums[0];
    printf("\"cycle_ms\": %.2f, \"idle_op_ns\": %.1f, \"mark_op_ns\": %.1f, "
           "\"sweep_op_ns\": %.1f, \"throughput_ratio\": %.3f, \"slowdown\": %.3f}\n",
           (double)sums[1] / cycles / 1e6, 1 / idle_rate,
           each_of(mark_ns, done_in(mutators, row.mutators, SW_GC_MARKING)),
           each_of(sweep_ns, done_in(mutators, row.mutators, SW_GC_SWEEPING)), rate / idle_rate,
           idle_rate / rate);
}

/* --- an allocator that outruns marking -------------------------------------------------------- */

enum { SECOND_NS = 1000000000, OUTRUN_SECONDS = 8, LOOK = 1024, LATE_NS = 1000000 };

typedef struct outrun_sums {
    uint64_t cycles, stalls, assists, assist_ns, peak_bytes, live_bytes;
} outrun_sums;

/* Add the last cycle, if it has ended and is a new one. */
static void add_cycle(outrun_sums *sums) {
    static uint64_t last;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    uint64_t held_bytes = sw_heap_held_bytes(sw_gc_heap(gc));
    if (held_bytes > sums->peak_bytes) sums->peak_bytes = held_bytes;
    if (sw_gc_current_phase(gc) != SW_GC_IDLE || sw_gc_last_cycle(gc, &cycle) != SW_OK) return;
    if (cycle.number == last || cycle.concurrent == 0) return;
    last = cycle.number;
    if (cycle.marked_bytes > sums->live_bytes) sums->live_bytes = cycle.marked_bytes;
    sums->cycles++;
    sums->stalls += cycle.stalls;
    sums->assists += cycle.assists;
    sums->assist_ns += cycle.assist_ns;
}

/* One thread allocates garbage, and does nothing else, while that many objects live; print the
 * longest allocation, those of more than 1 ms, and the peak over the goal: twice what was
 * live after a cycle. */
static void outrun(uint32_t count) {
    outrun_sums sums = {0};
    uint64_t done = 0, late = 0, longest_ns = 0;
    random_graph(count);
    collect();
    set_concurrent(1);
    pause_collecting(false);
    uint64_t begin = now_ns(CLOCK_MONOTONIC), before = begin;
    while (before - begin < (uint64_t)OUTRUN_SECONDS * SECOND_NS) {
        (void)must(sw_gc_new(gc, type_of[NODE], 1));
        uint64_t now = now_ns(CLOCK_MONOTONIC), took = now - before;
        if (took > longest_ns) longest_ns = took;
        late += took > LATE_NS;
        if (++done % LOOK == 0) add_cycle(&sums);
        before = done % LOOK == 0 ? now_ns(CLOCK_MONOTONIC) : now;
    }
    printf("{\"new_ns\": %.1f, \"longest_ms\": %.3f, \"over_1_ms\": %llu, "
           "\"cycles\": %llu, \"stalls\": %llu, \"assists\": %llu, \"assist_ms\": %.2f, "
           "\"peak_over_goal\": %.3f}\n",
           (double)(before - begin) / (double)done, (double)longest_ns / 1e6,
           (unsigned long long)late, (unsigned long long)sums.cycles,
           (unsigned long long)sums.stalls, (unsigned long long)sums.assists,
           (double)sums.assist_ns / 1e6, (double)sums.peak_bytes / 2 / (double)sums.live_bytes);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of collectors, the same for all: PROGRAM ROW SIZE prints one JSON object. The program that
 * includes this header defines, for its collector:
 *   start(), collect(), pause_collecting(bool)
 *   make(kind)              allocates an object, zeroed
 *   make_numbers(count)     allocates doubles of any value
 *   hold(object), drop()    push to and pop from a stack of roots
 *   PROGRAM_ROW(row, size)  runs a row of the program itself; returns false if there is none
 * bench/collectors/go/main.go has the same rows, with the same random numbers. */
#ifndef SPANWISE_BENCH_COLLECTOR_ROWS_H
#define SPANWISE_BENCH_COLLECTOR_ROWS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLLECTIONS = 3, DEGREE = 4, TREES_LEAST = 4 };

static uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* splitmix64 (Steele, Lea, Flood 2014), scaled to 0 .. n - 1. */
static uint32_t below(uint64_t *state, uint32_t n) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (uint32_t)((z >> 32) * n >> 32);
}

/* VmHWM of this program; getrusage would include what the process held before exec. */
static long peak_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtol(line + 6, NULL, 10);
    if (status != NULL) fclose(status);
    return kib;
}

static void report(uint64_t cpu_ns, uint64_t wall_ns, double each) {
    printf("{\"cpu_ns\": %.4f, \"wall_ns\": %.4f, \"peak_kib\": %ld}\n", (double)cpu_ns / each,
           (double)wall_ns / each, peak_kib());
}

/* Print the lowest time of several full collections in which nearly all objects are live. */
static void time_collections(void) {
    uint64_t cpu = UINT64_MAX, wall = UINT64_MAX;
    collect();
    for (int i = 0; i < COLLECTIONS; i++) {
        uint64_t cpu_from = now_ns(CLOCK_PROCESS_CPUTIME_ID), from = now_ns(CLOCK_MONOTONIC);
        collect();
        uint64_t took = now_ns(CLOCK_MONOTONIC) - from;
        uint64_t used = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_from;
        if (took < wall) wall = took;
        if (used < cpu) cpu = used;
    }
    report(cpu, wall, 1);
}

/* --- graphs ----------------------------------------------------------------------------------- */

static node **make_nodes(uint32_t count) {
    node **nodes = malloc(count * sizeof *nodes);
    if (nodes == NULL) abort();
    pause_collecting(true);
    for (uint32_t i = 0; i < count; i++) nodes[i] = make(NODE);
    return nodes;
}

static void hold_first(node **nodes) {
    hold(nodes[0]);
    free(nodes);
    pause_collecting(false);
}

static void random_graph(uint32_t count) {
    node **nodes = make_nodes(count);
    uint64_t state = 1;
    for (uint32_t i = 0; i < count; i++)
        for (int e = 0; e < DEGREE; e++) nodes[i]->to[e] = nodes[below(&state, count)];
    hold_first(nodes);
}

/* Link the nodes into a list, in allocation order or in random order. */
static void linked_list(uint32_t count, bool shuffled) {
    node **nodes = make_nodes(count);
    uint64_t state = 1;
    for (uint32_t i = count - 1; shuffled && i > 0; i--) {
        uint32_t j = below(&state, i + 1);
        node *other = nodes[j];
        nodes[j] = nodes[i];
        nodes[i] = other;
    }
    for (uint32_t i = 0; i + 1 < count; i++) nodes[i]->to[0] = nodes[i + 1];
    hold_first(nodes);
}

/* --- trees ------------------------------------------------------------------------------------ */

static branch *grow_tree(int kind, uint32_t depth) {
    branch *made = make(kind);
    if (depth == 0) return made;
    hold(made);
    made->left = grow_tree(kind, depth - 1);
    made->right = grow_tree(kind, depth - 1);
    drop();
    return made;
}

static uint64_t count_tree(const branch *tree) {
    return tree->left == NULL ? 1 : 1 + count_tree(tree->left) + count_tree(tree->right);
}

static void one_tree(uint32_t depth) {
    pause_collecting(true);
    hold(grow_tree(LONG_BRANCH, depth));
    pause_collecting(false);
}

/* binary-trees of the Computer Language Benchmarks Game. */
static void binary_trees(uint32_t depth) {
    uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC), sum = 0;
    sum += count_tree(grow_tree(BRANCH, depth + 1));
    branch *lives = grow_tree(BRANCH, depth);
    hold(lives);
    for (uint32_t d = TREES_LEAST; d <= depth; d += 2)
        for (uint32_t i = 0; i < 1u << (depth - d + TREES_LEAST); i++)
            sum += count_tree(grow_tree(BRANCH, d));
    sum += count_tree(lives);
    if (sum == 0) abort();
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    report(cpu, now_ns(CLOCK_MONOTONIC) - wall, 1);
}

/* --- GCBench ---------------------------------------------------------------------------------- */

enum { NUMBERS = 500000, USED_NUMBER = 1000 };

static branch *grow_upwards(uint32_t depth) {
    if (depth == 0) return make(TREE_NODE);
    branch *left = grow_upwards(depth - 1);
    hold(left);
    branch *right = grow_upwards(depth - 1);
    hold(right);
    branch *made = make(TREE_NODE);
    made->left = left;
    made->right = right;
    drop();
    drop();
    return made;
}

static void grow_downwards(branch *top, uint32_t depth) {
    if (depth == 0) return;
    top->left = make(TREE_NODE);
    top->right = make(TREE_NODE);
    grow_downwards(top->left, depth - 1);
    grow_downwards(top->right, depth - 1);
}

/* Build a tree and hold it as a root. */
static branch *plant(uint32_t depth) {
    branch *top = make(TREE_NODE);
    hold(top);
    grow_downwards(top, depth);
    return top;
}

static uint32_t tree_size(uint32_t depth) { return (2u << depth) - 1; }

/* GCBench (Ellis, Kovac, Boehm, "An artificial garbage collection benchmark", 1997): a tree that is
 * dropped at once, a tree and an array that stay live, and many trees of each depth, built top-down
 * and bottom-up. */
static void gc_bench(uint32_t stretch) {
    uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
    (void)plant(stretch);
    drop();
    const branch *lives = plant(stretch - 2);
    double *numbers = make_numbers(NUMBERS);
    hold(numbers);
    for (uint32_t i = 1; i <= NUMBERS / 2; i++) numbers[i] = 1.0 / i;
    for (uint32_t depth = TREES_LEAST; depth <= stretch - 2; depth += 2) {
        uint32_t count = 2 * tree_size(stretch) / tree_size(depth);
        for (uint32_t i = 0; i < count; i++) {
            (void)plant(depth);
            drop();
        }
        for (uint32_t i = 0; i < count; i++) (void)grow_upwards(depth);
    }
    if (count_tree(lives) != tree_size(stretch - 2) || numbers[USED_NUMBER] != 1.0 / USED_NUMBER)
        abort();
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    report(cpu, now_ns(CLOCK_MONOTONIC) - wall, 1);
}

/* --- allocation ------------------------------------------------------------------------------- */

static void *volatile seen;

/* Time allocations into memory that a collection has freed; no collection runs in the meantime. */
static void new_16(uint32_t count) {
    pause_collecting(true);
    for (uint32_t i = 0; i < count; i++) seen = make(PAIR);
    seen = NULL;
    pause_collecting(false);
    collect();
    pause_collecting(true);
    uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < count; i++) seen = make(PAIR);
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    report(cpu, now_ns(CLOCK_MONOTONIC) - wall, count);
}

/* Run a row; a row with a graph builds it and then collects. False: there is no such row. */
static bool run_row(const char *row, uint32_t size) {
    bool collected = true;
    if (strcmp(row, "random") == 0) {
        random_graph(size);
    } else if (strcmp(row, "list") == 0) {
        linked_list(size, false);
    } else if (strcmp(row, "shuffled") == 0) {
        linked_list(size, true);
    } else if (strcmp(row, "tree") == 0) {
        one_tree(size);
    } else {
        collected = false;
    }
    if (collected) {
        time_collections();
    } else if (strcmp(row, "trees") == 0) {
        binary_trees(size);
    } else if (strcmp(row, "gcbench") == 0) {
        gc_bench(size);
    } else if (strcmp(row, "new16") == 0) {
        new_16(size);
    } else {
        return PROGRAM_ROW(row, size);
    }
    return true;
}

int main(int argc, char **argv) {
    const char *row = argc == 3 ? argv[1] : "";
    start();
    if (argc == 3 && run_row(row, (uint32_t)strtoul(argv[2], NULL, 10))) return 0;
    fprintf(stderr, "usage: %s ROW SIZE; there is no row '%s'\n", argv[0], row);
    return 2;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of the collector: a collector with types and roots, whole cycles and their
 * statistics. */
#ifndef TESTS_UNIT_COLLECTOR_H
#define TESTS_UNIT_COLLECTOR_H

#include "spanwise/gc.h"
#include "spanwise/stats.h"
#include "spawn.h"

/* An element of a list. */
typedef struct node {
    struct node *next;
    uint64_t number;
} node;

static inline sw_gc *gc_begin(unsigned debug) {
    sw_gc *gc = NULL;
    if (sw_gc_create(NULL, &gc) != SW_OK) abort();
    CHECK_EQ(sw_gc_set_debug(gc, debug), SW_OK);
    return gc;
}

/* Of heap options after the assignments to `o`, which a comma separates. */
#define GC_MADE(...) MADE_FROM(sw_gc, sw_heap_options, __VA_ARGS__)

static inline void gc_end(sw_gc *gc) {
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* A type of up to 40,000 bytes; bit i of `pointers`: word i is a pointer. 0: it has none. */
static inline uint32_t gc_type(sw_gc *gc, size_t bytes, uint64_t pointers) {
    uint64_t map[40000 / 8 / 64 + 1] = {pointers};
    sw_gc_type type = {"type", bytes, pointers != 0 ? map : NULL};
    uint32_t id = 0;
    CHECK_EQ(sw_gc_add_type(gc, &type, &id), SW_OK);
    return id;
}

/* Returns the number of the range of roots. */
static inline uint32_t gc_roots(sw_gc *gc, void *words, size_t bytes) {
    uint32_t id = 0;
    CHECK_EQ(sw_gc_add_roots(gc, words, bytes, &id), SW_OK);
    return id;
}

static inline sw_gc_cycle gc_last_cycle(sw_gc *gc) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_last_cycle(gc, &cycle), SW_OK);
    return cycle;
}

static inline sw_gc_cycle gc_collect(sw_gc *gc) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    return cycle;
}

static inline sw_gc_cycle gc_finish(sw_gc *gc) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_finish(gc, &cycle), SW_OK);
    return cycle;
}

static inline void gc_expect_cycle(sw_gc_cycle cycle, uint64_t marked, uint64_t freed) {
    CHECK_EQ(cycle.marked_objects, marked);
    CHECK_EQ(cycle.freed_objects, freed);
}

/* A whole cycle marks and frees this many objects. */
#define EXPECT_COLLECT(gc, marked, freed) gc_expect_cycle(gc_collect(gc), marked, freed)
#define EXPECT_FINISH(gc, marked, freed) gc_expect_cycle(gc_finish(gc), marked, freed)

static inline void gc_mark_all(sw_gc *gc) {
    while (sw_gc_current_phase(gc) == SW_GC_MARKING) CHECK_EQ(sw_gc_step(gc, 100), SW_OK);
}

static inline int gc_count_object(void *ptr, size_t bytes, uint32_t cls, void *count) {
    (void)ptr, (void)bytes, (void)cls;
    ++*(uint64_t *)count;
    return 0;
}

/* This thread waits for the end of another one in a blocking region. */
static inline void gc_join_thread(sw_gc *gc, pthread_t thread) {
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(sw_gc_unblock(gc), SW_OK);
}
static inline void gc_in_thread(sw_gc *gc, void *(*body)(void *), void *arg) {
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    (void)in_thread(body, arg);
    CHECK_EQ(sw_gc_unblock(gc), SW_OK);
}

/* Sets the fields of a pace. */
#define GC_PACE(gc, ...)                                                                           \
    CHECK_EQ(sw_gc_set_pace(gc, &(sw_gc_pace){sizeof(sw_gc_pace), __VA_ARGS__}), SW_OK)

/* Cycles begin where as much was allocated as lives. */
static inline void gc_pace_100(sw_gc *gc) { GC_PACE(gc, .percent = 100); }

/* Objects that the heap has, whether roots reach them or not. */
static inline uint64_t gc_objects(sw_gc *gc) {
    uint64_t count = 0;
    CHECK_EQ(sw_heap_each_object(sw_gc_heap(gc), gc_count_object, &count), 0);
    return count;
}

#endif

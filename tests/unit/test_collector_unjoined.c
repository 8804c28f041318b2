/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that use a collected heap without joining it, and threads that end without leaving it. */
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "collector.h"
#include "faults.h"
#include "gc/gc.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

enum { SHORT_NS = 20000000, LARGE = 100000 };
static const uint64_t LONG_NS = 100000000000; /* any thread comes to a safe point in that time */

static sw_gc *gc;
static uint32_t type;

static void start(void) {
    gc = gc_begin(0);
    type = gc_type(gc, sizeof(node), 1);
    CHECK_EQ(sw_gc_set_stop_ns(gc, LONG_NS), SW_OK);
}

static void end(void) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    gc_end(gc);
}

static uint32_t read_word(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void wait_for(const uint32_t *word, uint32_t value) {
    while (read_word(word) != value) sched_yield();
}

static uint32_t has_joined, may_stop;

/* A joined thread that comes to no safe point before it may: until then the world is to stop. */
static void *hold_up(void *arg) {
    CHECK_EQ(sw_gc_join(gc, "late"), SW_OK);
    __atomic_store_n(&has_joined, 1, __ATOMIC_SEQ_CST);
    wait_for(&may_stop, 1);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    return arg;
}

static void *collect(void *arg) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    return arg;
}

typedef struct call {
    void *object;
    int kind;
} call;

enum { NEW, ALLOC, ALLOC_LARGE, FREE, FREE_LARGE, REALLOC_LARGE, KINDS };

/* The thread's first calls: no bin has a span, so each needs one. */
static void *make_call(void *arg) {
    call *made = arg;
    sw_heap *heap = sw_gc_heap(gc);
    switch (made->kind) {
    case NEW: made->object = sw_gc_new(gc, type, 1); break;
    case ALLOC: made->object = sw_heap_alloc(heap, 48, 0); break;
    case ALLOC_LARGE: made->object = sw_heap_alloc(heap, LARGE, 0); break;
    case FREE:
    case FREE_LARGE: sw_heap_free(heap, made->object); break;
    default: made->object = sw_heap_realloc(heap, made->object, LARGE / 2, 0);
    }
    CHECK(made->object != NULL);
    return NULL;
}

static void names_a_call(int kind) {
    pthread_t late, collector, caller;
    call made = {.kind = kind};
    start();
    if (kind == FREE) made.object = sw_heap_alloc(sw_gc_heap(gc), 48, 0);
    if (kind == FREE_LARGE || kind == REALLOC_LARGE)
        made.object = sw_heap_alloc(sw_gc_heap(gc), LARGE, 0);
    sw_gc_ref kept = 0;
    if (made.object != NULL) CHECK_EQ(sw_gc_ref_new(gc, SW_GC_STRONG, made.object, &kept), SW_OK);
    has_joined = may_stop = 0;
    seen_count = 0;
    CHECK_EQ(pthread_create(&late, NULL, hold_up, NULL), 0);
    wait_for(&has_joined, 1);
    CHECK_EQ(pthread_create(&collector, NULL, collect, NULL), 0);
    wait_for(&gc->stopping, 1);
    CHECK_EQ(pthread_create(&caller, NULL, make_call, &made), 0);
    wait_for(&gc->waiting, 1); /* it does nothing meanwhile */
    CHECK_EQ(seen_count, 0);
    __atomic_store_n(&may_stop, 1, __ATOMIC_SEQ_CST);
    CHECK_EQ(pthread_join(caller, NULL), 0);
    CHECK_EQ(pthread_join(collector, NULL), 0);
    CHECK_EQ(pthread_join(late, NULL), 0);
    CHECK_EQ(seen_count, kind != NEW); /* that one joins */
    if (kind != NEW) {
        CHECK_STR(sw_misuse_name(seen.code), "NOT_JOINED");
        CHECK_STR(seen.op, "heap");
        CHECK(seen.ptr == gc && seen.heap_id == gc->heap->id && seen.thread != 0);
    }
    end();
}

enum { MUTATORS = 2, CYCLES = 200 };
static uint32_t stops;

static sw_fault_action expect_report(const sw_fault *fault, void *arg) {
    (void)arg;
    CHECK_EQ(fault->code, SW_MISUSE_NOT_JOINED);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* It touches none of its objects: a cycle that does not see its stack may have freed them. */
static void *mutate(void *arg) {
    sw_heap *heap = sw_gc_heap(gc);
    for (uint64_t i = 0; read_word(&stops) == 0; i++) {
        CHECK(sw_gc_new(gc, type, 1) != NULL);
        if (i % 64 == 0) CHECK(sw_heap_alloc(heap, i % 128 == 0 ? LARGE : 200, 0) != NULL);
    }
    return arg;
}

/* What such a thread allocates may be lost, but neither it nor the collector crashes, and the heap
 * stays whole. */
static void cycles_outlive_them(void) {
    pthread_t threads[MUTATORS];
    start();
    sw_set_fault_handler(expect_report, NULL);
    stops = 0;
    start_each(threads, MUTATORS, mutate, NULL, 0);
    for (int i = 0; i < CYCLES; i++) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    __atomic_store_n(&stops, 1, __ATOMIC_SEQ_CST);
    join_threads(threads, MUTATORS);
    remember_faults();
    end();
}

typedef struct ending {
    bool allocates, blocks, pushes;
    void *words; /* roots of its shadow stack, in memory that ends with it */
} ending;

static sw_gc_frame frame;

static void *end_joined(void *arg) {
    const ending *how = arg;
    CHECK_EQ(sw_gc_join(gc, "ends"), SW_OK);
    if (how->allocates) CHECK(sw_gc_new(gc, type, 1) != NULL);
    sw_gc_shadow *shadow;
    if (how->pushes) {
        CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
        CHECK_EQ(sw_gc_shadow_push(shadow, &frame, how->words, 64), SW_OK);
    }
    if (how->blocks) CHECK_EQ(sw_gc_block(gc), SW_OK);
    return NULL;
}

static void end_makes_a_thread_leave(ending how) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    start();
    CHECK_EQ(sw_gc_set_stop_ns(gc, SHORT_NS), SW_OK);
    how.words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    frame = (sw_gc_frame){0};
    (void)in_thread(end_joined, &how);
    CHECK_EQ(munmap(how.words, 4096), 0);
    CHECK_EQ(gc->joined, 0);
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK(cycle.given_up == 0 && cycle.freed_objects == how.allocates);
    end();
}

int main(void) {
    remember_faults();
    for (int kind = 0; kind < KINDS; kind++) names_a_call(kind);
    cycles_outlive_them();
    end_makes_a_thread_leave((ending){0});
    end_makes_a_thread_leave((ending){.allocates = true});
    end_makes_a_thread_leave((ending){.blocks = true});
    end_makes_a_thread_leave((ending){.allocates = true, .pushes = true});
    return check_result();
}

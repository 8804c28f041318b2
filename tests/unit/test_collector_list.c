/* SPDX-License-Identifier: Apache-2.0 */
/* A long list is marked by a thread whose stack has 64 KiB, or the least there is: marking does not
 * recurse. With an argument, the list has that many objects: 10000000 is the long form. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "sanitizer.h"
#include "spanwise/gc.h"

enum { STACK_BYTES = 64 << 10, SANITIZED_STACK_BYTES = 1 << 20, OBJECTS = 200000 };

typedef struct list {
    sw_gc *gc;
    uint64_t marked, freed; /* objects, in the last cycle */
} list;

static void *collect(void *argument) {
    list *of = argument;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    if (sw_gc_collect(of->gc, &cycle) == SW_OK) {
        of->marked = cycle.marked_objects;
        of->freed = cycle.freed_objects;
    }
    return NULL;
}

/* In a thread with a small stack. */
static void collect_there(list *of) {
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    size_t bytes = SANITIZED ? SANITIZED_STACK_BYTES : STACK_BYTES;
    long least = sysconf(_SC_THREAD_STACK_MIN); /* 128 KiB on arm64 */
    if (least > 0 && bytes < (size_t)least) bytes = (size_t)least;
    CHECK(pthread_attr_setstacksize(&attributes, bytes) == 0);
    CHECK(pthread_create(&thread, &attributes, collect, of) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* Steps for a time: with none left each does 256 units, and one that has enough does all. */
static void test_timed_steps(sw_gc *gc, uint64_t objects) {
    uint64_t steps = 0;
    CHECK(sw_gc_step_ns(gc, UINT64_MAX) == SW_OK && sw_gc_current_phase(gc) == SW_GC_IDLE);
    CHECK(sw_gc_start(gc) == SW_OK);
    for (; sw_gc_current_phase(gc) == SW_GC_MARKING; steps++) CHECK(sw_gc_step_ns(gc, 0) == SW_OK);
    CHECK_EQ(steps, (objects + 255) / 256);
    CHECK(sw_gc_step_ns(gc, UINT64_MAX) == SW_OK && sw_gc_current_phase(gc) == SW_GC_IDLE);
    CHECK(sw_gc_start(gc) == SW_OK);
    CHECK(sw_gc_step_ns(gc, UINT64_MAX) == SW_OK && sw_gc_current_phase(gc) == SW_GC_SWEEPING);
    CHECK(sw_gc_finish(gc, NULL) == SW_OK);
}

/* A chain in which an object that is scanned in pieces follows each two that are not: only one waits at a time. */
static void test_mixed_chain(void) {
    enum { LINKS = 300, WORD = 100 };
    static const uint64_t next = 1, late[2] = {0, 1ull << (WORD - 64)};
    static void *root;
    sw_gc *gc;
    uint32_t types[2], id;
    CHECK(sw_gc_create(NULL, &gc) == SW_OK);
    CHECK(sw_gc_add_type(gc, &(sw_gc_type){.name = "node", .bytes = 16, .pointers = &next},
                         &types[0]) == SW_OK);
    CHECK(sw_gc_add_type(gc, &(sw_gc_type){.name = "wide", .bytes = 1024, .pointers = late},
                         &types[1]) == SW_OK);
    CHECK(sw_gc_add_roots(gc, &root, sizeof root, &id) == SW_OK);
    for (int i = 0; i < LINKS; i++) {
        void **made = sw_gc_new(gc, types[i % 3 == 0], 1);
        if (made == NULL) exit(EXIT_FAILURE);
        made[i % 3 == 0 ? WORD : 0] = root;
        root = made;
    }
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK(sw_gc_collect(gc, &cycle) == SW_OK);
    CHECK_EQ(cycle.marked_objects, LINKS);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK(sw_gc_destroy(gc) == SW_OK);
}

int main(int argc, char **argv) {
    static const uint64_t next = 1;
    static void *root;
    uint64_t objects = argc > 1 ? strtoull(argv[1], NULL, 10) : OBJECTS;
    list of = {0};
    uint32_t type, id;
    CHECK(sw_gc_create(NULL, &of.gc) == SW_OK);
    CHECK(sw_gc_add_type(of.gc, &(sw_gc_type){.name = "node", .bytes = 16, .pointers = &next},
                         &type) == SW_OK);
    CHECK(sw_gc_add_roots(of.gc, &root, sizeof root, &id) == SW_OK);
    void **middle = NULL;
    for (uint64_t i = 0; i < objects; i++) {
        void **made = sw_gc_new(of.gc, type, 1);
        if (made == NULL) return EXIT_FAILURE;
        *made = root;
        root = made;
        if (i == objects / 2) middle = made;
    }
    collect_there(&of);
    CHECK(of.marked == objects && of.freed == 0);
    test_timed_steps(of.gc, objects);
    test_mixed_chain();
    if (middle != NULL) *middle = NULL; /* no cycle is under way */
    collect_there(&of);
    CHECK(of.marked == objects - objects / 2 && of.freed == objects / 2);
    CHECK(sw_gc_verify(of.gc) == SW_OK);
    CHECK(sw_gc_destroy(of.gc) == SW_OK);
    return check_result();
}

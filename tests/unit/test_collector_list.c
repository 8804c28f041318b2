/* SPDX-License-Identifier: Apache-2.0 */
/* Long chains and deep trees. A long list is marked by a thread whose stack has 64 KiB, or the least there is: marking
 * does not recurse. Marking by depth, which begins where objects lead to near ones: a tree in the order of its
 * allocation, with what such a tree may meet among its nodes. Objects are counted as they are made.
 * One argument: the length of the list (10,000,000 is the long form). */
#include <pthread.h>
#include <unistd.h>

#include "collector.h"
#include "gc/mark.h"
#include "sanitizer.h"

/* --- a list ----------------------------------------------------------------------------------- */

enum { STACK_BYTES = 64 << 10, SANITIZED_STACK_BYTES = 1 << 20, LIST_OBJECTS = 200000 };

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
    static const uint64_t late[2] = {0, 1ull << (WORD - 64)};
    static void *root;
    sw_gc *gc = gc_begin(0);
    uint32_t types[2] = {gc_type(gc, 16, 1)};
    CHECK_EQ(sw_gc_add_type(gc, &(sw_gc_type){"wide", 1024, late}, &types[1]), SW_OK);
    gc_roots(gc, &root, sizeof root);
    for (int i = 0; i < LINKS; i++) {
        void **made = sw_gc_new(gc, types[i % 3 == 0], 1);
        if (made == NULL) abort();
        made[i % 3 == 0 ? WORD : 0] = root;
        root = made;
    }
    EXPECT_COLLECT(gc, LINKS, 0);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static void test_list(uint64_t objects) {
    static void *root;
    list of = {.gc = gc_begin(0)};
    uint32_t type = gc_type(of.gc, 16, 1);
    gc_roots(of.gc, &root, sizeof root);
    void **middle = NULL;
    for (uint64_t i = 0; i < objects; i++) {
        void **made = sw_gc_new(of.gc, type, 1);
        if (made == NULL) abort();
        *made = root;
        root = made;
        if (i == objects / 2) middle = made;
    }
    collect_there(&of);
    CHECK(of.marked == objects && of.freed == 0);
    test_timed_steps(of.gc, objects);
    if (middle != NULL) *middle = NULL; /* no cycle is under way */
    collect_there(&of);
    CHECK(of.marked == objects - objects / 2 && of.freed == objects / 2);
    gc_end(of.gc);
}

/* --- a tree ----------------------------------------------------------------------------------- */

enum { DEPTH = 11, FAR_OBJECTS = 4000, NODE_WORDS = 4, WIDE_WORDS = 128, OUTSIDE = 3 };

typedef struct forest {
    sw_gc *gc;
    uint32_t node, mixed, wide,
        plain; /* types; pointers: words 0 and 1; 2; 0, 1 and the last; none */
    void *far[FAR_OBJECTS];
    uint64_t kept, dropped, made_nodes; /* objects */
} forest;

static void *root;
static forest woods;

static void *new_of(uint32_t type) {
    void *made = sw_gc_new(woods.gc, type, 1);
    CHECK(made != NULL);
    return made;
}

/* An object that nothing points to. */
static void drop_one(uint32_t type) {
    (void)new_of(type);
    woods.dropped++;
}

/* Nodes are made before their children. Each 97th node is scanned in pieces, a dropped one follows each 5th, and each
 * 31st child is pointed to by its second word. */
static void **grow(uint32_t depth) {
    uint64_t number = woods.made_nodes++;
    void **made = new_of(number % 97 == 96 ? woods.wide : woods.node);
    woods.kept++;
    if (number % 5 == 0) drop_one(woods.node);
    if (depth == 0) return made;
    for (int side = 0; side < 2; side++) {
        void **child = grow(depth - 1);
        made[side] = number % 31 == 30 ? child + 1 : child;
    }
    return made;
}

/* Leaves lead to what is far, or to an object without pointers, or back to the root. */
static void hang(void **node, uint32_t depth, uint64_t *leaf) {
    if (depth == 0) {
        uint64_t number = (*leaf)++;
        if (number % 3 == 0) node[0] = woods.far[number * 7919 % FAR_OBJECTS];
        if (number % 16 == 1) {
            node[1] = new_of(woods.plain);
            woods.kept++;
        }
        if (number % 64 == 2) node[0] = root;
        return;
    }
    for (int side = 0; side < 2; side++) {
        uintptr_t child = (uintptr_t)node[side] & ~(uintptr_t)15;
        hang((void **)child, depth - 1, leaf); /* NOLINT(performance-no-int-to-ptr) */
    }
}

static void begin(void) {
    static const uint64_t wide[2] = {3, 1ull << 63}, none = 0;
    const size_t node_bytes = NODE_WORDS * sizeof(void *), wide_bytes = WIDE_WORDS * sizeof(void *);
    woods = (forest){.gc = gc_begin(SW_GC_CHECKMARK)};
    root = NULL;
    woods.node = gc_type(woods.gc, node_bytes, 3);
    woods.mixed = gc_type(woods.gc, node_bytes, 4);
    sw_gc_type scanned[2] = {{"wide", wide_bytes, wide}, {"plain", node_bytes, &none}};
    CHECK_EQ(sw_gc_add_type(woods.gc, &scanned[0], &woods.wide), SW_OK);
    CHECK_EQ(sw_gc_add_type(woods.gc, &scanned[1], &woods.plain), SW_OK);
    gc_roots(woods.gc, &root, sizeof root);
}

static void end(void) { gc_end(woods.gc); }

/* A cycle keeps and frees so many. work: units of each step of marking, 0: one step does all. */
static void cycle_of(size_t work, uint64_t kept, uint64_t freed) {
    CHECK_EQ(sw_gc_start(woods.gc), SW_OK);
    while (work != 0 && sw_gc_current_phase(woods.gc) == SW_GC_MARKING) {
        CHECK_EQ(sw_gc_step(woods.gc, work), SW_OK);
        if (work > 1) CHECK_EQ(sw_gc_verify(woods.gc), SW_OK);
    }
    EXPECT_FINISH(woods.gc, kept, freed);
}

/* A perfect tree of 4,095 nodes and nothing else. */
static void test_plain_tree(void) {
    begin();
    root = grow(DEPTH);
    CHECK_EQ(woods.kept, 4095);
    cycle_of(0, 4095, 819);
    cycle_of(1000, 4095, 0);
    root = NULL;
    cycle_of(0, 0, 4095);
    end();
}

/* With far objects, some of other types, pointers back, and objects that lead nowhere. Far objects that no leaf leads
 * to are freed. */
static void test_mixed_tree(void) {
    static const size_t works[] = {1, 33, 700};
    uint64_t leaf = 0, reached = 0;
    static bool is_reached[FAR_OBJECTS];
    begin();
    for (int i = 0; i < FAR_OBJECTS; i++)
        woods.far[i] = new_of(i % 50 == 7 ? woods.mixed : woods.node);
    root = grow(DEPTH);
    hang(root, DEPTH, &leaf);
    CHECK_EQ(leaf, 2048);
    for (uint64_t number = 0; number < leaf; number += 3)
        if (number % 64 != 2) is_reached[number * 7919 % FAR_OBJECTS] = true;
    for (int i = 0; i < FAR_OBJECTS; i++) reached += is_reached[i];
    uint64_t kept = woods.kept + reached, freed = woods.dropped + FAR_OBJECTS - reached;
    cycle_of(0, kept, freed);
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) cycle_of(works[i], kept, 0);
    end();
}

/* The mark stack may not grow: what finds no room is found again among the marked objects. */
static void test_short_stack(void) {
    begin();
    root = grow(DEPTH);
    cycle_of(0, 4095, 819);
    sw_gc_stack *stack = &woods.gc->stack, whole = *stack;
    for (size_t entries = 64; entries <= 80; entries += 8) {
        stack->reserved = entries;
        stack->end = stack->base + entries;
        stack->dirty = stack->base; /* nothing to give back, which would be past the end */
        cycle_of(0, 4095, 0);
        cycle_of(500, 4095, 0);
    }
    stack->reserved = whole.reserved;
    stack->end = whole.end;
    end();
}

int main(int argc, char **argv) {
    test_list(argc > 1 ? strtoull(argv[1], NULL, 10) : LIST_OBJECTS);
    test_mixed_chain();
    test_plain_tree();
    test_mixed_tree();
    test_short_stack();
    return check_result();
}

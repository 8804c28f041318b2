/* SPDX-License-Identifier: Apache-2.0 */
/* Marking by several threads: graphs of all shapes, of which the same objects live as with one
 * thread and by a second marking. */
#include "collector.h"
#include "gc/gc.h"

enum { DEGREE = 4 };

static sw_gc *gc;
static void **addresses;

static void begin(unsigned threads) {
    gc = gc_begin(SW_GC_CHECKMARK);
    CHECK_EQ(sw_gc_set_markers(gc, threads), SW_OK);
}

/* Objects of 64 bytes, or of 4,000 bytes and so scanned by their type's layout. */
static void build(const uint32_t *edges, size_t nodes, size_t bytes) {
    uint32_t type = gc_type(gc, bytes, (1u << DEGREE) - 1);
    addresses = calloc(nodes, sizeof *addresses);
    CHECK(addresses != NULL);
    CHECK_EQ(sw_gc_build(gc, type, DEGREE, nodes, edges, addresses), SW_OK);
}

static uint64_t reachable(const uint32_t *edges, size_t nodes) {
    unsigned char *seen = calloc(nodes, 1);
    uint32_t *stack = malloc(nodes * sizeof *stack), top = 0;
    uint64_t count = 1;
    CHECK(seen != NULL && stack != NULL);
    seen[0] = 1;
    for (stack[top++] = 0; top > 0;)
        for (uint32_t at = stack[--top], e = 0; e < DEGREE; e++) {
            uint32_t to = edges[at * DEGREE + e];
            if (to == SW_GC_NO_EDGE || seen[to]) continue;
            seen[to] = 1;
            stack[top++] = to;
            count++;
        }
    free(seen);
    free(stack);
    return count;
}

typedef uint32_t shape(uint64_t *random, size_t nodes, uint64_t node, uint64_t edge);

static uint32_t of_random(uint64_t *random, size_t nodes, uint64_t node, uint64_t edge) {
    (void)node;
    return edge == 3 ? SW_GC_NO_EDGE : (uint32_t)(check_random(random) % nodes);
}

static uint32_t of_tree(uint64_t *random, size_t nodes, uint64_t node, uint64_t edge) {
    (void)random;
    uint64_t child = 2 * node + 1 + edge;
    return edge < 2 && child < nodes ? (uint32_t)child : SW_GC_NO_EDGE;
}

static uint32_t of_list(uint64_t *random, size_t nodes, uint64_t node, uint64_t edge) {
    (void)random;
    return edge == 0 && node + 1 < nodes ? (uint32_t)node + 1 : SW_GC_NO_EDGE;
}

/* The first node leads to all others. */
static uint32_t of_star(uint64_t *random, size_t nodes, uint64_t node, uint64_t edge) {
    (void)random;
    uint64_t fan = node * DEGREE + 1 + edge;
    return fan < nodes && node < nodes / 8 ? (uint32_t)fan : SW_GC_NO_EDGE;
}

static void test_shape(shape *of, size_t nodes, size_t bytes, unsigned threads, sw_gc_order order) {
    uint32_t *edges = malloc(nodes * DEGREE * sizeof *edges);
    uint64_t random = 5;
    CHECK(edges != NULL);
    for (uint64_t i = 0; i < nodes * DEGREE; i++)
        edges[i] = of(&random, nodes, i / DEGREE, i % DEGREE);
    begin(threads);
    CHECK_EQ(sw_gc_set_order(gc, order), SW_OK);
    build(edges, nodes, bytes);
    gc_roots(gc, addresses, sizeof *addresses);
    uint64_t lives = reachable(edges, nodes);
    for (int i = 0; i < 2; i++) {
        sw_gc_cycle cycle = gc_collect(gc);
        gc_expect_cycle(cycle, lives, i == 0 ? nodes - lives : 0);
        CHECK(cycle.markers >= 1 && cycle.markers <= threads);
        if (of == of_random && order == SW_GC_BY_OBJECT) CHECK_EQ(cycle.markers, threads);
        if (order == SW_GC_BY_SPAN) CHECK_EQ(cycle.markers, 1);
    }
    addresses[0] = NULL;
    sw_gc_cycle none = gc_collect(gc);
    gc_expect_cycle(none, 0, lives);
    CHECK_EQ(none.markers, 1); /* no helper is started for nothing */
    free(addresses);
    free(edges);
    gc_end(gc);
}

enum { NODES = 60000 };

static uint32_t *random_edges(uint64_t seed) {
    uint32_t *edges = malloc((size_t)NODES * DEGREE * sizeof *edges);
    CHECK(edges != NULL);
    for (uint64_t i = 0; i < NODES * DEGREE; i++) edges[i] = of_random(&seed, NODES, 0, i % DEGREE);
    return edges;
}

/* What begins in steps is finished by all threads. */
static void test_finish(void) {
    uint32_t *edges = random_edges(7);
    begin(3);
    build(edges, NODES, 64);
    gc_roots(gc, addresses, sizeof *addresses);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    CHECK_EQ(sw_gc_step(gc, 100), SW_OK);
    sw_gc_cycle cycle = gc_finish(gc);
    CHECK_EQ(cycle.marked_objects, reachable(edges, NODES));
    CHECK_EQ(cycle.markers, 3);
    CHECK_EQ(sw_gc_set_markers(gc, 1), SW_OK);
    CHECK_EQ(gc_collect(gc).markers, 1);
    free(addresses);
    free(edges);
    gc_end(gc);
}

/* Any joined thread may collect. */
static void *collect_here(void *arg) {
    CHECK_EQ(sw_gc_join(gc, "other"), SW_OK);
    CHECK_EQ(gc_collect(gc).markers, 2);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    return arg;
}

static void test_another_thread(void) {
    uint32_t *edges = random_edges(9);
    begin(2);
    build(edges, NODES, 64);
    gc_roots(gc, addresses, sizeof *addresses);
    CHECK_EQ(sw_gc_join(gc, "main"), SW_OK);
    gc_in_thread(gc, collect_here, NULL);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    free(addresses);
    free(edges);
    gc_end(gc);
}

static void test_option(void) {
    begin(1);
    CHECK_EQ(sw_gc_set_markers(gc, 0), SW_INVALID);
    CHECK_EQ(sw_gc_set_markers(gc, 17), SW_INVALID);
    CHECK(gc->pool == NULL);
    CHECK_EQ(sw_gc_set_markers(gc, 16), SW_OK);
    CHECK_EQ(sw_gc_set_markers(gc, 2), SW_OK);
    gc_end(gc);
}

int main(void) {
    static shape *const shapes[] = {of_random, of_tree, of_list, of_star};
    size_t nodes = UNDER_TSAN ? 40000 : 150000;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (unsigned threads = 1; threads <= 4; threads++)
            test_shape(shapes[i], nodes, 64, threads, SW_GC_BY_OBJECT);
    test_shape(of_random, 20000, 4000, 3, SW_GC_BY_OBJECT);
    test_shape(of_random, nodes, 64, 2, SW_GC_BY_SPAN);
    test_finish();
    test_another_thread();
    test_option();
    return check_result();
}

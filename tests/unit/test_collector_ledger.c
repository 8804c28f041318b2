/* SPDX-License-Identifier: Apache-2.0 */
/* What the ledger of a collected heap says of objects that wait for the sweep: the figures are reckoned by hand from
 * what was made and freed. */
#include "check.h"
#include "spanwise/gc.h"
#include "spanwise/stats.h"

enum {
    NODE_BYTES = 64,
    NODES = 300,      /* in a list from the root */
    LOST_NODES = 500, /* no root reaches them */
    LONG_BYTES = 512,
    LONG_OBJECTS = 200, /* garbage in spans of which the cycle meets one at most */
    LARGE_ASKED = 100000,
    LARGE_BYTES = 106496, /* 13 pages of 8 KiB */
};

typedef struct fixture {
    sw_gc *gc;
    sw_heap *heap;
    void **root;
    void **nodes[NODES];
    void *lost[LOST_NODES];
    void *large;
} fixture;

static void start(fixture *f) {
    static const uint64_t first = 1;
    uint32_t node, id;
    memset(f, 0, sizeof *f);
    CHECK_EQ(sw_gc_create(NULL, &f->gc), SW_OK);
    f->heap = sw_gc_heap(f->gc);
    CHECK_EQ(sw_gc_add_type(f->gc, &(sw_gc_type){"node", NODE_BYTES, &first}, &node), SW_OK);
    CHECK_EQ(sw_gc_add_roots(f->gc, &f->root, sizeof f->root, &id), SW_OK);
    for (int i = 0; i < NODES; i++) {
        f->nodes[i] = sw_gc_new(f->gc, node, 1);
        f->nodes[i][0] = f->root;
        f->root = f->nodes[i];
    }
    for (int i = 0; i < LOST_NODES; i++) f->lost[i] = sw_gc_new(f->gc, node, 1);
    for (int i = 0; i < LONG_OBJECTS; i++) CHECK(sw_heap_alloc(f->heap, LONG_BYTES, 0) != NULL);
    f->large = sw_heap_alloc(f->heap, LARGE_ASKED, 0);
    CHECK(f->large != NULL);
}

static sw_ledger ledger_of(const fixture *f) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(f->heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(sw_heap_verify(f->heap), SW_OK);
    return ledger;
}

static void expect(const fixture *f, uint64_t pending, uint64_t unswept) {
    sw_ledger ledger = ledger_of(f);
    CHECK_EQ(ledger.pending_bytes, pending);
    CHECK_EQ(ledger.unswept_bytes, unswept);
}

static void mark_all(const fixture *f) {
    while (sw_gc_current_phase(f->gc) == SW_GC_MARKING) CHECK_EQ(sw_gc_step(f->gc, 100), SW_OK);
}

/* What a cycle frees was announced by the ledger before: at each step what waits and what was freed add up to the same. */
static void sweep_in_steps(const fixture *f, uint64_t pending, uint64_t unswept) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    int partly = 0;
    while (sw_gc_current_phase(f->gc) != SW_GC_IDLE) {
        sw_ledger ledger = ledger_of(f);
        CHECK_EQ(sw_gc_last_cycle(f->gc, &cycle), SW_OK);
        CHECK_EQ(ledger.pending_bytes + cycle.pending_bytes, pending);
        CHECK_EQ(ledger.unswept_bytes + cycle.freed_bytes, unswept);
        partly += ledger.unswept_bytes != 0 && cycle.freed_bytes != 0;
        CHECK_EQ(sw_gc_step(f->gc, 1), SW_OK);
    }
    CHECK(unswept == 0 || partly != 0);
    expect(f, 0, 0);
}

static void test_a_cycle(void) {
    fixture f;
    start(&f);
    expect(&f, 0, 0);
    uint64_t live = ledger_of(&f).requested_bytes;
    CHECK_EQ(live, (NODES + LOST_NODES) * NODE_BYTES + LONG_OBJECTS * LONG_BYTES + LARGE_BYTES);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    expect(&f, 0, 0);
    for (int i = 0; i < 10; i++) sw_heap_free(f.heap, f.nodes[i * 7]);
    for (int i = 0; i < 5; i++) sw_heap_free(f.heap, f.lost[i * 90]);
    expect(&f, 15 * NODE_BYTES, 0);
    mark_all(&f);
    uint64_t unswept = (LOST_NODES - 5) * NODE_BYTES + LONG_OBJECTS * LONG_BYTES + LARGE_BYTES;
    expect(&f, 15 * NODE_BYTES, unswept);
    CHECK_EQ(ledger_of(&f).requested_bytes, live);
    sw_heap_free(f.heap, f.lost[1]); /* dead already: the program's free comes first */
    expect(&f, 16 * NODE_BYTES, unswept - NODE_BYTES);
    sweep_in_steps(&f, 16 * NODE_BYTES, unswept - NODE_BYTES);
    CHECK_EQ(ledger_of(&f).requested_bytes, (NODES - 10) * NODE_BYTES);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* The program frees the large object after a cycle has begun. */
static void free_in_a_cycle(fixture *f) {
    start(f);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    sw_heap_free(f->heap, f->large);
}

/* A cycle that is given up frees what the program has freed and nothing else. */
static void test_given_up(void) {
    fixture f;
    free_in_a_cycle(&f);
    expect(&f, LARGE_BYTES, 0);
    CHECK_EQ(sw_gc_abandon(f.gc), SW_OK);
    expect(&f, LARGE_BYTES, 0);
    sweep_in_steps(&f, LARGE_BYTES, 0);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* Callers of a header without the new fields get what they know. */
static void test_shorter_struct(void) {
    fixture f;
    free_in_a_cycle(&f);
    sw_ledger ledger = {.struct_bytes = offsetof(sw_ledger, pending_bytes), .pending_bytes = 7};
    CHECK_EQ(sw_heap_ledger_read(f.heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.struct_bytes, offsetof(sw_ledger, pending_bytes));
    CHECK_EQ(ledger.pending_bytes, 7);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

int main(void) {
    test_a_cycle();
    test_given_up();
    test_shorter_struct();
    return check_result();
}

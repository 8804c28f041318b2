/* SPDX-License-Identifier: Apache-2.0 */
/* Marking by span: which object is scanned when, by hand; what an abandoned cycle leaves; spans that change while they
 * wait. The models show that both orders keep the same objects (test_collector_steps.c and others). */
#include "collector.h"
#include "gc/grey.h"

enum { ROOTS = 8 };

static void *roots[ROOTS];

typedef struct fixture {
    sw_gc *gc;
    uint32_t small, middle,
        late; /* 64, 256 and 64 bytes; pointers at words 0 and 1, in late ones at 2 */
} fixture;

static fixture make(void) {
    fixture f = {.gc = gc_begin(0)};
    memset(roots, 0, sizeof roots);
    f.small = gc_type(f.gc, 64, 3);
    f.middle = gc_type(f.gc, 256, 3);
    f.late = gc_type(f.gc, 64, 4);
    gc_roots(f.gc, roots, sizeof roots);
    CHECK_EQ(sw_gc_set_order(f.gc, SW_GC_BY_SPAN), SW_OK);
    return f;
}

static void **new_object(const fixture *f, uint32_t type) {
    void **made = sw_gc_new(f->gc, type, 1);
    CHECK(made != NULL);
    return made;
}

static uint32_t span_of(const fixture *f, const void *object) {
    return sw_space_id_of(sw_gc_heap(f->gc)->space, (uintptr_t)object);
}

/* Whether the object is grey. */
static int waits(const fixture *f, const void *object) {
    uint32_t id = span_of(f, object);
    const sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    const sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    uint64_t slot = ((uintptr_t)object - meta->base) / meta->bytes;
    return grey_bits != NULL && grey_bits->stamp == meta->stamp &&
           (grey_bits->bits[slot / 64] >> slot % 64 & 1) != 0;
}

static void step(const fixture *f, size_t work) {
    CHECK_EQ(sw_gc_step(f->gc, work), SW_OK);
    CHECK_EQ(sw_gc_verify(f->gc), SW_OK);
}

/* Garbage is freed and all that roots reach is kept: so many. */
static void collect(const fixture *f, uint64_t kept, uint64_t freed) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_debug(f->gc, SW_GC_CHECKMARK), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, &cycle), SW_OK);
    CHECK_EQ(cycle.order, SW_GC_BY_SPAN);
    CHECK_EQ(cycle.marked_objects, kept);
    CHECK_EQ(cycle.freed_objects, freed);
}

/* Objects a, b and c are in one span in that order, x in another. Roots are c and x; c points to a, x to b; c and x
 * wait. The scan of c makes a grey, which waits after x. The scan of x makes b grey in a span that waits already. */
static void test_who_waits(void) {
    fixture f = make();
    void **a = new_object(&f, f.small), **b = new_object(&f, f.small),
         **c = new_object(&f, f.small);
    void **x = new_object(&f, f.middle), **end_of_b = new_object(&f, f.middle);
    CHECK(a < b && b < c && span_of(&f, a) == span_of(&f, c) && span_of(&f, x) != span_of(&f, a));
    roots[0] = c;
    roots[1] = x;
    c[0] = a;
    x[1] = b;
    b[0] = end_of_b;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK(waits(&f, c) && waits(&f, x) && !waits(&f, a) && !waits(&f, b));
    CHECK(f.gc->stack.top == f.gc->stack.base);
    step(&f, 1);
    CHECK(!waits(&f, c) && waits(&f, x) && waits(&f, a));
    step(&f, 1); /* the oldest is the span of x, not a */
    CHECK(!waits(&f, x) && waits(&f, a) && waits(&f, b));
    step(&f, 1); /* a has the lower address */
    CHECK(!waits(&f, a) && waits(&f, b) && f.gc->queue.first == span_of(&f, b));
    step(&f, 1);
    CHECK(!waits(&f, b) && waits(&f, end_of_b));
    CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_MARKING);
    step(&f, 1);
    step(&f, 1);
    CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_SWEEPING);
    CHECK(f.gc->queue.first == 0 && f.gc->queue.last == 0);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    collect(&f, 5, 0);
    gc_end(f.gc);
}

/* The 32 grey objects of a word have so many pointers that some are followed before its last object is scanned: what
 * turns grey then in the same word waits for the next turn. Every second object has a child, and eight pointers lead to
 * it. */
static void test_same_word(void) {
    enum { NODES = 64 };
    fixture f = make();
    uint32_t full = gc_type(f.gc, 64, 0xFF);
    void **nodes[NODES], **firsts = sw_heap_alloc(sw_gc_heap(f.gc), NODES / 2 * 8, SW_SCAN);
    for (int i = 0; i < NODES; i++) nodes[i] = new_object(&f, full);
    CHECK((uintptr_t)nodes[NODES - 1] - (uintptr_t)nodes[0] == (NODES - 1) * 64);
    roots[0] = firsts;
    for (int i = 0; i < NODES; i += 2) {
        firsts[i / 2] = nodes[i];
        for (int w = 0; w < 8; w++) nodes[i][w] = nodes[i + 1];
        nodes[i + 1][7] = new_object(&f, f.middle);
    }
    collect(&f, 1 + NODES + NODES / 2, 0);
    gc_end(f.gc);
}

/* A chosen order is that of the next cycle, and not of one under way. */
static void test_choice(void) {
    fixture f = make();
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_order(f.gc, (sw_gc_order)2), SW_INVALID);
    void **parent = new_object(&f, f.small);
    parent[0] = new_object(&f, f.middle);
    roots[0] = parent;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_set_order(f.gc, SW_GC_BY_OBJECT), SW_OK);
    CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_OK);
    CHECK_EQ(cycle.order, SW_GC_BY_SPAN);
    CHECK_EQ(cycle.marked_objects, 2);
    CHECK_EQ(sw_gc_collect(f.gc, &cycle), SW_OK);
    CHECK_EQ(cycle.order, SW_GC_BY_OBJECT);
    CHECK_EQ(cycle.marked_objects, 2);
    gc_end(f.gc);
}

/* An abandoned cycle leaves grey objects: the next one scans none of them, though they were freed meanwhile. */
static void test_given_up(void) {
    fixture f = make();
    void **first = new_object(&f, f.small), **second = new_object(&f, f.small);
    first[0] = second;
    roots[0] = first;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK(waits(&f, first));
    CHECK_EQ(sw_gc_abandon(f.gc), SW_OK);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    CHECK_EQ(f.gc->queue.first, 0);
    void **other = new_object(&f, f.small);
    other[1] = new_object(&f, f.middle);
    roots[0] = NULL;
    roots[1] = other;
    collect(&f, 2, 2);
    collect(&f, 2, 0);
    gc_end(f.gc);
}

/* While an object waits, its span gets one of another type: from then on each has its own map, and the grey one too. */
static void test_types_change(void) {
    fixture f = make();
    void **waiting = new_object(&f, f.small), **child = new_object(&f, f.middle);
    waiting[0] = child;
    waiting[2] = new_object(&f, f.middle); /* no pointer of a small one */
    roots[0] = waiting;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK(waits(&f, waiting));
    roots[1] = new_object(&f, f.late);
    CHECK_EQ(span_of(&f, roots[1]), span_of(&f, waiting));
    CHECK_EQ(sw_gc_span_metas[span_of(&f, waiting)].scan_mask, 0);
    EXPECT_FINISH(f.gc, 3, 1);
    gc_end(f.gc);
}

/* Whole spans end and come again, with grey bits of other cycles: what was theirs is given back to the metadata. */
static void test_spans_end(void) {
    fixture f = make();
    const char *bump = NULL;
    for (int round = 0; round < 20; round++) {
        void **head = NULL;
        for (int i = 0; i < 400; i++) {
            void **node = new_object(&f, round % 2 == 0 ? f.small : f.middle);
            node[0] = head;
            roots[0] = head = node;
        }
        collect(&f, 400, 0);
        roots[0] = NULL;
        collect(&f, 0, 400);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(f.gc)), SW_OK);
        if (round == 3) bump = sw_gc_heap(f.gc)->meta.bump;
    }
    CHECK(sw_gc_heap(f.gc)->meta.bump == bump); /* what was freed is used again */
    gc_end(f.gc);
}

int main(void) {
    test_who_waits();
    test_same_word();
    test_choice();
    test_given_up();
    test_types_change();
    test_spans_end();
    return check_result();
}

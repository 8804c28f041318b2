/* SPDX-License-Identifier: Apache-2.0 */
/* Marking. Long lists, in a thread with a stack of 64 KiB, or the minimum: marking does not
 * recurse. Depth first, if objects point to near ones: a tree in allocation order. By span: the
 * order of scanning, the state after an abandoned cycle, spans that change while they are queued;
 * the models show that both orders keep the same objects. One argument: the length of the list
 * (10,000,000 is the long form). */
#include <pthread.h>
#include <unistd.h>

#include "collector.h"
#include "gc/mark.h"

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

/* A chain in which an object that is scanned in pieces follows each two that are not: only one
 * waits at a time. */
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
    if (middle != NULL) *middle = NULL; /* no cycle is under way */
    collect_there(&of);
    CHECK(of.marked == objects - objects / 2 && of.freed == objects / 2);
    gc_end(of.gc);
}

/* --- a tree ----------------------------------------------------------------------------------- */

enum { DEPTH = 11, FAR_OBJECTS = 4000, NODE_WORDS = 4, WIDE_WORDS = 128 };

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

/* Nodes are made before their children. Each 97th node is scanned in pieces, a dropped one follows
 * each 5th, and each 31st child is pointed to by its second word. */
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

/* With far objects, some of other types, pointers back, and objects that lead nowhere. Far objects
 * that no leaf leads to are freed. */
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

/* --- by span ---------------------------------------------------------------------------------- */

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
static void collect_by_span(const fixture *f, uint64_t kept, uint64_t freed) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_debug(f->gc, SW_GC_CHECKMARK), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, &cycle), SW_OK);
    CHECK_EQ(cycle.order, SW_GC_BY_SPAN);
    CHECK_EQ(cycle.marked_objects, kept);
    CHECK_EQ(cycle.freed_objects, freed);
}

/* Objects a, b and c are in one span in that order, x in another. Roots are c and x; c points to a,
 * x to b; c and x wait. The scan of c makes a grey, which waits after x. The scan of x makes b grey
 * in a span that waits already. */
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
    collect_by_span(&f, 5, 0);
    gc_end(f.gc);
}

/* The 32 grey objects of a word have so many pointers that some are followed before its last object
 * is scanned: what turns grey then in the same word waits for the next turn. Every second object
 * has a child, and eight pointers lead to it. */
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
    collect_by_span(&f, 1 + NODES + NODES / 2, 0);
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

/* While an object waits, its span gets one of another type: from then on each has its own map, and
 * the grey one too. */
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

/* Whole spans end and come again, with grey bits of other cycles: what was theirs is given back to
 * the metadata. */
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
        collect_by_span(&f, 400, 0);
        roots[0] = NULL;
        collect_by_span(&f, 0, 400);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(f.gc)), SW_OK);
        if (round == 3) bump = sw_gc_heap(f.gc)->meta.bump;
    }
    CHECK(sw_gc_heap(f.gc)->meta.bump == bump); /* what was freed is used again */
    gc_end(f.gc);
}

int main(int argc, char **argv) {
    test_list(argc > 1 ? strtoull(argv[1], NULL, 10) : LIST_OBJECTS);
    test_mixed_chain();
    test_mixed_tree();
    test_short_stack();
    test_who_waits();
    test_same_word();
    test_choice();
    test_types_change();
    test_spans_end();
    return check_result();
}

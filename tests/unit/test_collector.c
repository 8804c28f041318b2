/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-written cases for the collector: a mark stack without memory, the spans of other threads
 * and caches, kinds of objects and of words, graphs by numbers, bad input; objects of several
 * types in the same spans, in every order, and a limit whose hook collects. */
#include <errno.h>

#include "collector_model.h"
#include "faults.h"
#include "gc/mark.h"
#include "gc/type.h"
#include "heap/cache.h"
#include "spawn.h"

static uint32_t types[4];

static sw_gc *make(void) {
    sw_gc *gc = gc_begin(0);
    types[0] = gc_type(gc, 64, 0xF);
    types[1] = gc_type(gc, 64, 0xAA);
    types[2] = gc_type(gc, 40, 0);
    types[3] = gc_type(gc, 24, 4);
    return gc;
}

static bool is_marked(sw_gc *gc, uintptr_t p) {
    const sw_space *space = sw_gc_heap(gc)->space;
    uint32_t id = sw_space_id_of(space, p);
    const sw_span *span = sw_space_span(space, id);
    uint32_t slot = sw_span_is_large(span) ? 0 : sw_span_slot_of(span, p);
    const sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    return (uint32_t)meta->stamp == gc->epoch && (meta->marks[slot / 64] >> slot % 64 & 1) != 0;
}

/* The stack takes `entries` objects and no more; everything that is reached is marked all the same.
 */
static void mark_with_stack_of(sw_gc_order order, size_t entries, size_t work) {
    static model m;
    sw_gc *gc = gc_begin(0);
    model_begin(&m, gc, 5 + entries);
    for (int n = 0; n < 600; n++) model_mutate(&m);
    for (int r = 0; r < MODEL_ROOTS; r++) /* garbage, too */
        model_set_root(&m, r, m.objects[r].at != 0 ? r : -1);
    model_reach(&m);
    sw_gc_marker marker;
    gc->epoch++;
    gc->phase = SW_GC_MARKING;
    gc->cycle.order = order;
    sw_gc_marker_start(&marker, gc, SW_GC_ALL_WORK);
    if (marker.stack.end == marker.stack.base) CHECK(sw_gc_stack_grow(&marker.stack));
    sw_gc_stack whole = marker.stack;
    marker.stack.end = marker.stack.base + entries;
    marker.stack.reserved = entries; /* it can not grow */
    sw_gc_mark_range(&marker, m.root_words, sizeof m.root_words);
    while (!sw_gc_mark_drain(&marker)) marker.work = (int64_t)work;
    CHECK(gc->cycle.overflows > 0);
    for (int i = 0; i < MODEL_OBJECTS; i++)
        if (m.objects[i].at != 0) CHECK_EQ(is_marked(gc, m.objects[i].at), m.objects[i].reached);
    marker.stack = whole;
    marker.stack.top = marker.stack.base;
    sw_gc_marker_end(&marker);
    gc->epoch++;
    gc->phase = SW_GC_IDLE;
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static void test_stack_overflow(void) {
    for (sw_gc_order order = SW_GC_BY_OBJECT; order <= SW_GC_BY_SPAN; order++) {
        mark_with_stack_of(order, 0, 1 << 30);
        mark_with_stack_of(order, 0, 1);
        mark_with_stack_of(order, 1, 1);
        mark_with_stack_of(order, 3, 100);
    }
}

/* --- whose spans they are --------------------------------------------------------------------- */

enum { SHARE = 5000 };

typedef struct helper_args {
    sw_gc *gc;
    sw_cache *cache; /* NULL: its own, which ends with the thread */
    void **kept;
    int kept_count;
} helper_args;

/* Allocates a row of objects and keeps every third. */
static void *allocate_share(void *arg) {
    helper_args *args = arg;
    for (int i = 0; i < SHARE; i++) {
        void **node = args->cache != NULL ? sw_cache_alloc(args->cache, 64, SW_SCAN)
                                          : sw_gc_new(args->gc, types[0], 1);
        for (int w = 0; w < 6; w++) CHECK(node[w] == NULL);
        node[5] = node; /* old bytes for whoever gets the slot next */
        if (i % 3 == 0) args->kept[args->kept_count++] = node;
    }
    return NULL;
}

/* Objects in spans of a thread that ended, of another cache, and of the collecting thread. */
static void test_owners(void) {
    static void *kept[3 * SHARE];
    sw_gc *gc = make();
    helper_args args = {.gc = gc, .kept = kept};
    memset(kept, 0, sizeof kept);
    gc_roots(gc, kept, sizeof kept);
    (void)in_thread(allocate_share, &args);
    CHECK_EQ(sw_cache_open(sw_gc_heap(gc), &args.cache), SW_OK);
    (void)allocate_share(&args);
    sw_cache *other = args.cache;
    args.cache = NULL;
    (void)allocate_share(&args);
    uint64_t live = (uint64_t)args.kept_count, freed = 3 * SHARE - live;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    EXPECT_COLLECT(gc, live, freed);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    /* What was freed serves allocations again, and nothing is freed twice. */
    args.cache = other;
    args.kept_count = 0;
    (void)allocate_share(&args);
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK_EQ(cycle.marked_objects + cycle.freed_objects, live + SHARE);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    memset(kept, 0, sizeof kept);
    CHECK_EQ(gc_collect(gc).marked_objects, 0);
    sw_cache_close(other);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static void test_untyped(void) {
    sw_gc *gc = make();
    sw_heap *heap = sw_gc_heap(gc);
    void **root;
    gc_roots(gc, &root, sizeof root);
    /* Every word of an object with SW_SCAN counts, no word of one without. */
    size_t sizes[] = {40, 2000, 40000, 3 << 20};
    for (int scanned = 0; scanned < 2; scanned++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            size_t words = sizes[k] / 8;
            root = sw_heap_alloc(heap, sizes[k], scanned ? SW_SCAN : SW_ZERO);
            root[0] = sw_heap_alloc(heap, 100, 0);
            root[words - 1] = (char *)sw_heap_alloc(heap, 300000, 0) + 200000; /* its inside */
            CHECK_EQ(gc_collect(gc).marked_objects, scanned ? 3 : 1);
            root = NULL;
            EXPECT_COLLECT(gc, 0, scanned ? 3 : 1);
        }
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Words that are no pointers into this heap lead nowhere. */
static void test_strange_words(void) {
    sw_gc *gc = make(), *other = make();
    void *mine = sw_gc_new(gc, types[1], 1), *theirs = sw_gc_new(other, types[1], 1);
    void *plain = sw_malloc(64), **gone = sw_gc_new(gc, types[0], 1);
    gone[0] = gone[3] = sw_gc_new(gc, types[0], 1); /* what a free object points to is not kept */
    sw_heap_free(sw_gc_heap(gc), gone);
    void *words[] = {plain,
                     theirs,
                     (void *)1,
                     (void *)UINTPTR_MAX,
                     &words,
                     gone,
                     NULL,
                     (char *)mine + 63,
                     (void *)((uintptr_t)mine ^ (uintptr_t)1 << 39)};
    gc_roots(gc, words, sizeof words);
    EXPECT_COLLECT(gc, 1, 1);
    CHECK_EQ(gc_collect(other).freed_objects, 1);
    sw_free(plain);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(other), SW_OK);
}

static void test_build(void) {
    sw_gc *gc = make();
    /* A cycle of 0, 1 and 2; 1 names 3 as well, 4 names 3 and 0, and nothing names 4. */
    const uint32_t edges[5][2] = {{1, SW_GC_NO_EDGE}, {2, 3}, {0, SW_GC_NO_EDGE}, {3, 3}, {3, 0}};
    uint32_t wrong[2] = {0, 2}, id;
    void **nodes[5], *root;
    CHECK_EQ(sw_gc_build(gc, types[1], 2, 5, edges[0], (void **)nodes), SW_OK);
    CHECK(nodes[0][1] == nodes[1] && nodes[0][3] == NULL && nodes[1][3] == nodes[3]);
    CHECK(nodes[4][1] == nodes[3] && nodes[4][3] == nodes[0] && nodes[4][0] == NULL);
    root = nodes[1];
    CHECK_EQ(sw_gc_add_roots(gc, &root, sizeof root, &id), SW_OK);
    EXPECT_COLLECT(gc, 4, 1);
    CHECK_EQ(sw_gc_build(gc, types[1], 1, 2, wrong, (void **)nodes), SW_INVALID);
    CHECK_EQ(sw_gc_build(gc, types[1], 5, 1, wrong, (void **)nodes), SW_INVALID);
    CHECK_EQ(sw_gc_build(gc, types[2], 1, 1, wrong, (void **)nodes), SW_INVALID);
    CHECK_EQ(sw_gc_build(gc, 0, 0, 1, NULL, (void **)nodes), SW_INVALID);
    CHECK_EQ(sw_gc_build(gc, 99, 0, 1, NULL, (void **)nodes), SW_INVALID);
    CHECK_EQ(sw_gc_build(gc, types[2], 0, 3, NULL, (void **)nodes), SW_OK);
    CHECK_EQ(sw_gc_build(gc, types[2], 0, 0, NULL, NULL), SW_OK);
    /* Words in a row: what they replace while a cycle marks is kept. */
    void *four[4] = {nodes[0], nodes[1], nodes[2], NULL}, *none[4] = {NULL, NULL, NULL, nodes[2]};
    void **list = root = sw_gc_new(gc, types[0], 1);
    sw_gc_write_all(gc, list, four, 4);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    sw_gc_write_all(gc, list, none, 4);
    CHECK(list[0] == NULL && list[3] == none[3]);
    EXPECT_FINISH(gc, 4, 4);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static void test_bad_input(void) {
    sw_gc *gc = make();
    uint64_t third = 4;
    uint32_t id = 77;
    sw_gc_type past = {"past", 16, &third}, empty = {"empty", 0, NULL}, odd = {"odd", 20, &third};
    sw_gc_type nameless = {NULL, 8, NULL};
    CHECK_EQ(sw_gc_add_type(gc, &past, &id), SW_INVALID);
    CHECK_EQ(sw_gc_add_type(gc, &empty, &id), SW_INVALID);
    CHECK_EQ(sw_gc_add_type(gc, &odd, &id), SW_INVALID);
    CHECK_EQ(sw_gc_add_type(gc, &nameless, &id), SW_INVALID);
    CHECK_EQ(id, 77);
    void *word = NULL;
    CHECK_EQ(sw_gc_add_roots(gc, NULL, 8, &id), SW_INVALID);
    CHECK_EQ(sw_gc_add_roots(gc, (char *)&word + 1, 8, &id), SW_INVALID);
    CHECK_EQ(sw_gc_add_roots(gc, &word, 7, &id), SW_INVALID);
    CHECK_EQ(sw_gc_remove_roots(gc, 1), SW_INVALID);
    errno = 0;
    CHECK(sw_gc_new(gc, 0, 1) == NULL && errno == EINVAL);
    CHECK(sw_gc_new(gc, 99, 1) == NULL && errno == EINVAL);
    CHECK(sw_gc_new(gc, types[0], 0) == NULL && errno == EINVAL);
    CHECK(sw_gc_new(gc, types[0], SIZE_MAX / 8) == NULL && errno == EINVAL);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(NULL), SW_OK);
}

/* --- kinds ------------------------------------------------------------------------------------ */

enum { KINDS = 4, OBJECTS = 4000, CHILD_BYTES = 600 };

/* Objects of 32 bytes; three kinds share spans. Each gets a child in word 0 and one in word 2. */
typedef enum kind { FIRST, THIRD, NEITHER, UNTYPED } kind;
static const int children_kept[KINDS] = {1, 1, 0, 2};

static uint32_t kinds_types[KINDS - 1], child_type;
static void **objects[OBJECTS];

static sw_gc *make_gc(void) {
    static const uint64_t pointers[KINDS - 1] = {1, 4, 0};
    sw_gc *gc = gc_begin(0);
    for (int i = 0; i < KINDS - 1; i++) kinds_types[i] = gc_type(gc, 32, pointers[i]);
    child_type = gc_type(gc, CHILD_BYTES, 0);
    gc_roots(gc, objects, sizeof objects);
    return gc;
}

static int make_object(sw_gc *gc, int i, kind what) {
    objects[i] = what == UNTYPED ? sw_heap_alloc(sw_gc_heap(gc), 32, SW_SCAN)
                                 : sw_gc_new(gc, kinds_types[what], 1);
    for (int w = 0; w < 4 && what != NEITHER; w++) CHECK(objects[i][w] == NULL);
    objects[i][0] = sw_gc_new(gc, child_type, 1);
    objects[i][2] = sw_gc_new(gc, child_type, 1);
    objects[i][1] = objects[i][3] = objects[i]; /* old bytes for the slot's next object */
    return children_kept[what];
}

/* Runs of one kind, of lengths that end within words, at their ends, and after several spans. */
static void test_types_that_share_spans(void) {
    sw_gc *gc = make_gc();
    uint64_t random = 3;
    kind what = FIRST;
    static const int longest_runs[] = {3, 70, 900};
    for (unsigned round = 0; round < 24 / check_share() + 2; round++) {
        int kept = 0, run = 0, longest = longest_runs[round % 3];
        for (int i = 0; i < OBJECTS; i++) {
            if (run-- == 0) {
                run = (int)(check_random(&random) % (uint64_t)longest);
                what = (kind)(check_random(&random) % KINDS);
            }
            kept += make_object(gc, i, what);
            if (check_random(&random) % 4 != 0) continue;
            objects[i] = NULL; /* the next ones are made in holes */
            kept -= 1 + children_kept[what];
        }
        CHECK_EQ(gc_collect(gc).marked_objects, OBJECTS + kept);
        CHECK_EQ(sw_gc_verify(gc), SW_OK);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    }
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Whichever slots of a word are free, the lowest one is taken: within the 1024 bytes of 64 slots
 * addresses rise, and no slot is given out twice. Objects of another type, which other ways make,
 * come between. */
static void test_lowest_first(void) {
    enum { COUNT = 20000, WORD_BYTES = 64 * 16 };
    static uint64_t *made[COUNT];
    sw_gc *gc = gc_begin(0);
    uint64_t random = 5;
    uint32_t id = gc_type(gc, 16, 1), other = gc_type(gc, 16, 1);
    for (int round = 0; round < 6; round++) {
        uint64_t *before = NULL, one_in = round < 3 ? 2 : 50;
        int falls = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            if (made[i] != NULL) continue;
            made[i] = sw_gc_new(gc, check_random(&random) % 100 == 0 ? other : id, 1);
            CHECK_EQ(made[i][1], 0);
            made[i][1] = i + 1;
            int same = ((uintptr_t)made[i] ^ (uintptr_t)before) / WORD_BYTES == 0;
            falls += same && made[i] < before;
            before = made[i];
        }
        CHECK(falls <= 1); /* where the word of the last round gets back what was freed since */
        for (uint64_t i = 0; i < COUNT; i++) {
            CHECK_EQ(made[i][1], i + 1);
            if (check_random(&random) % one_in != 0) continue;
            sw_heap_free(sw_gc_heap(gc), made[i]);
            made[i] = NULL;
        }
    }
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Objects that are full of pointers: what a few of them have is more than is marked at once. */
static void test_dense(void) {
    enum { WORDS = 40, COUNT = 300 };
    sw_gc *gc = gc_begin(0);
    uint64_t random = 8;
    uint32_t id = gc_type(gc, WORDS * 8, (1ull << WORDS) - 1);
    static void **made[COUNT], *root[1];
    gc_roots(gc, root, sizeof root);
    for (int i = 0; i < COUNT; i++) made[i] = sw_gc_new(gc, id, 1);
    for (int i = 0; i < COUNT; i++)
        for (int w = 0; w < WORDS; w++) made[i][w] = made[check_random(&random) % COUNT];
    for (int i = 0; i + 1 < COUNT; i++) made[i][i % WORDS] = made[i + 1];
    root[0] = made[0];
    EXPECT_COLLECT(gc, COUNT, 0);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { ADDED = 3000 };

static void *add_types(void *arg) {
    for (int i = 0; i < ADDED; i++) {
        uint32_t id = gc_type(arg, 8 * ((size_t)i % 64 + 1), 1);
        CHECK(sw_gc_new(arg, id, 1) != NULL);
        CHECK(sw_gc_new(arg, id, 2) != NULL);
    }
    return NULL;
}

static void test_types_added_meanwhile(void) {
    sw_gc *gc = make_gc();
    pthread_t thread;
    memset(objects, 0, sizeof objects);
    CHECK_EQ(pthread_create(&thread, NULL, add_types, gc), 0);
    for (int i = 0; i < 20000; i++) CHECK(sw_gc_new(gc, kinds_types[i % 3], 1) != NULL);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(gc_collect(gc).freed_objects, 20000 + 2 * ADDED);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { SLOTS = 2000, SIZES = 4, LIMIT = 4 << 20 };

static void *slots[SLOTS];

static const size_t sizes[SIZES] = {16, 48, 1000, 40000};

static sw_gc *begin_with(const sw_heap_options *options, uint32_t kinds_types[SIZES]) {
    sw_gc *gc;
    uint32_t roots;
    CHECK_EQ(sw_gc_create(options, &gc), SW_OK);
    for (int k = 0; k < SIZES; k++) kinds_types[k] = gc_type(gc, sizes[k], 2);
    memset(slots, 0, sizeof slots);
    CHECK_EQ(sw_gc_add_roots(gc, slots, sizeof slots, &roots), SW_OK);
    return gc;
}

static int hook_calls;

/* The objects that the caller needs are reachable. */
static int collect_at_limit(sw_heap *heap, uint64_t bytes, void *gc) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    (void)heap, (void)bytes;
    hook_calls++;
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    return cycle.freed_objects != 0;
}

static void test_limit(void) {
    for (int k = 0; k < SIZES; k++) {
        uint32_t kinds_types[SIZES];
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.limit_bytes = LIMIT;
        sw_gc *gc = begin_with(&options, kinds_types);
        size_t made = 0;
        errno = 0;
        while (sw_gc_new(gc, kinds_types[k], 1) != NULL && made * sizes[k] < LIMIT) made++;
        CHECK_EQ(errno, ENOMEM);
        CHECK(made * sizes[k] > LIMIT / 2 && made * sizes[k] < LIMIT);
        sw_heap_set_limit_hook(sw_gc_heap(gc), collect_at_limit, gc);
        hook_calls = 0;
        for (size_t i = 0; i < 10 * made; i++) {
            void **object = sw_gc_new(gc, kinds_types[k], 1);
            CHECK(object != NULL);
            object[0] = object;
            if (i % (made / 20 + 1) == 0) slots[i / (made / 20 + 1) % 5] = object;
        }
        CHECK(hook_calls > 8 && hook_calls < 60);
        for (int i = 0; i < 5; i++) CHECK(*(void **)slots[i] == slots[i]);
        sw_ledger ledger = {.struct_bytes = sizeof ledger};
        CHECK_EQ(sw_heap_ledger(sw_gc_heap(gc), &ledger, NULL, 0), SW_OK);
        CHECK(ledger.held_bytes <= LIMIT);
        gc_end(gc);
    }
}

static void test_refused(void) {
    REFUSED_FROM(sw_gc, sw_heap_options, SW_INVALID, o.dry = 1);
    REFUSED_FROM(sw_gc, sw_heap_options, SW_INVALID, o.tracked = 1);
}

int main(void) {
    test_stack_overflow();
    test_owners();
    test_untyped();
    test_strange_words();
    test_build();
    test_bad_input();
    test_types_that_share_spans();
    test_lowest_first();
    test_dense();
    test_types_added_meanwhile();
    test_limit();
    test_refused();
    return check_result();
}

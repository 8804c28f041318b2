/* SPDX-License-Identifier: Apache-2.0 */
/* Typed allocation: on every path marking follows the words of the object's own type, and its bytes
 * are zero; objects of several types share spans, in every order. Also a limit whose hook
 * collects. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "collector.h"
#include "spawn.h"

enum { KINDS = 4, OBJECTS = 4000, CHILD_BYTES = 600 };

/* Objects of 32 bytes; three kinds share spans. Each gets a child in word 0 and one in word 2. */
typedef enum kind { FIRST, THIRD, NEITHER, UNTYPED } kind;
static const int children_kept[KINDS] = {1, 1, 0, 2};

static uint32_t types[KINDS - 1], child_type;
static void **objects[OBJECTS];

static sw_gc *make(void) {
    static const uint64_t pointers[KINDS - 1] = {1, 4, 0};
    sw_gc *gc = gc_begin(0);
    for (int i = 0; i < KINDS - 1; i++) types[i] = gc_type(gc, 32, pointers[i]);
    child_type = gc_type(gc, CHILD_BYTES, 0);
    gc_roots(gc, objects, sizeof objects);
    return gc;
}

static int make_object(sw_gc *gc, int i, kind what) {
    objects[i] = what == UNTYPED ? sw_heap_alloc(sw_gc_heap(gc), 32, SW_SCAN)
                                 : sw_gc_new(gc, types[what], 1);
    for (int w = 0; w < 4 && what != NEITHER; w++) CHECK(objects[i][w] == NULL);
    objects[i][0] = sw_gc_new(gc, child_type, 1);
    objects[i][2] = sw_gc_new(gc, child_type, 1);
    objects[i][1] = objects[i][3] = objects[i]; /* old bytes for the slot's next object */
    return children_kept[what];
}

/* Runs of one kind, of lengths that end within words, at their ends, and after several spans. */
static void test_types_that_share_spans(void) {
    sw_gc *gc = make();
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

/* --- types that are added while others allocate ----------------------------------------------- */

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
    sw_gc *gc = make();
    pthread_t thread;
    memset(objects, 0, sizeof objects);
    CHECK_EQ(pthread_create(&thread, NULL, add_types, gc), 0);
    for (int i = 0; i < 20000; i++) CHECK(sw_gc_new(gc, types[i % 3], 1) != NULL);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(gc_collect(gc).freed_objects, 20000 + 2 * ADDED);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* --- options of the heap ---------------------------------------------------------------------- */

enum { SLOTS = 2000, SIZES = 4, LIMIT = 4 << 20 };

static void *slots[SLOTS];

static const size_t sizes[SIZES] = {16, 48, 1000, 40000};

static sw_gc *begin_with(const sw_heap_options *options, uint32_t types[SIZES]) {
    sw_gc *gc;
    uint32_t roots;
    CHECK_EQ(sw_gc_create(options, &gc), SW_OK);
    for (int k = 0; k < SIZES; k++) types[k] = gc_type(gc, sizes[k], 2);
    memset(slots, 0, sizeof slots);
    CHECK_EQ(sw_gc_add_roots(gc, slots, sizeof slots, &roots), SW_OK);
    return gc;
}

/* --- a limit ---------------------------------------------------------------------------------- */

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
        uint32_t types[SIZES];
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.limit_bytes = LIMIT;
        sw_gc *gc = begin_with(&options, types);
        size_t made = 0;
        errno = 0;
        while (sw_gc_new(gc, types[k], 1) != NULL && made * sizes[k] < LIMIT) made++;
        CHECK_EQ(errno, ENOMEM);
        CHECK(made * sizes[k] > LIMIT / 2 && made * sizes[k] < LIMIT);
        sw_heap_set_limit_hook(sw_gc_heap(gc), collect_at_limit, gc);
        hook_calls = 0;
        for (size_t i = 0; i < 10 * made; i++) {
            void **object = sw_gc_new(gc, types[k], 1);
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
    sw_gc *gc;
    sw_heap_options options;
    for (int i = 0; i < 2; i++) {
        sw_heap_options_init(&options);
        options.dry = i == 0;
        options.tracked = i == 1;
        CHECK_EQ(sw_gc_create(&options, &gc), SW_INVALID);
    }
}

int main(void) {
    test_types_that_share_spans();
    test_lowest_first();
    test_dense();
    test_types_added_meanwhile();
    test_limit();
    test_refused();
    return check_result();
}

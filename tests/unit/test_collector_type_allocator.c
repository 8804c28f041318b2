/* SPDX-License-Identifier: Apache-2.0 */
/* Type allocators: inline code allocates the same objects as sw_gc_new, in the same slots, at the
 * same moments of a pace, zeroed, of their type; during cycles in steps, in threads, and for types
 * without a fast path. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "collector.h"
#include "spanwise/gc_fast.h"
#include "spawn.h"

static sw_gc *begin(const sw_table *table) {
    sw_gc *gc;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.manual_clock = 1; /* nothing depends on the time that a test takes */
    CHECK_EQ(sw_gc_create(&options, &gc), SW_OK);
    return gc;
}

static sw_gc_type_allocator maker_of(sw_gc *gc, uint32_t type) {
    sw_gc_type_allocator maker = {0};
    CHECK_EQ(sw_gc_type_allocator_begin(gc, type, &maker), SW_OK);
    return maker;
}

/* --- the same objects ------------------------------------------------------------------------- */

enum { KINDS = 5, SLOTS = 3000 };

/* Three types share a class; one has no pointers; one is large, and has no short path. */
static const size_t kind_bytes[KINDS] = {32, 32, 24, 48, 40000};
static const uint64_t kind_pointers[KINDS] = {1, 2, 4, 0, 1};

typedef struct side {
    sw_gc *gc;
    uint32_t types[KINDS];
    sw_gc_type_allocator makers[KINDS];
    void *objects[SLOTS];
    uintptr_t first;
} side;

static void start_side(side *s) {
    s->gc = begin(NULL);
    for (int k = 0; k < KINDS; k++) {
        s->types[k] = gc_type(s->gc, kind_bytes[k], kind_pointers[k]);
        s->makers[k] = maker_of(s->gc, s->types[k]);
    }
    gc_roots(s->gc, s->objects, sizeof s->objects);
}

/* Holes come from explicit frees, and from cycles that find dropped objects. */
static void drop_some(side *s, int i, uint64_t random) {
    if (random % 3 == 0) sw_heap_free(sw_gc_heap(s->gc), s->objects[i]);
    if (random % 3 != 2) s->objects[i] = NULL;
}

/* Two heaps in step, one whose objects sw_gc_new makes, and one with makers: object for object they
 * lie as far from the first one. */
static void test_same_objects(void) {
    static side by_call, by_maker;
    uint64_t random = 7;
    start_side(&by_call);
    start_side(&by_maker);
    for (int n = 0; n < 60000; n++) {
        int i = (int)(check_random(&random) % SLOTS);
        uint64_t dice = check_random(&random);
        int kind = dice % 2000 == 0 ? 4 : (int)(dice / 2000 % 4);
        bool both =
            dice / 10000 % 5 == 0; /* calls and makers of one heap take from the same bins */
        if (by_call.objects[i] != NULL) {
            drop_some(&by_call, i, dice >> 40);
            drop_some(&by_maker, i, dice >> 40);
        }
        void *called = sw_gc_new(by_call.gc, by_call.types[kind], 1);
        void *made = both ? sw_gc_new(by_maker.gc, by_maker.types[kind], 1)
                          : sw_gc_type_alloc(&by_maker.makers[kind]);
        CHECK(called != NULL && made != NULL);
        if (n == 0) by_call.first = (uintptr_t)called, by_maker.first = (uintptr_t)made;
        CHECK_EQ((uintptr_t)called - by_call.first, (uintptr_t)made - by_maker.first);
        for (size_t b = 0; kind != 3 && b < kind_bytes[kind] / 8; b++)
            CHECK_EQ(((uint64_t *)made)[b], 0);
        memset(called, 0xA5, kind_bytes[kind]);
        memset(made, 0xA5, kind_bytes[kind]);
        by_call.objects[i] = called;
        by_maker.objects[i] = made;
        if (dice % 20001 != 0) continue;
        CHECK_EQ(sw_gc_collect(by_call.gc, NULL), SW_OK);
        CHECK_EQ(sw_gc_collect(by_maker.gc, NULL), SW_OK);
        CHECK_EQ(sw_gc_verify(by_maker.gc), SW_OK);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(by_maker.gc)), SW_OK);
    }
    CHECK_EQ(sw_gc_destroy(by_call.gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(by_maker.gc), SW_OK);
}

/* Objects of all lengths are zero in every byte, in slots that had other bytes, by call and by
 * maker; 8 is a class of Go's table only, and the last two sizes have no short path. */
static void test_cleared(const sw_table *table, bool by_call) {
    static const size_t sizes[] = {8,   16,  24,  32,   48,   64,    72,    120,  128,
                                   136, 144, 512, 1000, 4096, 20000, 32768, 40000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        sw_gc *gc = begin(table);
        uint32_t type = gc_type(gc, sizes[k], 1);
        sw_gc_type_allocator maker = maker_of(gc, type);
        int count = sizes[k] > 4096 ? 30 : 600;
        for (int i = 0; i < count; i++) {
            unsigned char *p = by_call ? sw_gc_new(gc, type, 1) : sw_gc_type_alloc(&maker), all = 0;
            size_t slot = by_call ? sizes[k] : sw_heap_usable_size(sw_gc_heap(gc), p);
            for (size_t b = 0; b < slot; b++) all |= p[b];
            CHECK_EQ(all, 0);
            memset(p, 0xA5, slot);
            if (i % (count / 3) == 0) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
        }
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    }
}

/* --- during cycles ---------------------------------------------------------------------------- */

/* At 4 MiB of fresh objects of 64 bytes a cycle runs: before object 65,536, by call and by maker.
 * In steps and with a collection at each object, too, both do the same. */
static void test_pace(void) {
    enum { FIRST_CYCLE = 65536, ALWAYS = 10 };
    for (int way = 0; way < 2; way++) {
        sw_gc *gc = gc_begin(0);
        uint32_t type = gc_type(gc, 64, 1);
        sw_gc_type_allocator maker = maker_of(gc, type);
        sw_gc_pace pace = {.struct_bytes = sizeof pace, .percent = 100};
        sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
        CHECK_EQ(sw_gc_set_pace(gc, &pace), SW_OK);
        int n = 0;
        while (sw_gc_last_cycle(gc, &cycle) != SW_OK && n < 2 * FIRST_CYCLE) {
            CHECK((way == 0 ? sw_gc_type_alloc(&maker) : sw_gc_new(gc, type, 1)) != NULL);
            n++;
        }
        CHECK_EQ(n, FIRST_CYCLE);
        CHECK_EQ(sw_gc_set_debug(gc, SW_GC_ALWAYS), SW_OK);
        for (int i = 0; i < ALWAYS; i++) CHECK(sw_gc_type_alloc(&maker) != NULL);
        CHECK_EQ(gc_last_cycle(gc).number, 1 + ALWAYS);
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    }
}

/* A list that grows at its head while cycles run in steps; every other object is dropped, and freed
 * by the cycles after. */
static void test_steps(void) {
    enum { NODES = 30000 };
    sw_gc *gc = gc_begin(0);
    sw_gc_type_allocator maker = maker_of(gc, gc_type(gc, 48, 1));
    static void *head[1];
    int length = 0;
    gc_roots(gc, head, sizeof head);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CHECKMARK | SW_GC_CLOBBER), SW_OK);
    for (int i = 0; i < NODES; i++) {
        void **made = sw_gc_type_alloc(&maker);
        if (i % 2 == 0) {
            sw_gc_fast_write(&maker, made, head[0]);
            head[0] = made;
        }
        if (i % 50 != 0) continue;
        if (sw_gc_current_phase(gc) == SW_GC_IDLE) CHECK_EQ(sw_gc_start(gc), SW_OK);
        CHECK_EQ(sw_gc_step(gc, 300), SW_OK);
    }
    CHECK_EQ(gc_collect(gc).marked_objects, NODES / 2);
    for (void **at = head[0]; at != NULL; at = *at) length++;
    CHECK_EQ(length, NODES / 2);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    head[0] = NULL;
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* --- threads ---------------------------------------------------------------------------------- */

enum { THREADS = 3, OF_A_THREAD = 20000 };
static sw_gc *shared_gc;
static uint32_t shared_type;
static void *heads[THREADS];

/* A maker of its own; the world stops at its calls. */
static void *grow_list(void *arg) {
    void **head = arg;
    CHECK_EQ(sw_gc_join(shared_gc, "maker"), SW_OK);
    sw_gc_type_allocator maker = maker_of(shared_gc, shared_type);
    for (int i = 0; i < OF_A_THREAD; i++) {
        void **made = sw_gc_type_alloc(&maker);
        CHECK(made != NULL && *made == NULL);
        sw_gc_fast_write(&maker, made, *head);
        *head = made;
    }
    CHECK_EQ(sw_gc_leave(shared_gc), SW_OK);
    return NULL;
}

static void test_threads(void) {
    shared_gc = gc_begin(0);
    shared_type = gc_type(shared_gc, 64, 1);
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .limit_bytes = 1, .in_steps = 1};
    CHECK_EQ(sw_gc_set_pace(shared_gc, &pace), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(shared_gc, 300000000000), SW_OK);
    gc_roots(shared_gc, heads, sizeof heads);
    in_threads(THREADS, grow_list, heads, sizeof *heads);
    sw_gc_cycle cycle = gc_collect(shared_gc);
    CHECK(cycle.number > 10);
    CHECK_EQ(cycle.marked_objects, THREADS * OF_A_THREAD);
    CHECK_EQ(sw_gc_verify(shared_gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(shared_gc), SW_OK);
}

static void test_fork(void) {
    sw_gc *gc = gc_begin(0);
    sw_gc_type_allocator maker = maker_of(gc, gc_type(gc, 16, 1));
    CHECK(sw_gc_type_alloc(&maker) != NULL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++) CHECK(sw_gc_type_alloc(&maker) != NULL);
        CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
        _exit(check_failed());
    }
    expect_exit_0(child);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* --- what is refused, and what has no short path ---------------------------------------------- */

static int finalized;
static void count(void *object, void *arg) {
    (void)object, (void)arg;
    finalized++;
}

static void test_finalizers(void) {
    sw_gc *gc = gc_begin(0);
    uint32_t plain = gc_type(gc, 32, 1), ended = gc_type(gc, 32, 1);
    CHECK_EQ(sw_gc_set_type_finalizer(gc, ended, count, NULL), SW_OK);
    sw_gc_type_allocator plain_maker = maker_of(gc, plain), ended_maker = maker_of(gc, ended);
    CHECK_EQ(sw_gc_set_type_finalizer(gc, plain, count, NULL), SW_STATE);
    CHECK_EQ(sw_gc_set_type_finalizer(gc, plain, NULL, NULL), SW_OK);
    for (int i = 0; i < 100; i++) {
        CHECK(sw_gc_type_alloc(&plain_maker) != NULL);
        CHECK(sw_gc_type_alloc(&ended_maker) != NULL);
    }
    CHECK_EQ(sw_gc_set_type_finalizer(gc, ended, NULL, NULL), SW_OK);
    for (int i = 0; i < 100; i++) CHECK(sw_gc_type_alloc(&ended_maker) != NULL);
    CHECK_EQ(sw_gc_set_type_finalizer(gc, ended, count, NULL), SW_STATE);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_finalize(gc, 1000), 100);
    CHECK_EQ(finalized, 100);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Objects that are packed share blocks, whoever asks for them. */
static void test_packed(void) {
    sw_gc *gc;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.tiny = 1;
    CHECK_EQ(sw_gc_create(&options, &gc), SW_OK);
    sw_gc_type_allocator maker = maker_of(gc, gc_type(gc, 4, 0));
    uintptr_t first = (uintptr_t)sw_gc_type_alloc(&maker);
    for (uintptr_t i = 1; i < 4; i++) CHECK_EQ((uintptr_t)sw_gc_type_alloc(&maker), first + 4 * i);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static void test_bad_input(void) {
    sw_gc *gc = gc_begin(0);
    sw_gc_type_allocator maker;
    uint32_t type = gc_type(gc, 16, 1);
    CHECK_EQ(sw_gc_type_allocator_begin(gc, type, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_type_allocator_begin(gc, 0, &maker), SW_INVALID);
    CHECK_EQ(sw_gc_type_allocator_begin(gc, type + 1, &maker), SW_INVALID);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Where there is no memory, NULL and ENOMEM; what is freed is made again. */
static void test_no_memory(void) {
    sw_gc *gc;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.limit_bytes = 1 << 20;
    CHECK_EQ(sw_gc_create(&options, &gc), SW_OK);
    sw_gc_type_allocator maker = maker_of(gc, gc_type(gc, 1024, 1));
    int count_made = 0;
    while (sw_gc_type_alloc(&maker) != NULL && count_made < 2000) count_made++;
    CHECK(count_made > 500 && count_made < 1024);
    errno = 0;
    CHECK(sw_gc_type_alloc(&maker) == NULL);
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    for (int i = 0; i < count_made; i++) CHECK(sw_gc_type_alloc(&maker) != NULL);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

int main(void) {
    test_same_objects();
    for (int way = 0; way < 4; way++) test_cleared(way % 2 == 0 ? NULL : sw_table_go(), way < 2);
    test_pace();
    test_steps();
    test_threads();
    test_fork();
    test_finalizers();
    test_packed();
    test_bad_input();
    test_no_memory();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Collected heaps that pack tiny objects: the sizes alone determine the address of each, a block
 * lives while one of its objects is reachable or its cache may pack into it, and the bytes of an
 * object never change. Then type allocators, whose inline code allocates the same objects as
 * sw_gc_new, in the same slots, at the same moments of a pace. */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>

#include "collector.h"
#include "faults.h"
#include "spanwise/gc_fast.h"
#include "spawn.h"

enum { BLOCK = 16, SIZES = 15, OBJECTS = 600, ROUNDS = 4000 };

typedef struct fixture {
    sw_gc *gc;
    sw_heap *heap;
    uint32_t types[SIZES + 1];
    unsigned char *roots[OBJECTS]; /* each holds an object, or NULL */
    size_t sizes[OBJECTS];
    unsigned char fill[OBJECTS];
    uintptr_t block; /* that the next object may go into; 0: none */
    size_t used;     /* of its bytes */
} fixture;

static fixture f;

static void start(unsigned debug) {
    memset(&f, 0, sizeof f);
    f.gc = GC_MADE(o.tiny = 1);
    f.heap = sw_gc_heap(f.gc);
    for (uint32_t bytes = 1; bytes <= SIZES; bytes++) f.types[bytes] = gc_type(f.gc, bytes, 0);
    gc_roots(f.gc, f.roots, sizeof f.roots);
    CHECK_EQ(sw_gc_set_debug(f.gc, debug), SW_OK);
}

static uintptr_t block_of(const void *object) {
    return (uintptr_t)object & ~(uintptr_t)(BLOCK - 1);
}

/* --- places ----------------------------------------------------------------------------------- */

/* An object in root r. Go's rule: aligned to 8, 4 or 2 if its size is a multiple of that, after the
 * last object of its block, else at the start of a new block; the block with more room is packed
 * on. */
static void make(size_t r, size_t bytes, size_t elements) {
    size_t all = bytes * elements;
    size_t align = all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
    size_t at = (f.used + align - 1) / align * align;
    unsigned char *made = sw_gc_new(f.gc, f.types[bytes], elements);
    CHECK(made != NULL);
    if (f.block != 0 && at + all <= BLOCK) {
        CHECK_EQ((uintptr_t)made, f.block + at);
        f.used = at + all;
    } else {
        CHECK_EQ((uintptr_t)made % BLOCK, 0);
        CHECK((uintptr_t)made != f.block);
        if (f.block == 0 || all < f.used) {
            f.block = (uintptr_t)made;
            f.used = all;
        }
    }
    for (size_t i = 0; i < all; i++) CHECK_EQ(made[i], 0);
    f.roots[r] = made;
    f.sizes[r] = all;
    f.fill[r] = (unsigned char)(r % 255 + 1);
    memset(made, f.fill[r], all);
}

static void check_contents(void) {
    for (size_t r = 0; r < OBJECTS; r++)
        for (size_t i = 0; f.roots[r] != NULL && i < f.sizes[r]; i++)
            CHECK_EQ(f.roots[r][i], f.fill[r]);
}

static int by_address(const void *a, const void *b) {
    uintptr_t left = *(const uintptr_t *)a, right = *(const uintptr_t *)b;
    return left < right ? -1 : left > right;
}

/* Blocks that have an object of a root, and the one that is packed on. */
static uint64_t expected_blocks(void) {
    uintptr_t all[OBJECTS + 1];
    uint64_t n = 0, different = 0;
    for (size_t r = 0; r < OBJECTS; r++)
        if (f.roots[r] != NULL) all[n++] = block_of(f.roots[r]);
    if (f.block != 0) all[n++] = f.block;
    qsort(all, n, sizeof *all, by_address);
    for (uint64_t i = 0; i < n; i++) different += i == 0 || all[i] != all[i - 1];
    return different;
}

/* After whole cycles exactly the model's blocks are there; steps of cycles come between. */
static void test_model(void) {
    uint64_t random = 3;
    start(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        uint64_t dice = check_random(&random);
        size_t r = dice % OBJECTS, bytes = 1 + dice / OBJECTS % SIZES;
        if (dice >> 40 & 1)
            f.roots[r] = NULL;
        else
            make(r, bytes, 1 + (dice >> 41) % (SIZES / bytes));
        if (round % 7 == 0) CHECK_EQ(sw_gc_step(f.gc, dice >> 48 & 63), SW_OK);
        if (round % 50 == 0 && sw_gc_current_phase(f.gc) == SW_GC_IDLE)
            CHECK_EQ(sw_gc_start(f.gc), SW_OK);
        if (round % 200 != 0) continue;
        CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
        CHECK_EQ(gc_objects(f.gc), expected_blocks());
        check_contents();
    }
    memset(f.roots, 0, sizeof f.roots);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(gc_objects(f.gc), 1); /* the newest */
    gc_end(f.gc);
}

/* --- frees, references, finalizers ------------------------------------------------------------ */

/* Neither a packed object nor its block is freed by the program, in any phase; each free is
 * reported, and changes nothing. */
static void test_frees(void) {
    start(0);
    remember_faults();
    make(0, 4, 1);
    make(1, 4, 1);
    for (int phase = SW_GC_IDLE; phase <= SW_GC_SWEEPING; phase++) {
        if (phase == SW_GC_MARKING) CHECK_EQ(sw_gc_start(f.gc), SW_OK);
        if (phase == SW_GC_SWEEPING) CHECK_EQ(sw_gc_step(f.gc, SIZE_MAX), SW_OK);
        CHECK_EQ(sw_gc_current_phase(f.gc), phase);
        for (size_t r = 0; r < 2; r++) {
            EXPECT_FAULT(COLLECTED, f.roots[r], sw_heap_free(f.heap, f.roots[r]));
            EXPECT_FAULT(COLLECTED, f.roots[r], sw_heap_free_sized(f.heap, f.roots[r], 4));
            EXPECT_FAULT(COLLECTED, f.roots[r],
                         CHECK(sw_heap_realloc(f.heap, f.roots[r], 8, 0) == NULL));
        }
        sw_ledger ledger;
        CHECK_EQ(sw_heap_ledger(f.heap, &ledger, NULL, 0), SW_OK);
        CHECK_EQ(ledger.pending_bytes, 0);
        CHECK_EQ(ledger.requested_bytes, BLOCK);
    }
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    check_contents();
    void *longer = sw_heap_alloc(f.heap, BLOCK + 1, 0); /* shares nothing */
    sw_heap_free(f.heap, longer);
    CHECK_EQ(gc_objects(f.gc), 1);
    unsigned char *dead = f.roots[0];
    make(2, 15, 1); /* a block of its own; the first has more room */
    unsigned char *full = f.roots[2];
    CHECK_EQ(block_of(dead), f.block);
    f.roots[2] = NULL;
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    EXPECT_FAULT(DOUBLE_FREE, full, sw_heap_free(f.heap, full));
    sw_set_fault_handler(NULL, NULL);
    gc_end(f.gc);
}

static int called;

static void count_call(void *object, void *arg) {
    (void)object, (void)arg;
    called++;
}

/* An object that shares its block is not one that a reference could follow; those of types with a
 * finalizer share none. */
static void test_references(void) {
    sw_gc_ref ref;
    start(0);
    make(0, 4, 1);
    make(1, 4, 1);
    for (size_t r = 0; r < 2; r++) {
        CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, f.roots[r], &ref), SW_INVALID);
        CHECK_EQ(sw_gc_set_finalizer(f.gc, f.roots[r], count_call, NULL), SW_INVALID);
    }
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, f.types[4], count_call, NULL), SW_OK);
    unsigned char *watched = sw_gc_new(f.gc, f.types[4], 1);
    unsigned char *freed = sw_gc_new(f.gc, f.types[4], 2);
    CHECK(block_of(watched) != f.block && block_of(freed) != f.block);
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, watched, &ref), SW_OK);
    sw_heap_free(f.heap, freed);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_finalize(f.gc, SIZE_MAX), 1);
    CHECK_EQ(called, 1);
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, f.types[4], NULL, NULL), SW_OK);
    make(3, 4, 1); /* packed again */
    CHECK_EQ(block_of(f.roots[3]), block_of(f.roots[0]));
    gc_end(f.gc);
}

/* Objects with pointers, and those of 16 bytes, have slots of their own. */
static void test_others(void) {
    start(SW_GC_ALWAYS | SW_GC_CHECKMARK);
    uint32_t pointer = gc_type(f.gc, 8, 1), pair = gc_type(f.gc, 16, 0);
    make(0, 8, 1);
    void **holder = sw_gc_new(f.gc, pointer, 1);
    f.roots[1] = (unsigned char *)holder;
    f.sizes[1] = 0;
    CHECK(block_of(holder) != block_of(f.roots[0]));
    sw_gc_write(f.gc, holder, f.roots[0] + 7); /* the last byte of the packed object */
    f.roots[0] = NULL;
    f.roots[2] = sw_gc_new(f.gc, pair, 1);
    f.sizes[2] = 0;
    CHECK_EQ((uintptr_t)f.roots[2] % BLOCK, 0);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(*(unsigned char *)*holder, f.fill[0]);
    CHECK_EQ(sw_gc_new(f.gc, f.types[8], 0) == NULL && errno == EINVAL, 1);
    gc_end(f.gc);
}

static void test_table(void) {
    static const sw_class_spec specs[] = {{24, 1, 0}, {48, 1, 0}};
    sw_table *table;
    CHECK_EQ(sw_table_create("no16", 8192, specs, 2, &table), SW_OK);
    REFUSED_FROM(sw_gc, sw_heap_options, SW_INVALID, o.tiny = 1, o.table = table);
    sw_table_destroy(table);
}

enum { THREADS = 3, HELD = 50, MADE = 5000 };

static unsigned char *held[THREADS][HELD]; /* roots; each points at a byte that is its number */
static int packing;                        /* atomic: threads that have not left */
static int leaving;                        /* atomic: 1: no cycle comes any more */

static void *pack(void *arg) {
    unsigned char **own = arg;
    uint64_t random = (uint64_t)(own - held[0]) + 1;
    CHECK_EQ(sw_gc_join(f.gc, "packer"), SW_OK);
    for (int i = 0; i < MADE && !check_failed(); i++) {
        uint64_t dice = check_random(&random);
        size_t h = dice % HELD;
        if (own[h] != NULL) CHECK_EQ(*own[h], h + 1);
        own[h] = sw_gc_new(f.gc, f.types[1 + dice / HELD % 4], 1); /* a safe point */
        *own[h] = (unsigned char)(h + 1);
    }
    CHECK_EQ(sw_gc_leave(f.gc), SW_OK);
    (void)__atomic_sub_fetch(&packing, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&leaving, __ATOMIC_ACQUIRE) == 0) sched_yield();
    return NULL;
}

/* Each thread packs into blocks of its own, between the steps of another one's cycles. */
static void test_threads(void) {
    pthread_t threads[THREADS];
    start(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    CHECK_EQ(sw_gc_set_stop_ns(f.gc, 100000000000), SW_OK);
    gc_roots(f.gc, held, sizeof held);
    packing = THREADS;
    for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_create(&threads[t], NULL, pack, held[t]), 0);
    while (__atomic_load_n(&packing, __ATOMIC_ACQUIRE) > 0 && !check_failed()) {
        if (sw_gc_current_phase(f.gc) == SW_GC_IDLE) CHECK_EQ(sw_gc_start(f.gc), SW_OK);
        CHECK_EQ(sw_gc_step(f.gc, 20), SW_OK);
        sched_yield();
    }
    memset(held, 0, sizeof held);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(gc_objects(f.gc), THREADS); /* the newest of each */
    __atomic_store_n(&leaving, 1, __ATOMIC_RELEASE);
    join_threads(threads, THREADS);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(gc_objects(f.gc), 0); /* a thread's end gives its block up */
    gc_end(f.gc);
}

static sw_gc *begin(const sw_table *table) {
    /* nothing depends on the time that a test takes */
    return GC_MADE(o.table = table, o.manual_clock = 1);
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
        sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
        GC_PACE(gc, .percent = 100);
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

enum { OF_A_THREAD = 20000 };
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

static void maker_test_threads(void) {
    shared_gc = gc_begin(0);
    shared_type = gc_type(shared_gc, 64, 1);
    GC_PACE(shared_gc, .limit_bytes = 1, .in_steps = 1);
    CHECK_EQ(sw_gc_set_stop_ns(shared_gc, 300000000000), SW_OK);
    gc_roots(shared_gc, heads, sizeof heads);
    in_threads(THREADS, grow_list, heads, sizeof *heads);
    sw_gc_cycle cycle = gc_collect(shared_gc);
    CHECK(cycle.number > 10);
    CHECK_EQ(cycle.marked_objects, THREADS * OF_A_THREAD);
    gc_end(shared_gc);
}

static void test_fork(void) {
    sw_gc *gc = gc_begin(0);
    sw_gc_type_allocator maker = maker_of(gc, gc_type(gc, 16, 1));
    CHECK(sw_gc_type_alloc(&maker) != NULL);
    IN_CHILD() {
        for (int i = 0; i < 1000; i++) CHECK(sw_gc_type_alloc(&maker) != NULL);
        CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    }
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
    sw_gc *gc = GC_MADE(o.limit_bytes = 1 << 20);
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
    test_model();
    test_frees();
    test_references();
    test_others();
    test_table();
    test_threads();
    test_same_objects();
    for (int way = 0; way < 4; way++) test_cleared(way % 2 == 0 ? NULL : sw_table_go(), way < 2);
    test_pace();
    test_steps();
    maker_test_threads();
    test_fork();
    test_finalizers();
    test_bad_input();
    test_no_memory();
    return check_result();
}

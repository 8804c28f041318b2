/* SPDX-License-Identifier: Apache-2.0 */
/* Collected heaps that pack tiny objects: the sizes alone determine the address of each, a block
 * lives while one of its objects is reachable or its cache may pack into it, and the bytes of an
 * object never change. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "collector.h"
#include "faults.h"

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
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.tiny = 1;
    memset(&f, 0, sizeof f);
    CHECK_EQ(sw_gc_create(&options, &f.gc), SW_OK);
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
    sw_heap_options options;
    sw_table *table;
    sw_gc *gc;
    sw_heap_options_init(&options);
    CHECK_EQ(sw_table_create("no16", 8192, specs, 2, &table), SW_OK);
    options.tiny = 1;
    options.table = table;
    CHECK_EQ(sw_gc_create(&options, &gc), SW_INVALID);
    sw_table_destroy(table);
}

/* --- threads ---------------------------------------------------------------------------------- */

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
    for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(gc_objects(f.gc), 0); /* a thread's end gives its block up */
    gc_end(f.gc);
}

int main(void) {
    test_model();
    test_frees();
    test_references();
    test_others();
    test_table();
    test_threads();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Scalable allocators: hand-written cases of growth, random calls against marks in the bytes
 * themselves, refused memory, threads, and defects of an earlier library as named cases. Their
 * backings: how each rounds, keeps and returns blocks. Recyclable memory: test_memory.c. Forks:
 * test_fork.c. */
#include <fcntl.h>

#include "buffer/backing.h"
#include "buffer/scalable.h"
#include "scalables.h"
#include "spawn.h"

/* --- growth ----------------------------------------------------------------------------------- */

static void children_double(void) {
    sw_scalable *scalable = make_scalable(KIB, 4 * MIB, 1);
    CHECK_EQ(stats_of(scalable).children, 0);
    for (uint64_t i = 1; i <= 16; i++) {
        CHECK(sw_scalable_alloc(scalable, KIB) != NULL);
        uint64_t children = i <= 1 ? 1 : i <= 3 ? 2 : i <= 7 ? 3 : i <= 15 ? 4 : 5;
        CHECK_EQ(stats_of(scalable).children, children);
        CHECK_EQ(stats_of(scalable).held_bytes, ((1 << children) - 1) * KIB);
        CHECK_EQ(stats_of(scalable).taken_bytes, i * KIB);
    }
    end_scalable(scalable);
}

static void growth_stops_at_the_cap(void) {
    sw_scalable *scalable = make_scalable(3 * KIB, 8 * KIB, 1);
    for (int i = 0; i < 6; i++) CHECK(sw_scalable_alloc(scalable, 3 * KIB) != NULL);
    /* 3, then 6 (two), then 8 (two), 8 again */
    CHECK_EQ(stats_of(scalable).held_bytes, (3 + 6 + 8 + 8) * KIB);
    end_scalable(scalable);
    scalable = make_scalable(KIB, 4 * MIB, 1);
    CHECK(sw_scalable_alloc(scalable, 100000) != NULL);
    CHECK_EQ(stats_of(scalable).held_bytes, 131072);
    CHECK_EQ(sw_scalable_reset(scalable), SW_OK);
    CHECK(sw_scalable_alloc(scalable, 1) != NULL); /* growth begins anew */
    CHECK_EQ(stats_of(scalable).held_bytes, KIB);
    end_scalable(scalable);
}

static void large_requests_are_served_and_freed(void) {
    sw_scalable *scalable = make_scalable(KIB, 4 * KIB, 1);
    uint8_t *large = sw_scalable_alloc(scalable, 100 * KIB);
    CHECK_EQ(stats_of(scalable).held_bytes, 100 * KIB);
    memset(large, 1, 100 * KIB);
    uint8_t *small = sw_scalable_alloc(scalable, KIB);
    CHECK_EQ(sw_scalable_free(scalable, large + 10, 100), SW_OK);
    CHECK_EQ(sw_scalable_free(scalable, large + 50, 100), SW_OVERLAP);
    CHECK(sw_scalable_alloc(scalable, 100) != large + 10); /* it is of one request */
    CHECK_EQ(sw_scalable_free(scalable, large, 10), SW_OK);
    CHECK_EQ(sw_scalable_free(scalable, large + 110, 100 * KIB - 110), SW_OK);
    CHECK_EQ(stats_of(scalable).held_bytes, KIB + 2 * KIB); /* at once */
    CHECK_EQ(sw_scalable_free(scalable, large, 10), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, small, KIB), SW_OK);
    end_scalable(scalable);
}

/* Defect 9: a child that came and went at each pair. */
static void defect_9_no_thrashing(void) {
    sw_scalable *scalable = make_scalable(KIB, MIB, 1);
    CHECK(sw_scalable_alloc(scalable, KIB) != NULL);
    for (int i = 0; i < 1000; i++) {
        void *second = sw_scalable_alloc(scalable, KIB);
        CHECK_EQ(sw_scalable_free(scalable, second, KIB), SW_OK);
    }
    CHECK_EQ(stats_of(scalable).child_allocs, 2);
    CHECK_EQ(stats_of(scalable).idle_children, 1);
    CHECK_EQ(sw_scalable_trim(scalable), SW_OK);
    CHECK_EQ(stats_of(scalable).children, 1);
    end_scalable(scalable);
}

static void a_limit(void) {
    sw_allocator memory = counted_allocator(&counted);
    sw_scalable *scalable =
        MADE(sw_scalable, o.first_bytes = KIB, o.limit_bytes = 4 * KIB, o.memory = &memory);
    uint8_t *first = sw_scalable_alloc(scalable, KIB);
    uint8_t *second = sw_scalable_alloc(scalable, 2 * KIB);
    CHECK(first != NULL && second != NULL);
    CHECK(sw_scalable_alloc(scalable, KIB) != NULL); /* not the 4 KiB that would be next */
    CHECK(sw_scalable_alloc(scalable, 1) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_LIMIT);
    CHECK_EQ(stats_of(scalable).held_bytes, 4 * KIB);
    CHECK_EQ(sw_scalable_free(scalable, second, 2 * KIB), SW_OK);
    CHECK(sw_scalable_alloc(scalable, 2 * KIB + 1) == NULL);
    CHECK(sw_scalable_alloc(scalable, 2 * KIB) != NULL);
    end_scalable(scalable);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Defect 8: a borrowed block was counted and never subtracted. */
static void defect_8_borrow_counts_nothing(void) {
    sw_scalable *scalable = make_scalable(KIB, MIB, 1);
    uint8_t *there = sw_scalable_borrow(scalable, 100);
    CHECK(there != NULL);
    CHECK(sw_scalable_borrow(scalable, 100) == there);
    CHECK_EQ(stats_of(scalable).allocated_bytes, 0);
    CHECK(sw_scalable_alloc(scalable, 100) == there);
    CHECK(sw_scalable_borrow(scalable, 100) == there + 100);
    CHECK(sw_scalable_borrow(scalable, 2 * MIB) != NULL || sw_last_error()->status != SW_OK);
    CHECK_EQ(sw_scalable_reset(scalable), SW_OK);
    sw_scalable_stats stats = stats_of(scalable);
    CHECK_EQ(stats.allocated_bytes, 100);
    CHECK_EQ(stats.freed_bytes, 100);
    CHECK_EQ(stats.held_bytes, 0);
    end_scalable(scalable);
}

/* A size of 0 ended the program (a first block of none), never came back, or took a block for
 * nothing. */
static void defect_6_a_size_of_zero(void) {
    REFUSED(sw_scalable, SW_INVALID, o.first_bytes = 0);
    sw_scalable *scalable = make_scalable(KIB, MIB, 1);
    CHECK(sw_scalable_alloc(scalable, 0) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK(sw_scalable_borrow(scalable, 0) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK_EQ(stats_of(scalable).children, 0);
    end_scalable(scalable);
}

static void wrong_arguments(void) {
    sw_scalable *scalable = make_scalable(KIB, MIB, 1);
    uint8_t *block = sw_scalable_alloc(scalable, 100), other[4];
    CHECK(sw_scalable_alloc(scalable, SIZE_MAX) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK_EQ(sw_scalable_free(scalable, other, 4), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, NULL, 4), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, block, 0), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, block + 100, 0), SW_INVALID); /* at the hole */
    CHECK_EQ(sw_scalable_free(scalable, block, KIB + 1), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, block, SIZE_MAX), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, block - 1, 2), SW_INVALID);
    CHECK_EQ(sw_scalable_free(scalable, block, 101), SW_OVERLAP);
    CHECK_EQ(sw_scalable_shrink(scalable, block, 100, 100), SW_OK);
    CHECK_EQ(sw_scalable_shrink(scalable, block, 100, SIZE_MAX), SW_OK);
    CHECK_EQ(stats_of(scalable).taken_bytes, 100);
    CHECK_EQ(sw_scalable_shrink(scalable, block, 100, 10), SW_OK);
    CHECK_EQ(stats_of(scalable).taken_bytes, 10);
    end_scalable(scalable);
    REFUSED(sw_scalable, SW_INVALID, o.first_bytes = 2, o.child_bytes_max = 1);
    REFUSED(sw_scalable, SW_INVALID, o.child_bytes_max = UINT64_MAX);
    REFUSED(sw_scalable, SW_UNSUPPORTED, o.backend = SW_RANGE_BUDDY);
    REFUSED(sw_scalable, SW_INVALID, o.backend = 99);
    REFUSED(sw_scalable, SW_INVALID, o.struct_bytes = 8);
}

static void refused_memory(void) {
    sw_scalable *scalable = make_scalable(KIB, MIB, 1);
    void *block = sw_scalable_alloc(scalable, KIB);
    counted.refuses = 1;
    CHECK(sw_scalable_alloc(scalable, 1) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK(sw_scalable_borrow(scalable, 1) == NULL);
    counted.refuses = 0;
    CHECK_EQ(stats_of(scalable).taken_bytes, KIB);
    CHECK_EQ(sw_scalable_free(scalable, block, KIB), SW_OK);
    end_scalable(scalable);
}

static void a_descriptor_is_read(void) {
    sw_scalable *scalable = make_scalable(KIB, MIB, 1);
    sw_buffer got = {NULL, 77};
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "hello", 5) != 5) abort();
    sw_status status = sw_scalable_read(scalable, ends[0], 100, &got);
    if (status != SW_UNSUPPORTED) {
        CHECK_EQ(status, SW_OK);
        CHECK(got.size == 5 && memcmp(got.bytes, "hello", 5) == 0);
        CHECK_EQ(stats_of(scalable).taken_bytes, 5);
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) abort();
        CHECK_EQ(sw_scalable_read(scalable, ends[0], 100, &got), SW_STATE);
        CHECK_EQ(sw_scalable_read(scalable, -1, 100, &got), SW_IO);
        CHECK_EQ(sw_scalable_read(scalable, ends[0], 0, &got), SW_INVALID);
        CHECK_EQ(got.size, 5);
        CHECK_EQ(stats_of(scalable).taken_bytes, 5);
        close(ends[1]);
        CHECK_EQ(sw_scalable_read(scalable, ends[0], 100, &got), SW_OK);
        CHECK(got.size == 0 && got.bytes == NULL);
    } else {
        CHECK_EQ(stats_of(scalable).taken_bytes, 0);
        close(ends[1]);
    }
    close(ends[0]);
    end_scalable(scalable);
}

enum { PARTS = 300 };

typedef struct part {
    uint8_t *bytes;
    size_t size;
    uint8_t mark; /* every byte has it while the part is taken */
} part;

static void check_part(part p) {
    size_t wrong = 0;
    for (size_t i = 0; i < p.size; i++) wrong += p.bytes[i] != p.mark;
    CHECK_EQ(wrong, 0);
}

static void random_calls(uint64_t seed, int steps) {
    sw_scalable *scalable = make_scalable(64, 4 * KIB, (uint32_t)(seed & 1));
    part parts[PARTS] = {{NULL, 0, 0}};
    uint64_t taken = 0;
    for (int step = 0; step < steps; step++) {
        part *p = &parts[check_random(&seed) % PARTS];
        if (p->size == 0) {
            p->size = 1 + check_random(&seed) % (check_random(&seed) % 20 == 0 ? 9000 : 300);
            p->mark = (uint8_t)check_random(&seed);
            p->bytes = sw_scalable_alloc(scalable, p->size);
            CHECK(p->bytes != NULL);
            memset(p->bytes, p->mark, p->size);
            taken += p->size;
        } else {
            check_part(*p);
            size_t from = check_random(&seed) % p->size;
            if (check_random(&seed) % 2 == 0) from = 0;
            size_t size = p->size - from;
            CHECK_EQ(sw_scalable_free(scalable, p->bytes + from, size), SW_OK);
            taken -= size;
            p->size = from;
        }
        if (step % 64 == 0) CHECK_EQ(stats_of(scalable).taken_bytes, taken);
    }
    for (size_t i = 0; i < PARTS; i++) {
        if (parts[i].size == 0) continue;
        check_part(parts[i]);
        CHECK_EQ(sw_scalable_free(scalable, parts[i].bytes, parts[i].size), SW_OK);
    }
    sw_scalable_stats stats = stats_of(scalable);
    CHECK_EQ(stats.taken_bytes, 0);
    CHECK_EQ(stats.children, 1); /* the idle one that is kept */
    end_scalable(scalable);
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *work(void *argument) {
    sw_scalable *scalable = argument;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    part parts[16] = {{NULL, 0, 0}};
    for (int i = 0; i < 4000; i++) {
        part *p = &parts[i % 16];
        if (p->size != 0) {
            check_part(*p);
            CHECK_EQ(sw_scalable_free(scalable, p->bytes, p->size), SW_OK);
        }
        *p = (part){NULL, 1 + check_random(&seed) % 500, (uint8_t)i};
        p->bytes = sw_scalable_alloc(scalable, p->size);
        memset(p->bytes, p->mark, p->size);
    }
    for (int i = 0; i < 16; i++)
        CHECK_EQ(sw_scalable_free(scalable, parts[i].bytes, parts[i].size), SW_OK);
    return NULL;
}

static void *trim(void *argument) {
    for (int i = 0; i < 400; i++) CHECK_EQ(sw_scalable_trim(argument), SW_OK);
    return NULL;
}

/* The original's Trim took no lock: children went while others allocated from them. */
static void defect_9_threads_and_one_that_trims(void) {
    sw_scalable *scalable = make_scalable(KIB, 8 * KIB, 1);
    pthread_t threads[5];
    for (int i = 0; i < 5; i++)
        if (pthread_create(&threads[i], NULL, i < 4 ? work : trim, scalable) != 0) abort();
    for (int i = 0; i < 5; i++) (void)pthread_join(threads[i], NULL);
    sw_scalable_stats stats = stats_of(scalable);
    CHECK_EQ(stats.taken_bytes, 0);
    end_scalable(scalable);
}

static void *call_what_is_not_mine(void *argument) {
    sw_scalable *scalable = argument;
    CHECK(sw_scalable_alloc(scalable, 1) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    CHECK_EQ(sw_scalable_reset(scalable), SW_OWNER);
    sw_scalable_destroy(scalable);
    CHECK_EQ(sw_scalable_adopt(scalable), SW_OK);
    CHECK(sw_scalable_alloc(scalable, 1) != NULL);
    return NULL;
}

static void an_unlocked_one_has_an_owner(void) {
    sw_scalable *scalable = make_scalable(KIB, 8 * KIB, 0);
    CHECK(sw_scalable_alloc(scalable, 1) != NULL);
    (void)in_thread(call_what_is_not_mine, scalable);
    CHECK(sw_scalable_alloc(scalable, 1) == NULL);
    CHECK_EQ(sw_scalable_adopt(scalable), SW_OK);
    CHECK_EQ(stats_of(scalable).taken_bytes, 2);
    end_scalable(scalable);
}

/* 64 of 1024 bytes are taken; the second child, for 2000 bytes, has 48 left. */
static void children_are_listed(void) {
    sw_scalable *scalable = make_scalable(KIB, 8 * KIB, 0);
    uint8_t *small = sw_scalable_alloc(scalable, 64);
    uint8_t *large = sw_scalable_alloc(scalable, 2000);
    CHECK_EQ(sw_scalable_free(scalable, small + 16, 16), SW_OK);
    sw_scalable_child found[2] = {0};
    size_t count = 0;
    CHECK_EQ(sw_scalable_get_children(scalable, NULL, 0, &count), SW_OK);
    CHECK_EQ(count, 2);
    CHECK_EQ(sw_scalable_get_children(scalable, found, 2, &count), SW_OK);
    bool small_is_first = small < large;
    sw_scalable_child *one = &found[small_is_first ? 0 : 1], *two = &found[small_is_first ? 1 : 0];
    CHECK_EQ(one->address, (uintptr_t)small);
    CHECK_EQ(one->size, KIB);
    CHECK_EQ(one->free_size, KIB - 48);
    CHECK_EQ(one->largest_hole, KIB - 64);
    CHECK_EQ(two->address, (uintptr_t)large);
    CHECK_EQ(two->free_size, 2 * KIB - 2000);
    CHECK_EQ(sw_scalable_get_children(scalable, found, 1, NULL), SW_INVALID);
    CHECK_EQ(sw_scalable_get_children(scalable, NULL, 1, &count), SW_INVALID);
    end_scalable(scalable);
}

/* --- backing ---------------------------------------------------------------------------------- */

enum { BACKING_KIB = 1024, BACKING_MIB = 1024 * BACKING_KIB };

static void *take(sw_backing backing, size_t bytes) {
    const sw_allocator *memory = sw_allocator_of(backing);
    uint8_t *block = memory->allocate(memory->context, bytes, 64);
    CHECK(block != NULL && (uintptr_t)block % 64 == 0);
    CHECK(block[0] == 0 && memcmp(block, block + 1, bytes - 1) == 0); /* all are zero */
    memset(block, 0xAB, bytes);
    return block;
}

static void give(sw_backing backing, void *block, size_t bytes) {
    const sw_allocator *memory = sw_allocator_of(backing);
    memory->release(memory->context, block, bytes);
}

static sw_backing_stats stats(void) {
    sw_backing_stats found;
    sw_backing_get_stats(&found);
    return found;
}

static void names(void) {
    CHECK_STR(sw_backing_name(SW_BACKING_SYSTEM), "system");
    CHECK_STR(sw_backing_name(SW_BACKING_HUGE), "huge");
    CHECK(sw_backing_name(SW_BACKING_COUNT) == NULL);
    CHECK(sw_allocator_of(SW_BACKING_COUNT) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK(sw_allocator_of(SW_BACKING_SYSTEM) == sw_allocator_system());
    CHECK(sw_allocator_of(SW_BACKING_LIBC) == sw_allocator_libc());
}

/* Every size around the borders, zeroed when it comes and when it comes again. */
static void sizes(sw_backing backing) {
    static const size_t around[] = {1 * BACKING_KIB, 4 * BACKING_KIB, 16 * BACKING_KIB,
                                    2 * BACKING_MIB, 3 * BACKING_MIB};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        for (size_t bytes = around[i] - 1; bytes <= around[i] + 1; bytes++) {
            void *first = take(backing, bytes), *second = take(backing, bytes);
            CHECK(first != second);
            give(backing, first, bytes);
            void *third = take(backing, bytes);
            give(backing, second, bytes);
            give(backing, third, bytes);
        }
    }
    const sw_allocator *memory = sw_allocator_of(backing);
    if (backing == SW_BACKING_HUGE) CHECK(memory->allocate(memory->context, SIZE_MAX, 64) == NULL);
}

static void pools_keep_blocks(void) {
    static void *blocks[SW_BACKING_KEPT + 5];
    enum { COUNT = sizeof blocks / sizeof *blocks };
    (void)sw_backing_trim();
    for (int i = 0; i < COUNT; i++) blocks[i] = take(SW_BACKING_POOLS, 1000);
    for (int i = 0; i < COUNT; i++) give(SW_BACKING_POOLS, blocks[i], 1000);
    CHECK_EQ(stats().kept_blocks, SW_BACKING_KEPT);
    CHECK_EQ(stats().kept_bytes, SW_BACKING_KEPT * BACKING_KIB);
    void *again = take(SW_BACKING_POOLS, BACKING_KIB); /* another size of the same pool */
    CHECK(again == blocks[SW_BACKING_KEPT - 1]);
    CHECK_EQ(stats().kept_blocks, SW_BACKING_KEPT - 1);
    give(SW_BACKING_POOLS, again, BACKING_KIB);
    CHECK_EQ(sw_backing_trim(), SW_BACKING_KEPT * BACKING_KIB);
    CHECK_EQ(stats().kept_blocks, 0);
}

/* Defect 6 of GoMem: two blocks of 1,500 bytes were 1,024 apart, and less than a unit was never
 * served. */
static void defect_6_regions_round_up(void) {
    (void)sw_backing_trim();
    uint8_t *first = take(SW_BACKING_BUDDY, 1500), *second = take(SW_BACKING_BUDDY, 1500);
    CHECK(second >= first + 1500 || first >= second + 1500);
    CHECK_EQ(stats().region_taken % 2, 0);
    CHECK(stats().region_taken >= 2 * 1500);
    uint8_t *small = take(SW_BACKING_BUDDY, 1);
    CHECK_EQ(stats().regions, 1);
    /* A whole region, then one more than that, which is the system's. */
    void *whole = take(SW_BACKING_BUDDY, SW_BACKING_REGION_BYTES);
    CHECK_EQ(stats().regions, 2);
    void *large = take(SW_BACKING_BUDDY, SW_BACKING_REGION_BYTES + 1);
    CHECK_EQ(stats().regions, 2);
    give(SW_BACKING_BUDDY, large, SW_BACKING_REGION_BYTES + 1);
    give(SW_BACKING_BUDDY, first, 1500);
    give(SW_BACKING_BUDDY, second, 1500);
    give(SW_BACKING_BUDDY, small, 1);
    CHECK_EQ(stats().idle_regions, 1);
    give(SW_BACKING_BUDDY, whole, SW_BACKING_REGION_BYTES);
    CHECK_EQ(stats().regions, 1); /* one stays */
    CHECK_EQ(stats().region_taken, 0);
    CHECK_EQ(sw_backing_trim(), SW_BACKING_REGION_BYTES);
    CHECK_EQ(stats().regions, 0);
}

int main(int argc, char **argv) {
    children_double();
    children_are_listed();
    growth_stops_at_the_cap();
    large_requests_are_served_and_freed();
    defect_9_no_thrashing();
    a_limit();
    defect_8_borrow_counts_nothing();
    defect_6_a_size_of_zero();
    wrong_arguments();
    refused_memory();
    a_descriptor_is_read();
    int steps = argc > 1 ? atoi(argv[1]) : 20000 / (int)check_share();
    for (uint64_t seed = 1; seed <= 4; seed++) random_calls(seed, steps);
    defect_9_threads_and_one_that_trims();
    an_unlocked_one_has_an_owner();
    names();
    for (int backing = 0; backing < SW_BACKING_COUNT; backing++) sizes((sw_backing)backing);
    pools_keep_blocks();
    defect_6_regions_round_up();
    return check_result();
}

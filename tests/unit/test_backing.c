/* SPDX-License-Identifier: Apache-2.0 */
/* Backings (spanwise/backing.h): how each rounds, keeps and returns blocks; reused memory is
 * zeroed. Forks: test_fork.c. */
#include "buffer/backing.h"

#include "check.h"
#include "spanwise/scalable.h"

enum { KIB = 1024, MIB = 1024 * KIB };

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
    static const size_t around[] = {1 * KIB, 4 * KIB, 16 * KIB, 2 * MIB, 3 * MIB};
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
    CHECK_EQ(stats().kept_bytes, SW_BACKING_KEPT * KIB);
    void *again = take(SW_BACKING_POOLS, KIB); /* another size of the same pool */
    CHECK(again == blocks[SW_BACKING_KEPT - 1]);
    CHECK_EQ(stats().kept_blocks, SW_BACKING_KEPT - 1);
    give(SW_BACKING_POOLS, again, KIB);
    CHECK_EQ(sw_backing_trim(), SW_BACKING_KEPT * KIB);
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

int main(void) {
    names();
    for (int backing = 0; backing < SW_BACKING_COUNT; backing++) sizes((sw_backing)backing);
    pools_keep_blocks();
    defect_6_regions_round_up();
    return check_result();
}

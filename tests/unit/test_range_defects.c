/* SPDX-License-Identifier: Apache-2.0 */
/* Defects of an earlier library of range allocators that must not come back, each a case of its own under the
 * number that it had there. */
#include "range_cases.h"

/* 1: requests were refused while a hole was large enough. The sequence of the finding. */
static void defect_1_refused_with_room(uint32_t backend) {
    enum { LIVE = 512 };
    static uint64_t offsets[LIVE], sizes[LIVE];
    memset(sizes, 0, sizeof sizes);
    sw_range *range = make(backend, 1 << 20, 0);
    uint64_t seed = 1, wrong = 0, refused = 0, steps = 100000 / check_share();
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t slot = check_random(&seed) % LIVE, size = 1 + check_random(&seed) % 4096;
        if (sizes[slot] != 0) CHECK_EQ(sw_range_free(range, offsets[slot], sizes[slot]), SW_OK);
        uint64_t largest = sw_range_largest_hole(range);
        offsets[slot] = sw_range_alloc(range, size);
        sizes[slot] = offsets[slot] == SW_RANGE_NONE ? 0 : size;
        refused += sizes[slot] == 0;
        wrong += (sizes[slot] == 0) != (largest < size);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(stats_of(range).refused, refused);
    end(range);
}

/* 5: what was freed twice was handed out twice. */
static void defect_5_double_free(uint32_t backend) {
    sw_range *range = make(backend, 4096, 64);
    CHECK_EQ(sw_range_alloc(range, 64), 0);
    CHECK_EQ(sw_range_alloc(range, 64), 64);
    CHECK_EQ(sw_range_free(range, 0, 64), SW_OK);
    CHECK_EQ(sw_range_free(range, 0, 64), SW_OVERLAP);
    CHECK_EQ(sw_last_error()->status, SW_OVERLAP);
    CHECK_EQ(sw_range_free(range, 2048, 64), SW_OVERLAP);
    CHECK_EQ(sw_range_free_size(range), 4096 - 64);
    CHECK_EQ(sw_range_free(range, 64, 64), SW_OK);
    CHECK_EQ(sw_range_free(range, 64, 64), SW_OVERLAP);
    CHECK_EQ(sw_range_free_size(range), 4096);
    if (backend != SW_RANGE_BUDDY) {
        CHECK_EQ(sw_range_alloc(range, 100), 0);
        CHECK_EQ(sw_range_free(range, 50, 100), SW_OVERLAP); /* half of it is free */
        CHECK_EQ(sw_range_free_size(range), 3996);
    }
    end(range);
}

/* 6: a request below the unit never returned; sizes between units overlapped. */
static void defect_6_below_the_unit(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 64 * 1024, 1024);
    CHECK_EQ(sw_range_alloc(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_range_alloc(range, 1), 0);
    CHECK_EQ(sw_range_alloc(range, 1500), 2048);
    CHECK_EQ(sw_range_alloc(range, 1500), 4096);
    end(range);
}

/* 8: the free of an address inside a block freed the block; one of another size did too. */
static void defect_8_interior_free(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 64 * 1024, 1024);
    CHECK_EQ(sw_range_alloc(range, 4096), 0);
    CHECK_EQ(sw_range_free(range, 1024, 1024), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 2048, 2048), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 10, 4096), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 0, 4095), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 0, 8192), SW_INVALID);
    CHECK_EQ(sw_range_free_size(range), 60 * 1024);
    CHECK_EQ(sw_range_free(range, 0, 4096), SW_OK);
    end(range);
}

/* 9: sizes of a buddy were rounded up in 32 bits. */
static void defect_9_sizes_above_32_bits(void) {
    sw_range *range = make(SW_RANGE_BUDDY, UINT64_C(64) << 32, UINT64_C(1) << 30);
    CHECK_EQ(sw_range_alloc(range, (UINT64_C(5) << 32) + 1), 0); /* 8 << 32 of 64 */
    CHECK_EQ(sw_range_free_size(range), UINT64_C(56) << 32);
    CHECK_EQ(sw_range_alloc(range, UINT64_C(33) << 32), SW_RANGE_NONE); /* rounded up to 64 << 32 */
    CHECK_EQ(sw_range_alloc(range, UINT64_C(32) << 32), UINT64_C(32) << 32);
    CHECK_EQ(sw_range_free(range, 0, (UINT64_C(5) << 32) + 1), SW_OK);
    CHECK_EQ(sw_range_free_size(range), UINT64_C(32) << 32);
    end(range);
}

/* 10: which tree ran was decided by the build, whatever a benchmark was called, and most asked a pool with one hole, where no
 * tree is searched. With holes of 20, 12 and 100 each back end puts a request of 11 where its own rule says. */
static void defect_10_back_ends_side_by_side(void) {
    static const uint64_t placed[] = {10, 10, 40};
    sw_range *ranges[SW_RANGE_BUDDY];
    for (uint32_t backend = 0; backend < SW_RANGE_BUDDY; backend++) {
        sw_range *range = ranges[backend] = make(backend, 160, 1);
        CHECK_EQ(sw_range_alloc(range, 60), 0);
        CHECK_EQ(sw_range_free(range, 10, 20), SW_OK);
        CHECK_EQ(sw_range_free(range, 40, 12), SW_OK);
        CHECK_STR(holes_of(range), "10+20 40+12 60+100");
    }
    for (uint32_t backend = 0; backend < SW_RANGE_BUDDY; backend++) {
        CHECK_EQ(sw_range_find(ranges[backend], 11), placed[backend]);
        CHECK_EQ(sw_range_alloc(ranges[backend], 11), placed[backend]);
    }
    for (uint32_t backend = 0; backend < SW_RANGE_BUDDY; backend++) end(ranges[backend]);
}

int main(void) {
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        defect_5_double_free(backend);
        if (backend == SW_RANGE_BUDDY) continue;
        defect_1_refused_with_room(backend);
    }
    defect_6_below_the_unit();
    defect_8_interior_free();
    defect_9_sizes_above_32_bits();
    defect_10_back_ends_side_by_side();
    return check_result();
}

// SPDX-License-Identifier: Apache-2.0
// The benchmark cases of the Go library GoMem (MIT licence, version a4f78d9) on ours: CONTENDER/case/NAME, where NAME is
// theirs. Each does what theirs does, with the same sizes, counts and order; what a case is called says nothing
// about the tree that runs (defect 10), so each runs on every back end: `wide`, which is the usual one, `single` and `two`.
// Cases without a range are `spanwise`. This file has the cases of ranges and buddies; cases.h has
// what all cases share, and cases_bytes.h declares all other cases.
#include "cases_bytes.h"

namespace {

constexpr uint64_t KIB = 1024;
constexpr uint64_t SIZES[] = {64, 128, 256, 512, 1024, 2048, 4096, 8192};

// A range that one thread has, and one that every thread may call.
struct Range {
    sw_range *range = nullptr;
    Range(uint64_t size, sw_range_backend backend, bool locked = false) {
        sw_range_options options;
        sw_range_options_init(&options);
        options.backend = backend;
        options.locked = locked;
        if (sw_range_create(size, &options, &range) != SW_OK) abort();
    }
    ~Range() { sw_range_destroy(range); }
    Range(const Range &) = delete;
    Range &operator=(const Range &) = delete;
    void pair(uint64_t size) { free(alloc(size), size); }
    uint64_t alloc(uint64_t size) {
        uint64_t at = sw_range_alloc(range, size);
        if (at == SW_RANGE_NONE) abort();
        return at;
    }
    void free(uint64_t at, uint64_t size) {
        if (sw_range_free(range, at, size) != SW_OK) abort();
    }
};

// --- ranges --------------------------------------------------------------------------------------

void pairs(State &state, sw_range_backend backend, uint64_t pool, uint64_t size) {
    Range range(pool, backend);
    for (auto _ : state) range.pair(size);
}

void sequence(State &state, sw_range_backend backend, uint64_t pool, size_t count) {
    Range range(pool, backend);
    std::vector<uint64_t> at(count);
    for (auto _ : state) {
        for (uint64_t &each : at) each = range.alloc(KIB);
        for (uint64_t each : at) range.free(each, KIB);
    }
}

void random_sizes(State &state, sw_range_backend backend, uint64_t pool, size_t sizes) {
    Range range(pool, backend);
    size_t i = 0;
    for (auto _ : state) range.pair(SIZES[i++ % sizes]);
}

void find(State &state, sw_range_backend backend) {
    Range range(KIB * KIB, backend);
    for (auto _ : state) DoNotOptimize(sw_range_fast_find(range.range, KIB));
}

void free_size(State &state, sw_range_backend backend, uint64_t pool) {
    Range range(pool, backend);
    for (auto _ : state) DoNotOptimize(sw_range_free_size(range.range));
}

// Pools of 64 KiB, and pools of 1 MiB under two names, for which each build of the original has the
// same code.
void add_ranges(sw_range_backend backend) {
    const std::string on = sw_range_backend_name(backend);
    auto add_one = [&](const char *name, auto run) { add(on, name, run); };
    add_one("AllocatorAllocate", [=](State &s) { pairs(s, backend, 64 * KIB, KIB); });
    add_one("AllocatorAllocateSmall", [=](State &s) { pairs(s, backend, 64 * KIB, 64); });
    add_one("AllocatorAllocateLarge", [=](State &s) { pairs(s, backend, 64 * KIB, 8 * KIB); });
    add_one("AllocatorSequentialAlloc", [=](State &s) { sequence(s, backend, 64 * KIB, 50); });
    add_one("AllocatorRandomAlloc", [=](State &s) { random_sizes(s, backend, 64 * KIB, 7); });
    add_one("AllocatorGetFreeSize", [=](State &s) { free_size(s, backend, 64 * KIB); });
    for (const std::string tree : {"TwoTree", "SingleTree"}) {
        constexpr uint64_t pool = KIB * KIB;
        add(on, tree + "Allocator", [=](State &s) { pairs(s, backend, pool, KIB); });
        add(on, tree + "SmallAlloc", [=](State &s) { pairs(s, backend, pool, 64); });
        add(on, tree + "LargeAlloc", [=](State &s) { pairs(s, backend, pool, 8 * KIB); });
        add(on, tree + "Sequential", [=](State &s) { sequence(s, backend, pool, 100); });
        add(on, tree + "Random", [=](State &s) { random_sizes(s, backend, pool, 8); });
        add(on, tree + "Find", [=](State &s) { find(s, backend); });
        add(on, tree + "GetFreeSize", [=](State &s) { free_size(s, backend, pool); });
    }
}

// --- buddies: 512 MiB in units of 1 KiB, and the original counts sizes in units --------------------

constexpr uint64_t REGION = 512 * KIB * KIB;
constexpr int THREADS = 2; // the recorded figures are of two processors

// A buddy of all threads of a case. It is never destroyed, since the threads leave the case at
// different times.
sw_range *shared_buddy() {
    static Range *buddy = new Range(REGION, SW_RANGE_BUDDY, true);
    return buddy->range;
}

void buddy_pairs(State &state, uint64_t units) {
    sw_range *buddy = shared_buddy();
    for (auto _ : state) {
        uint64_t at = sw_range_alloc(buddy, units * KIB);
        if (sw_range_free(buddy, at, units * KIB) != SW_OK) abort();
    }
}

// The original draws one size for a whole run; here all of them are used in turns.
void buddy_random(State &state) {
    sw_range *buddy = shared_buddy();
    size_t i = 0;
    for (auto _ : state) {
        uint64_t size = SIZES[i++ % 7] * KIB, at = sw_range_alloc(buddy, size);
        if (sw_range_free(buddy, at, size) != SW_OK) abort();
    }
}

void buddy_sequence(State &state) {
    Range buddy(REGION, SW_RANGE_BUDDY, true);
    uint64_t at[100];
    for (auto _ : state) {
        for (uint64_t &each : at) each = buddy.alloc(KIB * KIB);
        for (uint64_t each : at) buddy.free(each, KIB * KIB);
    }
}

// Times a block of a buddy whose region was used before, because the backing keeps its regions.
void buddy_pool(State &state) {
    const sw_allocator *blocks = sw_allocator_of(SW_BACKING_BUDDY);
    for (auto _ : state) {
        void *block = blocks->allocate(blocks->context, KIB * KIB, 16);
        if (block == nullptr) abort();
        blocks->release(blocks->context, block, KIB * KIB);
    }
}

void add_buddies() {
    const std::string on = "spanwise";
    auto parallel = [&](const char *name, auto run) {
        add(on, name, run)->Threads(THREADS)->UseRealTime();
    };
    parallel("BuddyAlloc", [](State &s) { buddy_pairs(s, 1024); });
    parallel("BuddyAllocSmall", [](State &s) { buddy_pairs(s, 64); });
    parallel("BuddyAllocLarge", [](State &s) { buddy_pairs(s, 8192); });
    parallel("BuddyNonPowerOf2", [](State &s) { buddy_pairs(s, 1000); });
    parallel("BuddyRandomAlloc", buddy_random);
    parallel("BuddyPool", buddy_pool);
    add(on, "BuddySequentialAlloc", buddy_sequence);
}

} // namespace

int main(int argc, char **argv) {
    for (sw_range_backend backend : {SW_RANGE_WIDE, SW_RANGE_SINGLE, SW_RANGE_TWO}) {
        add_ranges(backend);
        add_blocks(backend);
    }
    add_buddies();
    add_memories();
    add_readers();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

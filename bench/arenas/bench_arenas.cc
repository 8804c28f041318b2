// SPDX-License-Identifier: Apache-2.0
// Rows of arenas and pools: CONTENDER/arena/ROW. One iteration is a batch of OBJECTS objects that are
// freed together, or one slice, or one pair of a pool. The limit loop moves an end that lies in memory and
// clears what it skips, over the same bytes again and again: what any bump allocation has to do at least.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>

#include "spanwise/spanwise.h"

namespace {

using State = benchmark::State;

constexpr size_t OBJECTS = 1024, SLICE = 1024, SLICES = 32;

void *seen[OBJECTS];

struct Ends {
    uintptr_t front, back;
};

// An object that nobody may optimise away, at whose creation the ends are in memory.
void use(void *object, size_t i) {
    seen[i] = object;
    benchmark::ClobberMemory();
}

template <size_t BYTES> void limit_loop(State &state) {
    static char memory[OBJECTS * BYTES] __attribute__((aligned(64)));
    Ends ends;
    Ends *at = &ends;
    benchmark::DoNotOptimize(at);
    for (auto _ : state) {
        at->front = reinterpret_cast<uintptr_t>(memory);
        at->back = at->front + sizeof memory;
        for (size_t i = 0; i < OBJECTS; i++) {
            void *object = reinterpret_cast<void *>(at->front);
            at->front += BYTES;
            memset(object, 0, BYTES);
            use(object, i);
        }
    }
}

sw_arena *make(bool safe) {
    sw_arena_options options;
    sw_arena *arena = nullptr;
    sw_arena_options_init(&options);
    options.safe = safe;
    if (sw_arena_create(&options, &arena) != SW_OK) abort();
    return arena;
}

template <size_t BYTES, unsigned FLAGS, bool SAFE> void batch(State &state) {
    for (auto _ : state) {
        sw_arena *arena = make(SAFE);
        for (size_t i = 0; i < OBJECTS; i++) use(sw_arena_new(arena, BYTES, 16, FLAGS), i);
        sw_arena_free(arena);
    }
}

template <size_t BYTES> void heap_batch(State &state) {
    sw_heap *heap = sw_heap_default();
    for (auto _ : state) {
        for (size_t i = 0; i < OBJECTS; i++) use(sw_heap_alloc(heap, BYTES, SW_ZERO), i);
        for (void *object : seen) sw_heap_free(heap, object);
    }
}

// 32 slices of 1 KiB an arena.
void slices(State &state) {
    for (auto _ : state) {
        sw_arena *arena = make(false);
        for (size_t i = 0; i < SLICES; i++)
            use(sw_arena_make_slice(arena, SLICE, 1, 1, SW_ZERO), i);
        sw_arena_free(arena);
    }
}

void heap_slices(State &state) {
    sw_heap *heap = sw_heap_default();
    for (auto _ : state) {
        for (size_t i = 0; i < SLICES; i++) use(sw_heap_alloc(heap, SLICE, SW_ZERO), i);
        for (size_t i = 0; i < SLICES; i++) sw_heap_free(heap, seen[i]);
    }
}

void pool_pair(State &state) {
    sw_pool_options options;
    sw_pool *pool = nullptr;
    sw_pool_options_init(&options);
    if (sw_pool_create(&options, &pool) != SW_OK) abort();
    for (auto _ : state) {
        void *item = sw_pool_fast_get(pool);
        benchmark::DoNotOptimize(item);
        if (sw_pool_fast_put(pool, item, 64) != SW_OK) abort();
    }
    sw_pool_destroy(pool);
}

void add(const char *name, void (*row)(State &)) { benchmark::RegisterBenchmark(name, row); }

} // namespace

int main(int argc, char **argv) {
    add("limit/arena/new_16", limit_loop<16>);
    add("limit/arena/new_32", limit_loop<32>);
    add("spanwise/arena/new_16", batch<16, SW_ZERO, false>);
    add("spanwise/arena/new_32", batch<32, SW_ZERO, false>);
    add("spanwise_front/arena/new_16", batch<16, SW_SCAN, false>);
    add("spanwise_front/arena/new_32", batch<32, SW_SCAN, false>);
    add("spanwise_safe/arena/new_32", batch<32, SW_ZERO, true>);
    add("spanwise_heap/arena/new_16", heap_batch<16>);
    add("spanwise_heap/arena/new_32", heap_batch<32>);
    add("spanwise/arena/slice_1k", slices);
    add("spanwise_heap/arena/slice_1k", heap_slices);
    add("spanwise/arena/pool_pair", pool_pair);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Rows of arenas, pools and slabs: CONTENDER/arena/ROW. One iteration is a batch of OBJECTS objects
// that are freed together, one slice, one pair of a pool or of slabs, or a load of messages
// (examples/service) with its setup. The contender `limit` is a minimal bump allocator: it moves a
// pointer in memory and clears the object, over the same bytes again and again.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>

extern "C" {
#include "service/service.h"
}
#include "spanwise/spanwise.h"

namespace {

using State = benchmark::State;

constexpr size_t OBJECTS = 1024, SLICE = 1024, SLICES = 32, MESSAGES = 320000;

void *seen[OBJECTS];

struct Ends {
    uintptr_t front, back;
};

// Make the compiler write everything to memory after each allocation, so that it can neither omit
// the object nor keep the arena's pointers in registers.
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

sw_arena *make() {
    sw_arena *arena = nullptr;
    if (sw_arena_create(nullptr, &arena) != SW_OK) abort();
    return arena;
}

template <size_t BYTES> void batch(State &state) {
    for (auto _ : state) {
        sw_arena *arena = make();
        for (size_t i = 0; i < OBJECTS; i++) use(sw_arena_new(arena, BYTES, 16, SW_ZERO), i);
        sw_arena_free(arena);
    }
}

// Each arena gets 32 slices of 1 KiB.
void slices(State &state) {
    for (auto _ : state) {
        sw_arena *arena = make();
        for (size_t i = 0; i < SLICES; i++)
            use(sw_arena_make_slice(arena, SLICE, 1, 1, SW_ZERO), i);
        sw_arena_free(arena);
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

void slabs_pair(State &state) {
    sw_slabs *slabs = nullptr;
    if (sw_slabs_create(nullptr, &slabs) != SW_OK) abort();
    for (auto _ : state) {
        void *slot = sw_slabs_alloc(slabs, 1000, 0);
        benchmark::DoNotOptimize(slot);
        if (sw_slabs_free(slabs, slot) != SW_OK) abort();
    }
    sw_slabs_destroy(slabs);
}

// A minimal slot allocator with a bitmap: take the lowest free bit, and free by the slot's address.
void limit_slots(State &state) {
    static char memory[64 * SLICE] __attribute__((aligned(64)));
    uint64_t free_bits = ~uint64_t{0};
    uint64_t *at = &free_bits;
    benchmark::DoNotOptimize(at);
    for (auto _ : state) {
        int index = __builtin_ctzll(*at);
        *at &= *at - 1;
        void *slot = memory + static_cast<size_t>(index) * SLICE;
        benchmark::DoNotOptimize(slot);
        uint64_t offset = static_cast<uint64_t>(static_cast<char *>(slot) - memory);
        if (offset >= sizeof memory || offset % SLICE != 0) abort();
        *at |= uint64_t{1} << offset / SLICE;
        benchmark::ClobberMemory();
    }
}

// As slabs_pair, but from the heap.
void heap_pair(State &state) {
    sw_heap *heap = sw_heap_default();
    for (auto _ : state) {
        void *object = sw_heap_alloc(heap, 1000, 0);
        benchmark::DoNotOptimize(object);
        sw_heap_free(heap, object);
    }
}

template <sw_service_strategy STRATEGY, bool SAFE> void service(State &state) {
    sw_service_load load = {};
    sw_service_result result;
    load.strategy = STRATEGY;
    load.connections = 1000;
    load.messages = MESSAGES;
    load.batch = 32;
    load.payload_bytes = 128;
    load.churn = 100;
    load.percent = 100;
    load.safe = SAFE;
    load.seed = 1;
    load.threads = 1;
    for (auto _ : state)
        if (sw_service_run(&load, nullptr, &result) != SW_OK) abort();
}

void add(const char *name, void (*row)(State &)) { benchmark::RegisterBenchmark(name, row); }

} // namespace

int main(int argc, char **argv) {
    add("limit/arena/new_16", limit_loop<16>);
    add("limit/arena/new_32", limit_loop<32>);
    add("spanwise/arena/new_16", batch<16>);
    add("spanwise/arena/new_32", batch<32>);
    add("spanwise/arena/slice_1k", slices);
    add("spanwise/arena/pool_pair", pool_pair);
    add("limit/arena/slabs_pair", limit_slots);
    add("spanwise/arena/slabs_pair", slabs_pair);
    add("spanwise_heap/arena/slabs_pair", heap_pair);
    add("spanwise/arena/service", service<SW_SERVICE_batch, false>);
    add("spanwise_static/arena/service", service<SW_SERVICE_static, false>);
    add("spanwise_heap/arena/service", service<SW_SERVICE_heap, false>);
    add("spanwise_collected/arena/service", service<SW_SERVICE_collected, false>);
    add("spanwise_pool/arena/service", service<SW_SERVICE_pool, false>);
    add("spanwise_one/arena/service", service<SW_SERVICE_arena, false>);
    add("spanwise_slab/arena/service", service<SW_SERVICE_slab, false>);
    add("spanwise_both/arena/service", service<SW_SERVICE_arena_pool, false>);
    add("spanwise_safe/arena/service", service<SW_SERVICE_batch, true>);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

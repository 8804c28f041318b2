// SPDX-License-Identifier: Apache-2.0
// Rows of arenas, pools and slabs: CONTENDER/arena/ROW. One iteration is a batch of OBJECTS objects that are
// freed together, or one slice, or one pair of a pool or of slabs, or a load of messages (examples/service), its set-up
// included. The limit loop moves an end that lies in memory and
// clears what it skips, over the same bytes again and again: what any bump allocation has to do at least.
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

// Makes the compiler write everything to memory at the creation of an object: it can neither leave
// the object out nor keep the arena's ends in registers.
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

// Each arena gets 32 slices of 1 KiB.
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

// The least that slots with a bitmap have to do: the lowest free bit is taken, and set again by the slot's address.
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

// What a message server does with a heap instead of slabs: it allocates an object of 1000 bytes and
// frees it.
void heap_pair(State &state) {
    sw_heap *heap = sw_heap_default();
    for (auto _ : state) {
        void *object = sw_heap_alloc(heap, 1000, 0);
        benchmark::DoNotOptimize(object);
        sw_heap_free(heap, object);
    }
}

// Requests and frees in random order, as of connections that open and close. About half of OBJECTS
// live.
template <typename Take, typename Give> void spread(State &state, Take take, Give give) {
    uint64_t draw = 88172645463325252;
    memset(seen, 0, sizeof seen);
    for (auto _ : state) {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        void *&object = seen[draw % OBJECTS];
        if (object == nullptr) {
            object = take();
        } else {
            give(object);
            object = nullptr;
        }
    }
    for (void *object : seen)
        if (object != nullptr) give(object);
}

void slabs_spread(State &state) {
    sw_slabs *slabs = nullptr;
    if (sw_slabs_create(nullptr, &slabs) != SW_OK) abort();
    spread(
        state, [=] { return sw_slabs_alloc(slabs, 1000, 0); },
        [=](void *slot) { (void)sw_slabs_free(slabs, slot); });
    sw_slabs_destroy(slabs);
}

void heap_spread(State &state) {
    sw_heap *heap = sw_heap_default();
    spread(
        state, [=] { return sw_heap_alloc(heap, 1000, 0); },
        [=](void *object) { sw_heap_free(heap, object); });
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
    for (auto _ : state)
        if (sw_service_run(&load, nullptr, &result) != SW_OK) abort();
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
    add("limit/arena/slabs_pair", limit_slots);
    add("spanwise/arena/slabs_pair", slabs_pair);
    add("spanwise_heap/arena/slabs_pair", heap_pair);
    add("spanwise/arena/slabs_spread", slabs_spread);
    add("spanwise_heap/arena/slabs_spread", heap_spread);
    add("spanwise/arena/service", service<SW_SERVICE_batch, false>);
    add("spanwise_static/arena/service", service<SW_SERVICE_static, false>);
    add("spanwise_heap/arena/service", service<SW_SERVICE_heap, false>);
    add("spanwise_collected/arena/service", service<SW_SERVICE_collected, false>);
    add("spanwise_pool/arena/service", service<SW_SERVICE_pool, false>);
    add("spanwise_one/arena/service", service<SW_SERVICE_arena, false>);
    add("spanwise_slab/arena/service", service<SW_SERVICE_slab, false>);
    add("spanwise_both/arena/service", service<SW_SERVICE_arena_pool, false>);
    add("spanwise_safe/arena/service", service<SW_SERVICE_batch, true>);
    add("spanwise_safe_one/arena/service", service<SW_SERVICE_arena, true>);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

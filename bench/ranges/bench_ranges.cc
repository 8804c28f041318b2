// SPDX-License-Identifier: Apache-2.0
// Rows of range allocators: CONTENDER/range/ROW, where a contender is a back end of ours or a reference
// (reference.h). All are called through the public functions, so that what those look at is paid by
// every contender. Times are those of one pair, one find, or one sequence.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
#include "reference.h"
}

namespace {

using State = benchmark::State;

constexpr uint64_t MIB = 1 << 20;
constexpr uint64_t PIECE_MAX = 4096;
constexpr size_t HOLES = 10000, SIZES = 4096;

struct Contender {
    const char *name;
    const sw_range_ops *ops;
};

uint64_t next(uint64_t *seed) { // xorshift64 (Marsaglia 2003)
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

sw_range *make(const Contender &of, uint64_t size) {
    sw_range *range = nullptr;
    sw_range_options options;
    sw_range_options_init(&options);
    if (sw_range_create_of(size, &options, of.ops, &range) != SW_OK) abort();
    return range;
}

void pair(State &state, const Contender &of, uint64_t range_size) {
    sw_range *range = make(of, range_size);
    for (auto _ : state) {
        uint64_t at = sw_range_alloc(range, 1024);
        benchmark::DoNotOptimize(at);
        sw_range_free(range, at, 1024);
    }
    sw_range_destroy(range);
}

// Every other piece of random size is free: 10,000 holes and a large one behind them.
void fragmented(State &state, const Contender &of) {
    sw_range *range = make(of, 128 * MIB);
    uint64_t seed = 20261122;
    std::vector<uint64_t> at, size;
    for (size_t i = 0; i < 2 * HOLES; i++) {
        size.push_back(1 + next(&seed) % PIECE_MAX);
        at.push_back(sw_range_alloc(range, size[i]));
    }
    for (size_t i = 0; i < HOLES; i++) sw_range_free(range, at[2 * i], size[2 * i]);
    for (size_t i = 0; i < SIZES; i++) size[i] = 1 + next(&seed) % PIECE_MAX;
    size_t i = 0;
    double refused = 0;
    for (auto _ : state) {
        uint64_t asked = size[i++ % SIZES], got = sw_range_alloc(range, asked);
        if (got == SW_RANGE_NONE) {
            refused++;
        } else {
            sw_range_free(range, got, asked);
        }
    }
    state.counters["refused"] = refused;
    sw_range_destroy(range);
}

// The same pool in use: each request stays while 256 later ones come, and is freed then.
void replaced(State &state, const Contender &of) {
    constexpr size_t LIVE = 256;
    sw_range *range = make(of, 128 * MIB);
    uint64_t seed = 20261122;
    std::vector<uint64_t> at, size;
    for (size_t i = 0; i < 2 * HOLES; i++) {
        size.push_back(1 + next(&seed) % PIECE_MAX);
        at.push_back(sw_range_alloc(range, size[i]));
    }
    for (size_t i = 0; i < HOLES; i++) sw_range_free(range, at[2 * i], size[2 * i]);
    for (size_t i = 0; i < SIZES; i++) size[i] = 1 + next(&seed) % PIECE_MAX;
    uint64_t live[LIVE], lived[LIVE];
    for (size_t i = 0; i < LIVE; i++) live[i] = sw_range_alloc(range, lived[i] = size[i]);
    size_t i = LIVE;
    for (auto _ : state) {
        size_t slot = i % LIVE;
        if (live[slot] != SW_RANGE_NONE) sw_range_free(range, live[slot], lived[slot]);
        lived[slot] = size[i++ % SIZES];
        live[slot] = sw_range_alloc(range, lived[slot]);
    }
    sw_range_destroy(range);
}

void sequence(State &state, const Contender &of) {
    uint64_t at[100];
    sw_range *range = make(of, MIB);
    for (auto _ : state) {
        for (uint64_t &each : at) each = sw_range_alloc(range, 1024);
        for (uint64_t each : at) sw_range_free(range, each, 1024);
    }
    sw_range_destroy(range);
}

void find(State &state, const Contender &of) {
    sw_range *range = make(of, MIB);
    for (auto _ : state) {
        uint64_t at = sw_range_find(range, 1024);
        benchmark::DoNotOptimize(at);
    }
    sw_range_destroy(range);
}

void free_size(State &state, const Contender &of) {
    sw_range *range = make(of, MIB);
    for (auto _ : state) {
        uint64_t size = sw_range_free_size(range);
        benchmark::DoNotOptimize(size);
    }
    sw_range_destroy(range);
}

void largest_hole(State &state, const Contender &of) {
    sw_range *range = make(of, MIB);
    for (auto _ : state) {
        uint64_t size = sw_range_largest_hole(range);
        benchmark::DoNotOptimize(size);
    }
    sw_range_destroy(range);
}

void add(const Contender &of, const char *row, void (*run)(State &, const Contender &)) {
    std::string name = std::string(of.name) + "/range/" + row;
    benchmark::RegisterBenchmark(name.c_str(), [run, of](State &state) { run(state, of); });
}

} // namespace

int main(int argc, char **argv) {
    const Contender trees[] = {{"wide", &sw_range_wide_ops},
                               {"single", &sw_range_single_ops},
                               {"two", &sw_range_two_ops},
                               {"reference_single", &reference_single_ops},
                               {"reference_two", &reference_two_ops}};
    const Contender buddies[] = {{"buddy", &sw_range_buddy_ops},
                                 {"reference_buddy", &reference_buddy_ops}};
    for (const Contender &each : trees) {
        add(each, "pair", [](State &s, const Contender &of) { pair(s, of, MIB); });
        add(each, "fragmented", fragmented);
        add(each, "replaced", replaced);
        add(each, "sequence", sequence);
        add(each, "find", find);
        if (each.ops->largest == nullptr) continue;
        add(each, "free_size", free_size);
        add(each, "largest_hole", largest_hole);
    }
    for (const Contender &each : buddies)
        add(each, "buddy_pair", [](State &s, const Contender &of) { pair(s, of, 512 * MIB); });
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Rows of range allocators: CONTENDER/range/ROW. A contender is one of our backends or a reference
// (reference.h). Ours are called through the public header, which checks handle, thread and
// arguments; references through plain functions, like their originals. A time is that of one pair,
// one find, or one sequence.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
#include "reference.h"
#include "spanwise/range.h"
}

namespace {

using State = benchmark::State;

// --- contenders ----------------------------------------------------------------------------------

constexpr uint64_t NONE = SW_RANGE_NONE;
static_assert(NONE == REFERENCE_NONE);

template <sw_range_backend Backend> struct Ours {
    static const char *name() { return sw_range_backend_name(Backend); }
    sw_range *range = nullptr;
    explicit Ours(uint64_t size) {
        sw_range_options options;
        sw_range_options_init(&options);
        options.backend = Backend;
        if (sw_range_create(size, &options, &range) != SW_OK) abort();
    }
    ~Ours() { sw_range_destroy(range); }
    Ours(const Ours &) = delete;
    Ours &operator=(const Ours &) = delete;
    uint64_t alloc(uint64_t size) { return sw_range_alloc(range, size); }
    void free(uint64_t offset, uint64_t size) { (void)sw_range_free(range, offset, size); }
    uint64_t find(uint64_t size) { return sw_range_fast_find(range, size); }
};

struct Single {
    static const char *name() { return "reference_single"; }
    reference_single tree;
    explicit Single(uint64_t size) { reference_single_begin(&tree, size); }
    ~Single() { reference_single_end(&tree); }
    Single(const Single &) = delete;
    Single &operator=(const Single &) = delete;
    uint64_t alloc(uint64_t size) { return reference_single_alloc(&tree, size); }
    void free(uint64_t offset, uint64_t size) { reference_single_free(&tree, offset, size); }
    uint64_t find(uint64_t size) { return reference_single_find(&tree, size); }
};

struct Two {
    static const char *name() { return "reference_two"; }
    reference_two trees;
    explicit Two(uint64_t size) { reference_two_begin(&trees, size); }
    ~Two() { reference_two_end(&trees); }
    Two(const Two &) = delete;
    Two &operator=(const Two &) = delete;
    uint64_t alloc(uint64_t size) { return reference_two_alloc(&trees, size); }
    void free(uint64_t offset, uint64_t size) { reference_two_free(&trees, offset, size); }
    uint64_t find(uint64_t size) { return reference_two_find(&trees, size); }
};

struct Buddy {
    static const char *name() { return "reference_buddy"; }
    reference_buddy *tree;
    explicit Buddy(uint64_t size) : tree(reference_buddy_begin(size)) {}
    ~Buddy() { reference_buddy_end(tree); }
    Buddy(const Buddy &) = delete;
    Buddy &operator=(const Buddy &) = delete;
    uint64_t alloc(uint64_t size) { return reference_buddy_alloc(tree, size); }
    void free(uint64_t offset, uint64_t) { reference_buddy_free(tree, offset); }
};

// --- rows ----------------------------------------------------------------------------------------

constexpr uint64_t MIB = 1 << 20;
constexpr uint64_t PIECE_MAX = 4096;
constexpr size_t HOLES = 10000, SIZES = 4096;

uint64_t next(uint64_t *seed) { // xorshift64 (Marsaglia 2003)
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

template <typename Range> void pair(State &state, uint64_t size) {
    Range range(size);
    for (auto _ : state) {
        uint64_t at = range.alloc(1024);
        benchmark::DoNotOptimize(at);
        range.free(at, 1024);
    }
}

// Allocate pieces of random sizes and free every other one, which leaves 10,000 holes and a large
// one at the end. Return the sizes to request.
template <typename Range> std::vector<uint64_t> make_holes(Range &range) {
    uint64_t seed = 20261122;
    std::vector<uint64_t> at, size;
    for (size_t i = 0; i < 2 * HOLES; i++) {
        size.push_back(1 + next(&seed) % PIECE_MAX);
        at.push_back(range.alloc(size[i]));
    }
    for (size_t i = 0; i < HOLES; i++) range.free(at[2 * i], size[2 * i]);
    for (size_t i = 0; i < SIZES; i++) size[i] = 1 + next(&seed) % PIECE_MAX;
    return size;
}

template <typename Range> void fragmented(State &state) {
    Range range(128 * MIB);
    const std::vector<uint64_t> size = make_holes(range);
    size_t i = 0;
    double refused = 0;
    for (auto _ : state) {
        uint64_t asked = size[i++ % SIZES], got = range.alloc(asked);
        if (got == NONE) {
            refused++;
        } else {
            range.free(got, asked);
        }
    }
    state.counters["refused"] = refused;
}

template <typename Range> void sequence(State &state) {
    uint64_t at[100];
    Range range(MIB);
    for (auto _ : state) {
        for (uint64_t &each : at) each = range.alloc(1024);
        for (uint64_t each : at) range.free(each, 1024);
    }
}

template <typename Range> void find(State &state) {
    Range range(MIB);
    for (auto _ : state) {
        uint64_t at = range.find(1024);
        benchmark::DoNotOptimize(at);
    }
}

void add(const char *contender, const char *row, void (*run)(State &)) {
    benchmark::RegisterBenchmark((std::string(contender) + "/range/" + row).c_str(), run);
}

template <typename Range> void add_rows() {
    add(Range::name(), "pair", [](State &state) { pair<Range>(state, MIB); });
    add(Range::name(), "fragmented", fragmented<Range>);
    add(Range::name(), "sequence", sequence<Range>);
    add(Range::name(), "find", find<Range>);
}

template <typename Range> void add_buddy_rows() {
    add(Range::name(), "buddy_pair", [](State &state) { pair<Range>(state, 512 * MIB); });
    add(Range::name(), "fragmented", fragmented<Range>);
}

} // namespace

int main(int argc, char **argv) {
    add_rows<Ours<SW_RANGE_BTREE>>();
    add_rows<Ours<SW_RANGE_TREAP>>();
    add_rows<Ours<SW_RANGE_TWO_TREAPS>>();
    add_rows<Single>();
    add_rows<Two>();
    add_buddy_rows<Ours<SW_RANGE_BUDDY>>();
    add_buddy_rows<Buddy>();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

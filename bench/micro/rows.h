// SPDX-License-Identifier: Apache-2.0
// The single-threaded rows, each a template over an allocator policy. docs/design/bench.md says
// what each row measures. Rows write the first word of each object, as programs do.
//
// Every row sets the counter `op`: seconds per operation (a pair, an object, a replacement).
#ifndef SPANWISE_BENCH_ROWS_H
#define SPANWISE_BENCH_ROWS_H

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "measure.h"

namespace bench {

using State = benchmark::State;

// --- policies ------------------------------------------------------------------------------------

// A policy is a struct of static functions, so that each row is compiled once per allocator with
// nothing between the loop and the call:
//   get<N>()       allocates N bytes, N known at compile time     zget<N>()  the same, zeroed
//   get_any(n)     allocates n bytes                              drop(p)    frees
//   drop_of<N>(p)  frees N bytes, N known at compile time, by the allocator's fastest function
//   thread_start(), thread_stop()   called in each thread except the first
//   table_bytes(n) bytes of n under the class table: the slot and its share of the tail
// The base class has defaults.
struct Policy {
    static constexpr bool has_table = false;
    static double table_bytes(size_t) { return 0; }
    static void thread_start() {}
    static void thread_stop() {}
};

// Mimalloc's version number as text: 209 is 2.0.9; later releases use two digits each: 30302.
inline std::string mimalloc_version(int number) {
    int base = number >= 10000 ? 100 : 10;
    return std::to_string(number / base / base) + "." + std::to_string(number / base % base) + "." +
           std::to_string(number % base);
}

// --- common code ---------------------------------------------------------------------------------

enum : uint64_t { SEED = 20261120 };
enum : size_t { OBJECTS_MAX = 1000000, LIVE = 100000 };
enum : uint32_t { REPLACE_MIN = 8, REPLACE_MAX = 1024 };

// The live objects of a row, and their sizes; static, so that storing them does not allocate.
inline void *held[OBJECTS_MAX];
inline uint32_t held_size[LIVE];

inline void touch(void *p) { *static_cast<volatile uint64_t *>(p) = 1; }

// True until a row has run. Some rows are valid only in a new process.
inline bool new_process = true;

// Report the number of operations per iteration.
inline void finish(State &state, double ops) {
    using benchmark::Counter;
    new_process = false;
    state.counters["op"] =
        Counter(ops, Counter::Flags(Counter::kIsIterationInvariantRate | Counter::kInvert));
    state.counters["ops"] = Counter(ops);
}

// --- ping-pong -----------------------------------------------------------------------------------

template <class P, size_t N, bool ZERO> void pair(State &state) {
    for (auto _ : state) {
        void *p = ZERO ? P::template zget<N>() : P::template get<N>();
        touch(p);
        P::drop(p);
    }
    finish(state, 1);
}

// As `pair`, but the free also gets the size, as from C++ containers.
template <class P, size_t N, bool ZERO> void sized_pair(State &state) {
    for (auto _ : state) {
        void *p = ZERO ? P::template zget<N>() : P::template get<N>();
        touch(p);
        P::template drop_of<N>(p);
    }
    finish(state, 1);
}

// --- batches: allocate count objects, free them all ----------------------------------------------

enum class Order { IN_ORDER, RANDOM };
enum class Phase { ALLOC, FREE };

template <class P, size_t N, bool ZERO> void fill(size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *p = ZERO ? P::template zget<N>() : P::template get<N>();
        touch(p);
        held[i] = p;
    }
}

template <class P> void drain(size_t count) {
    for (size_t i = 0; i < count; i++) P::drop(held[i]);
}

inline void shuffle(size_t count, Random &random) {
    for (size_t i = count; i > 1; i--) {
        uint32_t bits = static_cast<uint32_t>(random.next() >> 32);
        size_t j = below(bits, static_cast<uint32_t>(i));
        void *p = held[i - 1];
        held[i - 1] = held[j];
        held[j] = p;
    }
}

// One of the two phases is timed. The pointers are shuffled, so that random frees read the array in
// order and incur only the allocator's cache misses. The first round is not counted, so that every
// timed allocation uses a heap that such frees have left.
template <class P, size_t N, bool ZERO, Order ORDER, Phase PHASE>
void batch(State &state, size_t count) {
    Random random(SEED);
    fill<P, N, ZERO>(count);
    if (ORDER == Order::RANDOM) shuffle(count, random);
    drain<P>(count);
    for (auto _ : state) {
        double start = cpu_seconds();
        fill<P, N, ZERO>(count);
        double filled = cpu_seconds();
        if (ORDER == Order::RANDOM) shuffle(count, random);
        double shuffled = cpu_seconds();
        drain<P>(count);
        double end = cpu_seconds();
        state.SetIterationTime(PHASE == Phase::ALLOC ? filled - start : end - shuffled);
    }
    finish(state, static_cast<double>(count));
}

// Return false and fail the row if other rows have run in this process.
inline bool first_in_process(State &state) {
    if (new_process) return true;
    state.SkipWithError("needs a process of its own: name this row in --benchmark_filter");
    return false;
}

// The very first objects of a process, including page faults and the growth of the heap. Only one
// iteration is possible.
template <class P> void cold(State &state) {
    if (!first_in_process(state)) return;
    memset(held, 0xff, sizeof held);
    for (auto _ : state) {
        double start = cpu_seconds();
        fill<P, 16, false>(OBJECTS_MAX);
        state.SetIterationTime(cpu_seconds() - start);
    }
    finish(state, static_cast<double>(OBJECTS_MAX));
    drain<P>(OBJECTS_MAX);
}

// --- random replacement --------------------------------------------------------------------------

inline uint32_t random_size(uint32_t bits) {
    return REPLACE_MIN + below(bits, REPLACE_MAX - REPLACE_MIN + 1);
}

template <class P, size_t COUNT = LIVE> void replace_start(Random &random) {
    static_assert(COUNT <= LIVE, "held_size is too short");
    for (size_t i = 0; i < COUNT; i++) {
        held_size[i] = random_size(static_cast<uint32_t>(random.next()));
        held[i] = P::get_any(held_size[i]);
        touch(held[i]);
    }
}

template <class P, size_t COUNT = LIVE> void replace_one(Random &random) {
    uint64_t bits = random.next();
    uint32_t i = below(static_cast<uint32_t>(bits >> 32), COUNT);
    uint32_t size = random_size(static_cast<uint32_t>(bits));
    P::drop(held[i]);
    held[i] = P::get_any(size);
    held_size[i] = size;
    touch(held[i]);
}

// Warm up the branch predictors with the same number of untimed replacements for every COUNT.
template <class P, size_t COUNT = LIVE> void replace(State &state) {
    Random random(SEED);
    replace_start<P, COUNT>(random);
    for (size_t i = 0; i < 2 * LIVE; i++) replace_one<P, COUNT>(random);
    for (auto _ : state) replace_one<P, COUNT>(random);
    finish(state, 1);
    drain<P>(COUNT);
}

template <class P> void count_live(double *live, double *table) {
    *live = *table = 0;
    for (size_t i = 0; i < LIVE; i++) {
        *live += held_size[i];
        *table += P::table_bytes(held_size[i]);
    }
}

// Peak RSS of 20 replacements per object, over the peak of live bytes (sampled at 20 points), and
// over the peak of their bytes under the class table.
template <class P> void replace_rss(State &state) {
    if (!first_in_process(state)) return;
    memset(held, 0xff, sizeof held);
    memset(held_size, 0xff, sizeof held_size);
    Random random(SEED);
    double live_max = 0;
    double table_max = 0;
    double rss = 0;
    for (auto _ : state) {
        double before = status_bytes("VmRSS:");
        reset_peak();
        double start = cpu_seconds();
        replace_start<P>(random);
        for (int round = 0; round < 20; round++) {
            double live, table;
            count_live<P>(&live, &table);
            if (live > live_max) live_max = live;
            if (table > table_max) table_max = table;
            for (size_t i = 0; i < LIVE; i++) replace_one<P>(random);
        }
        state.SetIterationTime(cpu_seconds() - start);
        rss = status_bytes("VmHWM:") - before;
    }
    finish(state, static_cast<double>(21 * LIVE));
    state.counters["rss_over_live"] = rss / live_max;
    if (P::has_table) state.counters["rss_over_table"] = rss / table_max;
    drain<P>(LIVE);
}

// --- the seed cases: kept objects, zeroed, each published through one global pointer -------------

inline void *volatile sink;

template <class P, size_t N> void seed(State &state) {
    fill<P, N, true>(OBJECTS_MAX);
    drain<P>(OBJECTS_MAX);
    for (auto _ : state) {
        double start = cpu_seconds();
        for (size_t i = 0; i < OBJECTS_MAX; i++) {
            void *p = P::template zget<N>();
            sink = p;
            held[i] = p;
        }
        state.SetIterationTime(cpu_seconds() - start);
        drain<P>(OBJECTS_MAX);
    }
    finish(state, static_cast<double>(OBJECTS_MAX));
}

// --- growth: random replacement in a live heap of any size ---------------------------------------

constexpr size_t GROWTH_MEAN = (REPLACE_MIN + REPLACE_MAX) / 2;
constexpr uint32_t GROWTH_WARM = 2000000;
constexpr size_t GROWTH_OPS = 1000000;

// The objects of a growth row and their sizes, in separate pages that are resident before the
// measurement, because they must not be in the heap under test.
class Objects {
  public:
    explicit Objects(uint32_t count) : count_(count) {
        void *pages = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (pages == MAP_FAILED) return;
        place_ = static_cast<void **>(pages);
        size_ = reinterpret_cast<uint32_t *>(place_ + count);
    }
    ~Objects() {
        if (place_ != nullptr) munmap(place_, bytes());
    }
    Objects(const Objects &) = delete;
    Objects &operator=(const Objects &) = delete;
    bool ready() const { return place_ != nullptr; }

    template <class P> bool fill(Random &random) {
        for (uint32_t i = 0; i < count_; i++)
            if (!renew<P>(i, static_cast<uint32_t>(random.next()))) return false;
        return true;
    }
    template <class P> bool replace(Random &random, size_t times) {
        for (size_t n = 0; n < times; n++) {
            uint64_t bits = random.next();
            uint32_t i = below(static_cast<uint32_t>(bits >> 32), count_);
            P::drop(place_[i]);
            if (!renew<P>(i, static_cast<uint32_t>(bits))) return false;
        }
        return true;
    }
    double live_bytes() const {
        double sum = 0;
        for (uint32_t i = 0; i < count_; i++) sum += size_[i];
        return sum;
    }

  private:
    size_t bytes() const { return count_ * (sizeof *place_ + sizeof *size_); }
    template <class P> bool renew(uint32_t i, uint32_t bits) {
        size_[i] = random_size(bits);
        place_[i] = P::get_any(size_[i]);
        if (place_[i] == nullptr) return false;
        touch(place_[i]);
        return true;
    }

    const uint32_t count_;
    void **place_ = nullptr;
    uint32_t *size_ = nullptr;
};

// Make as many untimed replacements as there are objects, at most two million, then a million timed
// ones. Live bytes change by only a thousandth, so use those at the end. Nothing is freed at the
// end, because freeing eight gigabytes takes long.
template <class P> void growth(State &state, uint64_t live_bytes) {
    if (!first_in_process(state)) return;
    uint32_t count = static_cast<uint32_t>(live_bytes / GROWTH_MEAN);
    Objects objects(count);
    Random random(SEED);
    double before = status_bytes("VmRSS:");
    reset_peak();
    bool filled = objects.ready() && objects.fill<P>(random) &&
                  objects.replace<P>(random, std::min(count, GROWTH_WARM));
    bool replaced = filled;
    for (auto _ : state) {
        double start = cpu_seconds();
        replaced = filled && objects.replace<P>(random, GROWTH_OPS);
        state.SetIterationTime(cpu_seconds() - start);
    }
    if (!replaced) {
        state.SkipWithError("out of memory");
        return;
    }
    double rss = status_bytes("VmHWM:") - before;
    finish(state, static_cast<double>(GROWTH_OPS));
    state.counters["rss_over_live"] = rss / objects.live_bytes();
}

} // namespace bench
#endif

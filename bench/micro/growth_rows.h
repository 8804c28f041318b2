// SPDX-License-Identifier: Apache-2.0
// The random replacement in a live heap of any size: time a replacement, and peak resident memory
// over live bytes.
#ifndef SPANWISE_BENCH_GROWTH_ROWS_H
#define SPANWISE_BENCH_GROWTH_ROWS_H

#include <sys/mman.h>

#include <algorithm>

#include "rows.h"

namespace bench {

constexpr size_t GROWTH_MEAN = (REPLACE_MIN + REPLACE_MAX) / 2;
constexpr uint32_t GROWTH_WARM = 2000000;
constexpr size_t GROWTH_OPS = 1000000;

// The objects of a growth row and their sizes: pages of their own, resident before anything is
// measured, because the heap under test must not hold them.
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

// As many replacements as there are objects, two million at most, are not timed; then come a
// million that are. Live bytes change by a thousandth in the meantime, so the bytes at the end
// stand for all. Nothing is freed at the end: the process ends, and eight gigabytes take their
// time.
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

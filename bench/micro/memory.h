// SPDX-License-Identifier: Apache-2.0
// Allocations and bytes of a row, as google-benchmark reports them (allocs_per_iter,
// max_bytes_used, total_allocated_bytes, net_heap_growth).
//
// Only with --memory, and run.py asks for it in a run of its own: counting costs time, and
// google-benchmark 1.7.1 reports garbage in some of these fields when a row is repeated.
#ifndef SPANWISE_BENCH_MEMORY_H
#define SPANWISE_BENCH_MEMORY_H

#include <benchmark/benchmark.h>

#include "policy.h"

namespace bench {

class Memory : public benchmark::MemoryManager {
  public:
    void Start() override {
        counts.allocs = 0;
        counts.total_bytes = 0;
        counts.live_bytes = 0;
        counts.max_bytes = 0;
        counting = true;
    }

    // Releases differ in which of the two is pure virtual, and later ones lack the first: both are
    // declared, neither says `override`.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
    void Stop(Result *result) { Stop(*result); }
    void Stop(Result &result) {
        counting = false;
        result.num_allocs = counts.allocs;
        result.max_bytes_used = counts.max_bytes;
        result.total_allocated_bytes = counts.total_bytes;
        result.net_heap_growth = counts.live_bytes;
    }
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
};

} // namespace bench
#endif

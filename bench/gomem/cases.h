// SPDX-License-Identifier: Apache-2.0
// What the cases of bench_gomem.cc share: how one is registered.
#ifndef BENCH_GOMEM_CASES_H
#define BENCH_GOMEM_CASES_H

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using benchmark::ClobberMemory;
using benchmark::State;

// Passes the value as a constant: google-benchmark treats values that it may change differently.
template <typename Value> inline void DoNotOptimize(Value value) {
    benchmark::DoNotOptimize(value);
}

template <typename Run>
inline benchmark::internal::Benchmark *add(const std::string &contender, const std::string &name,
                                           Run run) {
    return benchmark::RegisterBenchmark((contender + "/case/" + name).c_str(), std::move(run));
}

#endif

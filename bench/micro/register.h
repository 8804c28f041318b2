// SPDX-License-Identifier: Apache-2.0
// Registers every row of a policy as POLICY/ROW, and has the main function of the bench programs.
#ifndef SPANWISE_BENCH_REGISTER_H
#define SPANWISE_BENCH_REGISTER_H

#include <cstdio>
#include <string>
#include <utility>

#include "rows.h"
#include "thread_rows.h"

namespace bench {

using benchmark::internal::Benchmark;

template <class RUN> Benchmark *add(const std::string &name, RUN run) {
    return benchmark::RegisterBenchmark(name.c_str(), run);
}

template <class P, size_t N> void register_pairs(const std::string &policy) {
    std::string size = std::to_string(N);
    add(policy + "/pair/" + size, pair<P, N, false>);
    add(policy + "/zpair/" + size, pair<P, N, true>);
    add(policy + "/sized_pair/" + size, sized_pair<P, N, false>);
    add(policy + "/sized_zpair/" + size, sized_pair<P, N, true>);
}

template <class P, size_t N, bool ZERO, Order ORDER, Phase PHASE>
void register_batch(const std::string &name, size_t count) {
    add(name, [count](State &s) { batch<P, N, ZERO, ORDER, PHASE>(s, count); })->UseManualTime();
}

template <class P> void register_batches(const std::string &policy) {
    size_t some = 100000;
    size_t many = OBJECTS_MAX;
    register_batch<P, 16, false, Order::IN_ORDER, Phase::ALLOC>(policy + "/malloc/16x100k", some);
    register_batch<P, 16, true, Order::IN_ORDER, Phase::ALLOC>(policy + "/calloc/16x100k", some);
    register_batch<P, 16, false, Order::IN_ORDER, Phase::FREE>(policy + "/free/16x100k", some);
    register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(policy + "/free_random/16x100k", some);
    register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(policy + "/free_random/16x1M", many);
    register_batch<P, 64, false, Order::RANDOM, Phase::FREE>(policy + "/free_random/64x1M", many);
    register_batch<P, 16, false, Order::RANDOM, Phase::ALLOC>(policy + "/malloc_after/16x1M", many);
}

// SCAN is the policy for the case with a pointer.
template <class P, class SCAN> void register_seed(const std::string &policy) {
    add(policy + "/seed/Alloc16", seed<P, 16>)->UseManualTime();
    add(policy + "/seed/Alloc32", seed<P, 32>)->UseManualTime();
    add(policy + "/seed/Alloc64", seed<P, 64>)->UseManualTime();
    add(policy + "/seed/AllocWithPtr", seed<SCAN, 16>)->UseManualTime();
}

template <class P> void register_threads(const std::string &policy) {
    add(policy + "/producer_consumer/64", producer_consumer<P>)->UseManualTime();
    add(policy + "/cross_free/64", cross_free<P>)->UseManualTime();
    for (unsigned threads : {1U, 2U, 4U, 8U}) {
        auto scale = [&](const char *row, void (*run)(State &, unsigned)) {
            add(policy + row + std::to_string(threads), [run, threads](State &s) {
                run(s, threads);
            })->UseManualTime();
        };
        scale("/scaling_pair/", scaling_pair<P>);
        scale("/scaling_replace/", scaling_replace<P>);
        scale("/scaling_cross/", scaling_cross<P>);
    }
}

// Random replacement in live heaps of 10 MB to 8 GB; each needs its own process.
template <class P> void register_growth(const std::string &policy) {
    constexpr uint64_t MB = 1000 * 1000;
    for (auto [name, bytes] : {std::pair{"10M", 10 * MB}, std::pair{"100M", 100 * MB},
                               std::pair{"1G", 1000 * MB}, std::pair{"8G", 8000 * MB}}) {
        uint64_t live = bytes;
        add(policy + "/growth/" + name, [live](State &s) { growth<P>(s, live); })
            ->UseManualTime()
            ->Iterations(1);
    }
}

template <class P, class SCAN = P> void register_rows(const std::string &policy) {
    register_pairs<P, 16>(policy);
    register_pairs<P, 64>(policy);
    register_pairs<P, 512>(policy);
    register_batches<P>(policy);
    add(policy + "/replace/8-1024", replace<P>);
    add(policy + "/replace/8-1024x1k", replace<P, 1000>);
    add(policy + "/replace/8-1024x10k", replace<P, 10000>);
    add(policy + "/replace_rss/8-1024", replace_rss<P>)->UseManualTime()->Iterations(1);
    add(policy + "/cold/16x1M", cold<P>)->UseManualTime()->Iterations(1);
    register_seed<P, SCAN>(policy);
    register_threads<P>(policy);
    register_growth<P>(policy);
}

// Run google-benchmark. --version prints the allocator's version and its library, if preloaded.
inline int run(int argc, char **argv, const std::string &version, const std::string &library = "") {
    if (argc == 2 && std::string(argv[1]) == "--version") {
        printf("%s\n%s\n", version.c_str(), library.c_str());
        return 0;
    }
    benchmark::AddCustomContext("version", version);
    benchmark::AddCustomContext("compiler", BENCH_COMPILER);
    benchmark::AddCustomContext("seed", std::to_string(SEED));
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

} // namespace bench
#endif

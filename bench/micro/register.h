// SPDX-License-Identifier: Apache-2.0
// Registers every row for a policy as POLICY/ROW, and is the main function of the bench programs.
#ifndef SPANWISE_BENCH_REGISTER_H
#define SPANWISE_BENCH_REGISTER_H

#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "growth_rows.h"
#include "memory.h"
#include "rows.h"
#include "thread_rows.h"

namespace bench {

using benchmark::internal::Benchmark;

// A row under its name; `plain` is what is timed, `counted` what the memory run executes.
inline Benchmark *add(const std::string &name, const std::function<void(State &)> &plain,
                      const std::function<void(State &)> &counted) {
    return benchmark::RegisterBenchmark(
        name.c_str(), [plain, counted](State &state) { counting ? counted(state) : plain(state); });
}

template <class P, size_t N> void register_pairs(const std::string &policy) {
    using C = Counted<P>;
    std::string size = std::to_string(N);
    add(policy + "/pair/" + size, pair<P, N, false>, pair<C, N, false>);
    add(policy + "/zpair/" + size, pair<P, N, true>, pair<C, N, true>);
    add(policy + "/sized_pair/" + size, sized_pair<P, N, false>, sized_pair<C, N, false>);
    add(policy + "/sized_zpair/" + size, sized_pair<P, N, true>, sized_pair<C, N, true>);
}

template <class P, size_t N, bool ZERO, Order ORDER, Phase PHASE>
void register_batch(const std::string &name, size_t count) {
    using C = Counted<P>;
    add(
        name, [count](State &s) { batch<P, P, N, ZERO, ORDER, PHASE>(s, count); },
        [count](State &s) { batch<C, P, N, ZERO, ORDER, PHASE>(s, count); })
        ->UseManualTime();
}

template <class P> void register_batches(const std::string &policy) {
    size_t some = 100000;
    size_t many = OBJECTS_MAX;
    register_batch<P, 16, false, Order::IN_ORDER, Phase::ALLOC>(policy + "/malloc/16x100k", some);
    register_batch<P, 16, true, Order::IN_ORDER, Phase::ALLOC>(policy + "/calloc/16x100k", some);
    register_batch<P, 32, true, Order::IN_ORDER, Phase::ALLOC>(policy + "/calloc/32x100k", some);
    register_batch<P, 64, true, Order::IN_ORDER, Phase::ALLOC>(policy + "/calloc/64x100k", some);
    register_batch<P, 16, false, Order::IN_ORDER, Phase::FREE>(policy + "/free/16x100k", some);
    register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(policy + "/free_random/16x100k", some);
    register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(policy + "/free_random/16x1M", many);
    register_batch<P, 64, false, Order::RANDOM, Phase::FREE>(policy + "/free_random/64x1M", many);
    register_batch<P, 16, false, Order::RANDOM, Phase::ALLOC>(policy + "/malloc_after/16x1M", many);
    register_batch<P, 64, false, Order::RANDOM, Phase::ALLOC>(policy + "/malloc_after/64x1M", many);
}

// SCAN: the policy under which the case with a pointer runs.
template <class P, class SCAN> void register_seed(const std::string &policy) {
    add(policy + "/seed/Alloc16", seed<P, P, 16>, seed<Counted<P>, P, 16>)->UseManualTime();
    add(policy + "/seed/Alloc32", seed<P, P, 32>, seed<Counted<P>, P, 32>)->UseManualTime();
    add(policy + "/seed/Alloc64", seed<P, P, 64>, seed<Counted<P>, P, 64>)->UseManualTime();
    add(policy + "/seed/AllocWithPtr", seed<SCAN, SCAN, 16>, seed<Counted<SCAN>, SCAN, 16>)
        ->UseManualTime();
}

template <class P> void register_threads(const std::string &policy) {
    using C = Counted<P>;
    add(policy + "/producer_consumer/64", producer_consumer<P>, producer_consumer<C>)
        ->UseManualTime();
    add(policy + "/cross_free/64", cross_free<P>, cross_free<C>)->UseManualTime();
    add(policy + "/false_sharing/handed", false_sharing<P, false>, false_sharing<C, false>)
        ->UseManualTime();
    add(policy + "/false_sharing/reused", false_sharing<P, true>, false_sharing<C, true>)
        ->UseManualTime();
    for (unsigned threads : {1U, 2U, 4U, 8U}) {
        auto scale = [&](const char *row, void (*plain)(State &, unsigned),
                         void (*counted)(State &, unsigned)) {
            add(
                policy + row + std::to_string(threads),
                [plain, threads](State &s) { plain(s, threads); },
                [counted, threads](State &s) { counted(s, threads); })
                ->UseManualTime();
        };
        scale("/scaling_pair/", scaling_pair<P>, scaling_pair<C>);
        scale("/scaling_replace/", scaling_replace<P>, scaling_replace<C>);
        scale("/scaling_cross/", scaling_cross<P>, scaling_cross<C>);
    }
}

// The random replacement in live heaps of 10 MB to 8 GB; a process of its own each.
template <class P> void register_growth(const std::string &policy) {
    constexpr uint64_t MB = 1000 * 1000;
    for (auto [name, bytes] : {std::pair{"10M", 10 * MB}, std::pair{"100M", 100 * MB},
                               std::pair{"1G", 1000 * MB}, std::pair{"8G", 8000 * MB}}) {
        uint64_t live = bytes;
        add(
            policy + "/growth/" + name, [live](State &s) { growth<P>(s, live); },
            [live](State &s) { growth<Counted<P>>(s, live); })
            ->UseManualTime()
            ->Iterations(1);
    }
}

template <class P, class SCAN = P> void register_rows(const std::string &policy) {
    using C = Counted<P>;
    register_pairs<P, 16>(policy);
    register_pairs<P, 32>(policy);
    register_pairs<P, 64>(policy);
    register_pairs<P, 512>(policy);
    register_batches<P>(policy);
    add(policy + "/replace/8-1024", replace<P, P>, replace<C, P>);
    add(policy + "/replace/8-1024x1k", replace<P, P, 1000>, replace<C, P, 1000>);
    add(policy + "/replace/8-1024x10k", replace<P, P, 10000>, replace<C, P, 10000>);
    add(policy + "/replace_rss/8-1024", replace_rss<P>, replace_rss<C>)
        ->UseManualTime()
        ->Iterations(1);
    add(policy + "/cold/16x1M", cold<P>, cold<C>)->UseManualTime()->Iterations(1);
    register_seed<P, SCAN>(policy);
    register_threads<P>(policy);
    register_growth<P>(policy);
}

// --version prints the allocator's version and the library that it came from (if it is preloaded);
// --memory counts; google-benchmark has the rest of the arguments.
inline int run(int argc, char **argv, const std::string &version, const std::string &library = "") {
    static Memory memory;
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (std::string(argv[i]) == "--memory") {
            benchmark::RegisterMemoryManager(&memory);
        } else if (std::string(argv[i]) == "--version") {
            printf("%s\n%s\n", version.c_str(), library.c_str());
            return 0;
        } else {
            argv[kept++] = argv[i];
        }
    }
    benchmark::AddCustomContext("version", version);
    benchmark::AddCustomContext("compiler", BENCH_COMPILER);
    benchmark::AddCustomContext("seed", std::to_string(SEED));
    benchmark::Initialize(&kept, argv);
    if (benchmark::ReportUnrecognizedArguments(kept, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

} // namespace bench
#endif

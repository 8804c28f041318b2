// SPDX-License-Identifier: Apache-2.0
// The rows of prototypes that are called (called.h, generic.h), and of Go's cases.
#ifndef SPANWISE_BENCH_LIMITS_CALLED_ROWS_H
#define SPANWISE_BENCH_LIMITS_CALLED_ROWS_H

#include "called.h"
#include "generic.h"
#include "register.h"

namespace limits {

// The rows "exported ..." and "generic ..." of the scoreboard.
template <class P> void register_called(const std::string &step) {
    using bench::Order;
    using bench::Phase;
    constexpr size_t SOME = 100000;
    constexpr size_t MANY = bench::OBJECTS_MAX;
    P::ready();
    bench::add(step + "/pair/16", bench::pair<P, 16, false>, bench::pair<P, 16, false>);
    bench::register_batch<P, 16, false, Order::IN_ORDER, Phase::ALLOC>(step + "/malloc/16x100k",
                                                                       SOME);
    bench::register_batch<P, 16, true, Order::IN_ORDER, Phase::ALLOC>(step + "/calloc/16x100k",
                                                                      SOME);
    bench::register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(step + "/free_random/16x1M",
                                                                    MANY);
    bench::register_batch<P, 16, false, Order::RANDOM, Phase::ALLOC>(step + "/malloc_after/16x1M",
                                                                     MANY);
}

template <class P, size_t SIZE> void register_case(const std::string &name) {
    P::ready();
    bench::add(name, bench::seed<P, P, SIZE>, bench::seed<P, P, SIZE>)->UseManualTime();
}

// Objects with pointers have spans of their own; each is cleared, since every slot was used before.
template <Step STEP> void register_kept(const std::string &step) {
    register_case<Prototype<STEP, 16>, 16>(step + "/seed/Alloc16");
    register_case<Prototype<STEP, 32>, 32>(step + "/seed/Alloc32");
    register_case<Prototype<STEP, 64>, 64>(step + "/seed/Alloc64");
    register_case<Prototype<STEP, 16, struct ScanTag>, 16>(step + "/seed/AllocWithPtr");
}

} // namespace limits
#endif

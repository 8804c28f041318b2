// SPDX-License-Identifier: Apache-2.0
// The threads of a row, and the time that they took.
#ifndef SPANWISE_BENCH_TEAM_H
#define SPANWISE_BENCH_TEAM_H

#include <algorithm>
#include <thread>
#include <vector>

#include "measure.h"

namespace bench {

// Wall seconds in which one thread was in its body.
struct Stretch {
    double from;
    double to;
};

// Runs body(index) on `threads` threads of its own. Returns the wall seconds from when the first of
// them began, all standing ready, until the last was done.
//
// Each thread reads the clock itself. A thread that only waits for the others may be scheduled long
// after they began, or are done, since a row of some milliseconds is shorter than a time slice.
template <class P, class BODY> double run_threads(unsigned threads, BODY body) {
    Barrier all(threads);
    std::vector<Stretch> taken(threads);
    std::vector<std::thread> team;
    for (unsigned index = 0; index < threads; index++) {
        team.emplace_back([&, index] {
            P::thread_start();
            all.wait();
            double from = wall_seconds();
            body(index);
            taken[index] = {from, wall_seconds()};
            all.wait(); // no thread's end falls into the time of another
            P::thread_stop();
        });
    }
    for (std::thread &thread : team) thread.join();
    Stretch whole = taken[0];
    for (const Stretch &one : taken)
        whole = {std::min(whole.from, one.from), std::max(whole.to, one.to)};
    return whole.to - whole.from;
}

} // namespace bench
#endif

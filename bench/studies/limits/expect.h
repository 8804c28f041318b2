// SPDX-License-Identifier: Apache-2.0
// What the self-test's parts share: expectations that are counted, not asserted.
#ifndef SPANWISE_BENCH_LIMITS_EXPECT_H
#define SPANWISE_BENCH_LIMITS_EXPECT_H

#include <string>

#include "space.h"

namespace limits {

inline int failures = 0;

inline void expect(bool holds, const std::string &step, const char *what) {
    if (holds) return;
    fprintf(stderr, "check_limits: %s: %s\n", step.c_str(), what);
    failures++;
}

// The last fault that was found since the last call.
inline Fault found() { return fault.exchange(Fault::NONE); }

} // namespace limits
#endif

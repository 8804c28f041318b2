// SPDX-License-Identifier: Apache-2.0
// The self-test's part for prototypes of several classes (check_called.cc).
#ifndef SPANWISE_BENCH_LIMITS_CHECK_CALLED_H
#define SPANWISE_BENCH_LIMITS_CHECK_CALLED_H

namespace limits {

// Prints the expectations that do not hold; returns their number.
int check_called();

} // namespace limits
#endif

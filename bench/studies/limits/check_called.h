// SPDX-License-Identifier: Apache-2.0
// The part of the self-test that is about prototypes of several classes (check_called.cc).
#ifndef SPANWISE_BENCH_LIMITS_CHECK_CALLED_H
#define SPANWISE_BENCH_LIMITS_CHECK_CALLED_H

namespace limits {

// Prints what does not hold; returns how much that is.
int check_called();

} // namespace limits
#endif

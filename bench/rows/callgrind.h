/* SPDX-License-Identifier: Apache-2.0 */
/* callgrind, where its header is there. What comes before the measured part then runs fast: collecting
 * starts late. */
#ifndef SPANWISE_BENCH_CALLGRIND_H
#define SPANWISE_BENCH_CALLGRIND_H

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_START_INSTRUMENTATION
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Switches callgrind on and off where its header is installed. Collecting starts late, so what comes
 * before the measured part runs fast. */
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

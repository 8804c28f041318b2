/* SPDX-License-Identifier: Apache-2.0 */
/* Starts callgrind's instrumentation; without its header the macro is empty. It starts just before
 * the measured part, so that everything before that runs fast. */
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

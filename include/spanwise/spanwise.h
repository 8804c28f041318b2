/* SPDX-License-Identifier: Apache-2.0 */
/* spanwise: a Go-style allocator for allocator research. Everything public, in one include. */
#ifndef SPANWISE_SPANWISE_H
#define SPANWISE_SPANWISE_H

#define SPANWISE_VERSION "0.1.0"

#include <spanwise/heap.h>
#include <spanwise/ops.h>
#include <spanwise/optimize.h>
#include <spanwise/replay.h>
#include <spanwise/sizeclass.h>
#include <spanwise/stats.h>
#include <spanwise/status.h>
#include <spanwise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is linked, e.g. "0.1.0". */
SW_API const char *sw_version(void);

#ifdef __cplusplus
}
#endif
#endif

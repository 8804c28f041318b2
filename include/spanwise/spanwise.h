/* SPDX-License-Identifier: Apache-2.0 */
/* spanwise: a Go-style allocator for allocator research. This header includes all public ones. */
#ifndef SPANWISE_SPANWISE_H
#define SPANWISE_SPANWISE_H

/* The version of these headers: as text, and as major * 10000 + minor * 100 + patch, for #if. What
 * may change between versions: docs/stability.md. */
#define SPANWISE_VERSION "0.1.0"
#define SW_VERSION_NUMBER 100

#include <spanwise/allocator_vtable.h>
#include <spanwise/arena.h>
#include <spanwise/backing.h>
#include <spanwise/gc.h>
#include <spanwise/heap.h>
#include <spanwise/memory.h>
#include <spanwise/ops.h>
#include <spanwise/optimize.h>
#include <spanwise/pool.h>
#include <spanwise/pymalloc.h>
#include <spanwise/range.h>
#include <spanwise/reader.h>
#include <spanwise/recyclable.h>
#include <spanwise/replay.h>
#include <spanwise/scalable.h>
#include <spanwise/sizeclass.h>
#include <spanwise/slab.h>
#include <spanwise/stack.h>
#include <spanwise/stats.h>
#include <spanwise/status.h>
#include <spanwise/trace.h>
#include <spanwise/tracker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return the version of the linked library: as text, e.g. "0.1.0", and as SW_VERSION_NUMBER. */
SW_API const char *sw_version(void);
SW_API uint32_t sw_version_number(void);

#ifdef __cplusplus
}
#endif
#endif

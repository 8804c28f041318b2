/* SPDX-License-Identifier: Apache-2.0 */
/* Work on cycles before an allocation. Caller: collector. */
#ifndef SW_GC_ASSIST_H
#define SW_GC_ASSIST_H

#include "gc/gc.h"

/* Begins a cycle, or works on the running one, when `fresh` bytes are allocated and pace_due is
 * reached; with SW_GC_ALWAYS collects. SW_STATE: SW_GC_CHECKMARK has found an error. */
sw_status sw_gc_keep_pace(sw_gc *gc, uint64_t fresh);

#endif

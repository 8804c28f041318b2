/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the collector that a collected heap calls. Caller: collector. */
#ifndef SW_GC_HOOKS_H
#define SW_GC_HOOKS_H

#include "heap/collected.h"

extern const sw_heap_hooks sw_gc_hooks;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's caches. sw_tls.cache (spanwise/fast_slots.h) is its cache of the default heap, or
 * one without a heap. */
#ifndef SW_HEAP_THREAD_H
#define SW_HEAP_THREAD_H

#include "heap/registry.h"

/* This thread's cache of the heap, opened if need be. NULL: no memory, or the heap is NULL or was
 * destroyed, which was reported; the last error is set. */
sw_cache *sw_thread_cache(sw_heap *heap);
/* NULL, with the errno that says why there was no cache. */
sw_cold void *sw_thread_no_cache(void);
/* This thread's cache of the default heap, which is created if need be. */
sw_cache *sw_thread_default_cache(void);
/* True when this thread's caches were closed at its exit and nothing was opened since: what is
 * opened now may stay open for ever. */
bool sw_thread_has_ended(void);

#endif

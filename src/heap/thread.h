/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's caches. sw_tls.cache (spanwise/fast_slots.h) is its cache of the default
 * heap, or the cache without a heap. */
#ifndef SW_HEAP_THREAD_H
#define SW_HEAP_THREAD_H

#include "heap/registry.h"

/* This thread's cache of the heap, which is opened if need be. NULL: there is no memory, or the
 * heap is NULL or destroyed, which was reported. The thread's last error is set then. */
sw_cache *sw_thread_cache(sw_heap *heap);
/* Returns NULL and sets errno to the reason why sw_thread_cache returned NULL. */
sw_cold void *sw_thread_no_cache(void);
/* This thread's cache of the default heap; the heap is created if need be. NULL: no memory. */
sw_cache *sw_thread_default_cache(void);

/* One value that an upper layer keeps for the calling thread; NULL: none was set. */
void *sw_thread_extra(void);
/* Sets it; leave(extra) is called at the thread's end. False: no memory, or the end would go
 * unnoticed. */
bool sw_thread_set_extra(void *extra, void (*leave)(void *extra));

#endif

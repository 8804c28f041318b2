/* SPDX-License-Identifier: Apache-2.0 */
/* The default heap: sw_heap_default and sw_heap_default_init (spanwise/heap.h), and its lock. */
#ifndef SW_HEAP_DEFAULT_HEAP_H
#define SW_HEAP_DEFAULT_HEAP_H

/* For fork handlers: while the lock is held no thread creates the default heap. It is the outermost
 * of all locks: it is taken before the registry's. */
void sw_default_heap_lock(void);
void sw_default_heap_unlock(void);
void sw_default_heap_reset_lock(void);

#endif

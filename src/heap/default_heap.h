/* SPDX-License-Identifier: Apache-2.0 */
/* The default heap: sw_heap_default and sw_heap_default_init (spanwise/heap.h), and its lock. */
#ifndef SW_HEAP_DEFAULT_HEAP_H
#define SW_HEAP_DEFAULT_HEAP_H

/* For fork: nobody creates the default heap meanwhile. The outermost lock of all, even outside the
 * registry's. */
void sw_default_heap_lock(void);
void sw_default_heap_unlock(void);
void sw_default_heap_reset_lock(void);

#endif

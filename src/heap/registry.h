/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: the heaps that live, and the records of the threads that use them. Its lock is the
 * outermost. A thread reads its own record without it. */
#ifndef SW_HEAP_REGISTRY_H
#define SW_HEAP_REGISTRY_H

#include "heap/cache.h"

/* A thread's caches: a mapping of its own, of which most threads touch the first page only. Links are
 * written under the registry's lock, entries by the thread, too, and by whoever destroys a heap.
 *   used <= SW_HEAPS_MAX;  caches[used] == NULL;  *back == the record, and next->back == &next */
typedef struct sw_thread {
    struct sw_thread *next, **back; /* back: of a thread that lives */
    size_t used;                    /* the entries behind are NULL, and have never been written */
    /* By heap index; the last entry is that of heaps that were destroyed, and is never written. */
    sw_cache *caches[SW_HEAPS_MAX + 1];
} sw_thread;

extern sw_tls_fast sw_thread *sw_tls_thread; /* NULL: the thread has none yet, or no more */

/* Of a thread that lives, under the registry's lock: the rule that does not hold, or NULL
 * (base/assert.h). */
const char *sw_thread_check(const sw_thread *thread);

/* This thread's cache of the heap with that index; NULL: it has none. */
static sw_always_inline sw_cache *sw_registry_cache_at(uint32_t index) {
    sw_thread *thread = sw_tls_thread;
    if (sw_unlikely(thread == NULL)) return NULL;
    return __atomic_load_n(&thread->caches[index], __ATOMIC_RELAXED);
}
static sw_always_inline sw_cache *sw_registry_own_cache(const sw_heap *heap) {
    return sw_registry_cache_at(heap->index);
}

/* --- heaps ------------------------------------------------------------------------------------ */

/* Gives the heap an index; false when SW_HEAPS_MAX heaps live. */
bool sw_registry_add(sw_heap *heap);
/* Forgets the heap and every thread's cache of it. */
void sw_registry_remove(sw_heap *heap);

/* --- threads ---------------------------------------------------------------------------------- */

/* A record with an empty table, of a thread that lives from now on; NULL: no memory. */
sw_thread *sw_registry_enter(void);
/* Its thread ends, and has no cache any more. The record waits for another thread, or goes. */
void sw_registry_leave(sw_thread *thread);
/* Before entry `index` of the caller's table is written: whoever destroys a heap looks at the
 * entries in use. */
void sw_registry_use_entry(sw_thread *thread, uint32_t index);
/* Takes cache i out of the table of a thread that ends; NULL: there is none. The heap can not be
 * destroyed until sw_registry_release_heap. */
sw_cache *sw_registry_take_cache(sw_thread *thread, size_t i);
void sw_registry_release_heap(sw_heap *heap);

/* --- fork ------------------------------------------------------------------------------------- */

void sw_registry_lock(void);
void sw_registry_unlock(void);
/* Calls fn with each heap. Under the lock, or where no other thread is. */
void sw_registry_each_heap(void (*fn)(sw_heap *));
/* In the child: the lock is free, and the records of the threads that the child does not have wait
 * for its next ones. */
void sw_registry_recover(void);

#endif

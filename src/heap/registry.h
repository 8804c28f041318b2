/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: live heaps, and the records of the threads that use them. Only the lock of the
 * default heap (heap.h) is taken before the registry's. A thread reads its own record without a
 * lock. */
#ifndef SW_HEAP_REGISTRY_H
#define SW_HEAP_REGISTRY_H

#include "heap/cache.h"
#include "spanwise/fast_slots.h"

/* --- the registry ----------------------------------------------------------------------------- */

/* The record of a thread with its caches. It is a separate mapping; most threads touch only its
 * first page. `next`, `back` and `used` are written under the registry's lock. The thread writes
 * entries without it; a thread that destroys a heap clears entries of others under it. A cache
 * without a heap follows in the mapping (sw_registry_show).
 *   used <= SW_HEAPS_MAX;  caches[used] == NULL;  *back == the record, and next->back == &next */
typedef struct sw_thread {
    struct sw_thread *next, **back; /* links of its list; only living threads have `back` */
    size_t used;                    /* entries from here on are NULL and were never written */
    bool exits;                     /* the thread's end is noticed */
    void *extra;                    /* of an upper layer (sw_thread_set_extra) */
    void (*leave_extra)(void *extra);
    /* By heap index. The last entry is for heaps that were destroyed; it is always NULL. */
    sw_cache *caches[SW_HEAPS_MAX + 1];
} sw_thread;

/* A record that sw_tls does not lead to, because its thread is beginning or ending. It is on that
 * thread's stack. */
typedef struct sw_thread_change {
    struct sw_thread_change *next;
    const void *here; /* sw_os_here of the thread */
    sw_thread *thread;
} sw_thread_change;

/* The calling thread's record if it is beginning or ending; NULL: neither. */
sw_cold sw_thread *sw_registry_find_changing(void);
void sw_registry_change_begin(sw_thread_change *change, sw_thread *thread);
void sw_registry_change_end(sw_thread_change *change);

/* The calling thread's record, to which the cache in sw_tls leads; NULL: it has none. */
static sw_always_inline sw_thread *sw_registry_own(void) {
    sw_thread *own = sw_tls.cache->thread;
    return sw_likely(own != NULL) ? own : sw_registry_find_changing();
}
/* Makes sw_tls lead to the calling thread's record, through its cache of the default heap, or
 * through its own cache without a heap. */
void sw_registry_show(sw_thread *thread);

/* Checks the record of a live thread, under the registry's lock. Returns the broken invariant, or
 * NULL (base/base.h). */
const char *sw_thread_check(const sw_thread *thread);

/* Leaves the thread without a cache of the default heap, as it was at first. */
void sw_registry_drop_default(void);
/* The same at the thread's end. */
void sw_registry_set_ended(void);
/* True if this thread's caches were closed at its end and none was opened since. A cache opened now
 * may stay open for ever. */
bool sw_registry_has_ended(void);

/* This thread's cache of the heap with that index; NULL: it has none, or is beginning or ending. */
static sw_always_inline sw_cache *sw_registry_cache_at(uint32_t index) {
    sw_thread *own = sw_tls.cache->thread;
    return sw_unlikely(own == NULL) ? NULL : __atomic_load_n(&own->caches[index], __ATOMIC_RELAXED);
}
static sw_always_inline sw_cache *sw_registry_own_cache(const sw_heap *heap) {
    return sw_registry_cache_at(heap->index);
}

/* --- heaps ------------------------------------------------------------------------------------ */

enum { SW_DEFAULT_HEAP_ID = 1 };

/* Gives the heap an index; false when SW_HEAPS_MAX heaps live. */
bool sw_registry_add(sw_heap *heap);
/* Forgets the heap and every thread's cache of it. */
void sw_registry_remove(sw_heap *heap);

/* --- threads ---------------------------------------------------------------------------------- */

/* Makes a record with an empty table for the calling thread, and lists it as living; NULL: no
 * memory. */
sw_thread *sw_registry_enter(void);
/* Takes the record of an ending thread that has no cache any more; keeps it for another thread, or
 * returns it to the system. */
void sw_registry_leave(sw_thread *thread);
/* Must be called before entry `index` of the caller's table is written, because a thread that
 * destroys a heap looks only at the entries below `used`. */
void sw_registry_use_entry(sw_thread *thread, uint32_t index);
/* Takes cache i out of the table of a thread that ends; NULL: there is none. Its heap is not
 * destroyed before sw_registry_release_heap is called. */
sw_cache *sw_registry_take_cache(sw_thread *thread, size_t i);
void sw_registry_release_heap(sw_heap *heap);

/* --- fork ------------------------------------------------------------------------------------- */

void sw_registry_lock(void);
void sw_registry_unlock(void);
/* Calls fn with each heap. The caller holds the lock, or there is no other thread. */
void sw_registry_each_heap(void (*fn)(sw_heap *));
/* In the child of a fork: resets the lock, and keeps the records of the parent's other threads for
 * new threads. */
void sw_registry_recover(void);

/* --- the calling thread ----------------------------------------------------------------------- */

/* The calling thread's caches. sw_tls.cache (spanwise/fast_slots.h) is its cache of the default
 * heap, or the cache without a heap. */

/* This thread's cache of the heap, opened if necessary. NULL: there is no memory, or the heap is
 * NULL or destroyed, which was reported. The thread's last error is set then. */
sw_cache *sw_thread_cache(sw_heap *heap);
/* Returns NULL and sets errno to the reason why sw_thread_cache returned NULL. */
sw_cold void *sw_thread_no_cache(void);
/* This thread's cache of the default heap, created if necessary. NULL: no memory. */
sw_cache *sw_thread_default_cache(void);

/* One value that an upper layer keeps for the calling thread; NULL: none was set. */
void *sw_thread_extra(void);
/* Sets it; leave(extra) is called at the thread's end. False: no memory, or no destructor can be
 * registered. */
bool sw_thread_set_extra(void *extra, void (*leave)(void *extra));

#endif

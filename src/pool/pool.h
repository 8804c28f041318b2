/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of pools: an array of idle items, used as a stack (LIFO) or a ring (FIFO).
 *
 *   stack, aged:  | victims | thread slot | free places |      age frees the victims
 *                 0      victims     count     capacity
 *   ring:         items at first, first + 1, ... modulo capacity
 *
 * A plain pool (LIFO, no other option) keeps the item put last in `front.newest`. A get after a put
 * uses only that field: branch prediction breaks the dependency, while the top of a stack depends
 * on the count that the put has just stored.
 *
 * In a pool with thread slots a thread checks its slot first; all threads share the
 * array. A pool that watches puts also has a set of its idle items (address_set.h), and no thread
 * slots.
 *
 * A pool that ages with a collector is notified when a cycle begins, and ages in its next call: the
 * thread that uses the pool frees the items, not the collecting one.
 *
 * Callers: pool.c (life, features), items.c (get, put, aging). Design: docs/design/pool.md,
 * "Pools".
 */
#ifndef SW_POOL_POOL_H
#define SW_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/handle.h"
#include "gc/gc.h"
#include "os/os.h"
#include "pool/address_set.h"
#include "spanwise/pool.h"

/* --- thread slots ----------------------------------------------------------------------------- */

/* Thread slots: one idle item per slot, checked before the pool's lock is taken. A hash of the
 * thread selects the slot, so two threads may share one. Items are put and taken by one atomic
 * instruction. */

enum { SW_THREAD_SLOTS = 64 };

/* One cache line, written atomically by any thread. */
typedef struct sw_thread_slot {
    void *item; /* NULL: none */
    /* Items ever put here, including puts in progress. */
    uint64_t puts;
    uint64_t pad[6];
} sw_thread_slot;

sw_thread_slot *sw_thread_slot_of_thread(sw_thread_slot *thread_slots);

/* --- pools ------------------------------------------------------------------------------------ */

/* Fields are used under the lock or, in a pool without one, by one thread; others read those marked
 * atomic.
 *   front.plain_bytes == item_bytes or front.plain_bytes == 0 and front.newest == NULL
 *   count + (front.newest != NULL) <= capacity;  victims <= count
 *   order == SW_POOL_LIFO or victims == 0;  order == SW_POOL_FIFO or first == 0;  first < capacity
 *   idle items + dropped + old <= front.puts
 *   thread slots == NULL or locked;  idle.slots == NULL or thread slots == NULL
 *   idle.slots == NULL or idle.count == count
 *   aged or cycle == aged_cycle == 0 */
struct sw_pool {
    sw_pool_front front; /* mark: ds/handle.h */
    void **items;
    uint64_t count;
    uint64_t capacity;
    uint64_t item_bytes;
    uint64_t first;
    uint64_t victims; /* items at the bottom that have been idle since the last aging */
    uint32_t order;
    uint32_t zero;
    uint32_t locked;
    uint32_t aged;
    sw_heap *heap;                /* NULL: the default one */
    uint64_t fresh, dropped, old; /* counts from which the number of gets is computed */
    sw_thread_slot *thread_slots; /* SW_THREAD_SLOTS; NULL: none */
    sw_address_set idle;
    sw_gc_source source; /* no roots, only notification of cycles; gc NULL: none */
    uint64_t cycle;      /* atomic: number of the newest cycle of the pool's collector */
    uint64_t aged_cycle; /* atomic: number of the last cycle with which it has aged */
    sw_pool_construct_fn *construct; /* NULL: none; `context` is its argument */
    void *context;
    sw_os_lock lock;
    sw_fork_lock fork; /* of a locked pool */
};

/* Frees all idle items, including those of thread slots. No other thread may use the pool any
 * more. */
void sw_pool_empty(sw_pool *pool);

const char *sw_pool_record_check(const sw_pool *pool);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A pool from the inside: an array of its idle items, which is a stack (LIFO) or a ring (FIFO).
 *
 *   stack, aged:  | victims | primary | free places |      get takes the last item, age frees the victims
 *                 0      victims     count     capacity
 *   ring:         items at first, first + 1, ... modulo capacity
 *
 * Used by pool.c alone. Design: docs/design/arena.md, "Pools".
 */
#ifndef SW_POOL_POOL_H
#define SW_POOL_POOL_H

#include "os/os.h"
#include "spanwise/pool.h"

/* Whoever may call has it, or who holds the lock.
 *   count <= capacity;  victims <= count;  order == SW_POOL_LIFO or victims == 0
 *   order == SW_POOL_FIFO or first == 0;  first < capacity
 *   fresh <= gets;  dropped <= puts */
struct sw_pool {
    uint64_t mark; /* ds/handle.h */
    void **items;
    uint64_t count;
    uint64_t capacity;
    uint64_t item_bytes;
    uint64_t first;
    uint64_t victims; /* items at the bottom that have been idle since the last age */
    uint32_t order;
    uint32_t zero;
    uint32_t locked;
    uint32_t aged;
    sw_heap *heap; /* NULL: the default one */
    uint64_t gets, fresh, puts, dropped, old;
    sw_os_lock lock;
};

const char *sw_pool_record_check(const struct sw_pool *pool);

#endif

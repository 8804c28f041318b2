/* SPDX-License-Identifier: Apache-2.0 */
/* Object pools: items of one size that are reused instead of freed.
 *
 *   sw_pool_options options;
 *   sw_pool_options_init(&options);
 *   options.item_bytes = sizeof(struct connection);
 *   sw_pool_create(&options, &pool);
 *   struct connection *c = sw_pool_get(pool);
 *   sw_pool_put(pool, c, sizeof *c);
 *
 * Idle items are listed in a separate array, so the pool does not write into them, except to zero
 * them on request. Items are objects of a heap: free an item that is not put back with
 * sw_heap_free. With the option `aged` an item that is idle for two calls of sw_pool_age is freed,
 * as in Go's sync.Pool after two collections.
 *
 * Thread rule: one thread at a time; with the option `locked` any thread may call. Statistics may
 * miss concurrent calls.
 */
#ifndef SPANWISE_POOL_H
#define SPANWISE_POOL_H

#include <spanwise/gc.h>
#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_pool sw_pool;

/* Which idle item is used next. */
typedef enum sw_pool_order {
    SW_POOL_LIFO = 0, /* the item put last: it is still in the CPU caches */
    SW_POOL_FIFO,     /* the item put first */
    SW_POOL_ORDER_COUNT
} sw_pool_order;

/* Maximum capacity of a pool. */
#define SW_POOL_CAPACITY_MAX (UINT64_C(1) << 32)

typedef struct sw_pool_options {
    uint32_t struct_bytes; /* sizeof(sw_pool_options), for later versions */
    uint32_t order;        /* sw_pool_order; an aged pool is LIFO */
    uint64_t item_bytes;   /* 1 .. PTRDIFF_MAX */
    uint64_t capacity;     /* idle items kept, 1 .. SW_POOL_CAPACITY_MAX */
    sw_heap *heap;         /* NULL: the default heap */
    uint32_t zero;         /* 1: items are cleared when put, and zeroed when new */
    uint32_t locked;       /* 1: any thread may call, under a lock */
    uint32_t aged;         /* 1: two generations; see sw_pool_age */
    uint32_t pad;
} sw_pool_options;

/* Set the defaults: LIFO, 64-byte items, capacity 1024, default heap; not cleared, locked or
 * aged. */
SW_API void sw_pool_options_init(sw_pool_options *options);

/* Create an empty pool. Errors: SW_INVALID: options out of range; SW_UNSUPPORTED: aged and FIFO;
 * SW_NOMEM. */
SW_API sw_status sw_pool_create(const sw_pool_options *options, sw_pool **out);
/* Free the idle items and the pool. NULL is ignored. */
SW_API void sw_pool_destroy(sw_pool *pool);

/* --- features: call right after sw_pool_create, before other threads use the pool ------------- */

/* Initialise a new item; return 1, or 0 to fail: then the item is freed, and sw_pool_get returns
 * NULL with the constructor's errno (ECANCELED if it set none). No lock is held. */
typedef int sw_pool_construct_fn(void *item, void *context);
/* Call construct(item, context) for each new item, not for reused ones, like New of Go's sync.Pool.
 * NULL: no constructor. Errors: SW_UNSUPPORTED: the pool clears its items; SW_STATE: the pool has
 * been used. */
SW_API sw_status sw_pool_set_constructor(sw_pool *pool, sw_pool_construct_fn *construct,
                                         void *context);

/* Detect double puts (misuse DOUBLE_PUT). If an item is no longer an object of the heap, the heap
 * reports the misuse. Costs a hash table of 16 to 32 bytes per item of the capacity, and a look-up
 * per call. Errors: SW_UNSUPPORTED: the pool has thread slots; SW_STATE: it has been used;
 * SW_NOMEM. */
SW_API sw_status sw_pool_watch_puts(sw_pool *pool);

/* Give each thread a slot for one idle item, used without the lock, like the private item of Go's
 * sync.Pool. There are 64 slots, chosen by a hash of the thread; their items do not count towards
 * the capacity, and age like the others. A new item is allocated only if all slots are empty.
 * Errors: SW_UNSUPPORTED: the pool is not locked, not LIFO, or watches puts; SW_STATE: it has been
 * used; SW_NOMEM. */
SW_API sw_status sw_pool_add_thread_slots(sw_pool *pool);

/* --- items ------------------------------------------------------------------------------------ */

/* Return an idle item, else a new one. NULL: no memory (errno ENOMEM), or a failed constructor. */
SW_API void *sw_pool_get(sw_pool *pool);
/* Put an item of sw_pool_get back. bytes: the item size that the caller assumes; if it is not the
 * pool's, or item is NULL, the call returns SW_INVALID and the item stays with the caller. Double
 * puts are detected only with sw_pool_watch_puts. */
SW_API sw_status sw_pool_put(sw_pool *pool, void *item, size_t bytes);

/* Free the items that have been idle since the last call, and start a new generation: items idle
 * now are freed by the next call unless used before. Errors: SW_UNSUPPORTED: the pool is not
 * aged. */
SW_API sw_status sw_pool_age(sw_pool *pool);
/* Age the pool once per collector cycle, in the first sw_pool_get, _put or _get_stats after the
 * cycle begins, like Go's sync.Pool. Call before other threads use the pool. gc NULL, or the end of
 * the collector, stops it. Errors: SW_UNSUPPORTED: the pool is not aged. */
SW_API sw_status sw_pool_age_with(sw_pool *pool, sw_gc *gc);

typedef struct sw_pool_stats {
    uint64_t idle;    /* items */
    uint64_t gets;    /* successful calls of sw_pool_get */
    uint64_t fresh;   /* new items among these */
    uint64_t puts;    /* items put back */
    uint64_t dropped; /* of these, freed because the pool was full */
    uint64_t aged;    /* freed by sw_pool_age */
} sw_pool_stats;

SW_API sw_status sw_pool_get_stats(sw_pool *pool, sw_pool_stats *out);

/* --- inline ----------------------------------------------------------------------------------- */

/* The beginning of a sw_pool, read and written by inline code; part of the binary interface. */
typedef struct sw_pool_front {
    uint64_t mark;
    void *newest; /* the item put last, returned next; NULL: call the library */
    /* Bytes of an item; 0: the pool is FIFO, locked, aged or watched, or clears its items. */
    uint64_t plain_bytes;
    uint64_t puts;
} sw_pool_front;

/* The library with this layout defines this symbol; code compiled for another layout fails to link
 * or load. */
SW_API extern const uint32_t sw_pool_abi_1;
__attribute__((used)) static const uint32_t *const sw_pool_abi_needed = &sw_pool_abi_1;

/* As sw_pool_get and sw_pool_put, for a valid pool. In a plain pool the item put last is stored and
 * returned inline. */
static inline __attribute__((always_inline)) void *sw_pool_fast_get(sw_pool *pool) {
    sw_pool_front *front = (sw_pool_front *)(void *)pool;
    void *item = front->newest;
    if (__builtin_expect(item == NULL, 0)) return sw_pool_get(pool);
    front->newest = NULL;
    return item;
}
static inline __attribute__((always_inline)) sw_status sw_pool_fast_put(sw_pool *pool, void *item,
                                                                        size_t bytes) {
    sw_pool_front *front = (sw_pool_front *)(void *)pool;
    if (__builtin_expect(
            front->newest != NULL || item == NULL || bytes == 0 || bytes != front->plain_bytes, 0))
        return sw_pool_put(pool, item, bytes);
    front->newest = item;
    front->puts++;
    return SW_OK;
}

#ifdef __cplusplus
}
#endif
#endif

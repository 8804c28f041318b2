/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: items of one size that are used again instead of being freed.
 *
 *   sw_pool_options options;
 *   sw_pool_options_init(&options);
 *   options.item_bytes = sizeof(struct connection);
 *   sw_pool_create(&options, &pool);
 *   struct connection *c = sw_pool_get(pool);
 *   sw_pool_put(pool, c, sizeof *c);
 *
 * Idle items lie in an array of the pool, so nothing is written into them but zeroes, where those
 * are asked for. Items are objects of a heap: one that is not put back is freed there, with
 * sw_heap_free. With the option `aged` an item that was not used between two calls of sw_pool_age
 * is freed, as the Go runtime's sync.Pool drops what two collections have found idle.
 *
 * Thread rule: one thread at a time; with the option `locked` every thread may call. While others
 * call, figures may count a call that is under way, or not.
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
    SW_POOL_LIFO = 0, /* the one that was put last: the processor's caches still have it */
    SW_POOL_FIFO,     /* the one that was put first */
    SW_POOL_ORDER_COUNT
} sw_pool_order;

/* The most items that a pool may keep. */
#define SW_POOL_CAPACITY_MAX (UINT64_C(1) << 32)

typedef struct sw_pool_options {
    uint32_t struct_bytes; /* sizeof(sw_pool_options), for later versions */
    uint32_t order;        /* sw_pool_order; of an aged pool LIFO */
    uint64_t item_bytes;   /* 1 .. PTRDIFF_MAX */
    uint64_t
        capacity;  /* idle items that are kept, 1 .. SW_POOL_CAPACITY_MAX; further ones are freed */
    sw_heap *heap; /* NULL: the default heap */
    uint32_t zero; /* 1: items are cleared when they are put, and zeroed when new */
    uint32_t locked; /* 1: every thread may call, under a lock */
    uint32_t aged;   /* 1: two generations; see sw_pool_age */
    uint32_t pad;
} sw_pool_options;

/* LIFO, items of 64 bytes, capacity 1024, default heap, neither cleared, locked nor aged. */
SW_API void sw_pool_options_init(sw_pool_options *options);

/* An empty pool. Errors: SW_INVALID for options outside their limits, SW_UNSUPPORTED (aged and
 * FIFO), SW_NOMEM. */
SW_API sw_status sw_pool_create(const sw_pool_options *options, sw_pool **out);
/* Frees the idle items and the pool. NULL is ignored. */
SW_API void sw_pool_destroy(sw_pool *pool);

/* --- features: asked for right after sw_pool_create, before another thread knows the pool --- */

/* Makes a new item ready: 1, or 0 if it cannot; then the item is freed, and sw_pool_get returns
 * NULL with the errno that the constructor has left (ECANCELED if it set none). No lock is held
 * meanwhile. */
typedef int sw_pool_construct_fn(void *item, void *context);
/* Calls construct(item, context) for each new item, and for none that is used again, as New of Go's
 * sync.Pool. NULL: nothing is called. Errors: SW_UNSUPPORTED, the pool clears its items; SW_STATE,
 * it was used before. */
SW_API sw_status sw_pool_set_constructor(sw_pool *pool, sw_pool_construct_fn *construct,
                                         void *context);

/* Finds items that are put although they are idle: misuse DOUBLE_PUT. If an item is no object of
 * the heap any more, the heap reports what misuse that is. Costs a hash table of 16 to 32 bytes for
 * each item of the capacity, and a look into it for each call.
 * Errors: SW_UNSUPPORTED, the pool has thread slots; SW_STATE, it was used before; SW_NOMEM. */
SW_API sw_status sw_pool_watch_puts(sw_pool *pool);

/* Gives each thread a place of its own for one idle item, its thread slot, which it uses without the
 * lock, as the private item of Go's sync.Pool. There are 64, found by a hash of the thread; their
 * items are beside the capacity, and age with the others. A new item is made only when no thread's
 * thread slot has one.
 * Errors: SW_UNSUPPORTED unless the pool is locked, LIFO and not watched; SW_STATE, it was used
 * before; SW_NOMEM. */
SW_API sw_status sw_pool_add_thread_slots(sw_pool *pool);

/* --- items ------------------------------------------------------------------------------------ */

/* An idle item, else a new one. NULL: no memory (errno ENOMEM), or the constructor has refused. */
SW_API void *sw_pool_get(sw_pool *pool);
/* Takes an item that sw_pool_get gave. bytes: the size that the caller takes it to have; if that is
 * not the pool's, the call returns SW_INVALID and the item stays the caller's. NULL is SW_INVALID.
 * Only sw_pool_watch_puts finds an item that is put twice. */
SW_API sw_status sw_pool_put(sw_pool *pool, void *item, size_t bytes);

/* Frees the items that have been idle since the last call, and begins a new generation: what is
 * idle now is freed by the next call, unless it is used before. Errors: SW_UNSUPPORTED, the pool is
 * not aged. */
SW_API sw_status sw_pool_age(sw_pool *pool);
/* From now on the pool ages by itself once for each cycle of the collector that begins, in the
 * first call of sw_pool_get, _put or _get_stats after that, as Go's sync.Pool does at each
 * collection. Call it before another thread knows the pool. After the end of the collector, or with
 * gc NULL, only sw_pool_age ages the pool. Errors: SW_UNSUPPORTED, the pool is not aged. */
SW_API sw_status sw_pool_age_with(sw_pool *pool, sw_gc *gc);

typedef struct sw_pool_stats {
    uint64_t idle;    /* items */
    uint64_t gets;    /* calls of get that gave an item */
    uint64_t fresh;   /* of these, new ones */
    uint64_t puts;    /* items that were put back */
    uint64_t dropped; /* of these, freed at once because the pool was full */
    uint64_t aged;    /* freed by sw_pool_age */
} sw_pool_stats;

SW_API sw_status sw_pool_get_stats(sw_pool *pool, sw_pool_stats *out);

/* --- inline ----------------------------------------------------------------------------------- */

/* The beginning of a sw_pool, which inline code reads and writes; part of the binary interface. */
typedef struct sw_pool_front {
    uint64_t mark;
    void *newest; /* the item that was put last and is taken next; NULL: the library is asked */
    /* Bytes of an item; 0: the pool is FIFO, locked, aged or watched, or clears its items. */
    uint64_t plain_bytes;
    uint64_t puts;
} sw_pool_front;

/* A library whose pools begin in another way lacks this symbol, so that code which was compiled
 * with this header fails to link or to load. */
SW_API extern const uint32_t sw_pool_abi_1;
__attribute__((used)) static const uint32_t *const sw_pool_abi_needed = &sw_pool_abi_1;

/* As sw_pool_get and sw_pool_put, for a pool that lives. In a plain pool a few instructions in line
 * keep and take the item that was put last. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of items of one size (spanwise/pool.h, pool.h). */
#include "pool/pool.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/attributes.h"
#include "base/fail.h"
#include "ds/handle.h"

_Static_assert(offsetof(sw_pool, front) == 0, "inline code finds the front at the handle");
#define MARK offsetof(sw_pool, front.mark)

/* --- life ------------------------------------------------------------------------------------- */

void sw_pool_options_init(sw_pool_options *options) {
    *options =
        (sw_pool_options){.struct_bytes = sizeof *options, .item_bytes = 64, .capacity = 1024};
}

static sw_status check_options(const sw_pool_options *options) {
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, "pool_create",
                       "options of %u bytes: fill them with sw_pool_options_init first",
                       options->struct_bytes);
    if (options->order >= SW_POOL_ORDER_COUNT)
        return sw_fail(SW_INVALID, "pool_create", "order %u: use one of sw_pool_order",
                       options->order);
    if (options->item_bytes == 0 || options->item_bytes > PTRDIFF_MAX)
        return sw_fail(SW_INVALID, "pool_create", "items of %llu bytes: use 1 to PTRDIFF_MAX",
                       (unsigned long long)options->item_bytes);
    if (options->capacity == 0 || options->capacity > SW_POOL_CAPACITY_MAX)
        return sw_fail(SW_INVALID, "pool_create", "a capacity of %llu items: use 1 to 2^32",
                       (unsigned long long)options->capacity);
    if (options->aged != 0 && options->order != SW_POOL_LIFO)
        return sw_fail(SW_UNSUPPORTED, "pool_create",
                       "an aged pool is LIFO: the oldest items are those that it frees");
    return SW_OK;
}

sw_status sw_pool_create(const sw_pool_options *options, sw_pool **out) {
    if (options == NULL)
        return sw_fail(SW_INVALID, "pool_create", "options are NULL: they tell the item's size");
    sw_status status = check_options(options);
    if (status != SW_OK) return status;
    sw_pool *pool = sw_os_map(sizeof *pool);
    void **items = pool == NULL ? NULL : sw_os_map(options->capacity * sizeof(void *));
    if (items == NULL) {
        if (pool != NULL) (void)sw_os_release(pool, sizeof *pool);
        return sw_fail(SW_NOMEM, "pool_create", "no memory for a pool of %llu items",
                       (unsigned long long)options->capacity);
    }
    pool->items = items;
    pool->capacity = options->capacity;
    pool->item_bytes = options->item_bytes;
    pool->order = options->order;
    pool->zero = options->zero != 0;
    pool->locked = options->locked != 0;
    pool->aged = options->aged != 0;
    pool->heap = options->heap;
    bool plain = pool->order == SW_POOL_LIFO && !pool->zero && !pool->locked && !pool->aged;
    pool->front.plain_bytes = plain ? options->item_bytes : 0;
    if (pool->locked != 0) sw_fork_lock_add(&pool->fork, &pool->lock, SW_FORK_POOL);
    sw_handle_begin(&pool->front.mark, SW_HANDLE_POOL);
    *out = pool;
    return SW_OK;
}

static void free_item(const sw_pool *pool, void *item) {
    sw_heap_free(pool->heap != NULL ? pool->heap : sw_heap_default(), item);
}

/* NULL, with errno: no memory, or the constructor has refused. No lock is held. */
static void *new_item(const sw_pool *pool) {
    sw_heap *heap = pool->heap != NULL ? pool->heap : sw_heap_default();
    if (heap == NULL) errno = ENOMEM;
    void *item =
        heap == NULL ? NULL : sw_heap_alloc(heap, pool->item_bytes, pool->zero != 0 ? SW_ZERO : 0);
    if (item == NULL || pool->construct == NULL) return item;
    errno = ECANCELED;
    if (pool->construct(item, pool->context) != 0) return item;
    int why = errno;
    free_item(pool, item);
    errno = why;
    return NULL;
}

/* The next item of the array. There is one. */
static void *take(sw_pool *pool) {
    uint64_t at = pool->first;
    pool->count--;
    if (sw_likely(pool->order == SW_POOL_LIFO)) {
        if (sw_unlikely(pool->victims > pool->count)) pool->victims = pool->count;
        at = pool->count;
    } else {
        pool->first = pool->first + 1 == pool->capacity ? 0 : pool->first + 1;
    }
    void *item = pool->items[at];
    if (sw_unlikely(pool->idle.slots != NULL)) sw_address_set_remove(&pool->idle, item);
    return item;
}

void sw_pool_destroy(sw_pool *pool) {
    if (pool == NULL || !sw_handle_check(pool, MARK, SW_HANDLE_POOL, "pool_destroy")) return;
    if (!sw_handle_try_end(&pool->front.mark, SW_HANDLE_POOL)) return;
    sw_fork_lock_remove(&pool->fork);
    if (pool->front.newest != NULL) free_item(pool, pool->front.newest);
    pool->front.newest = NULL; /* inline code asks the library, which names the misuse */
    pool->front.plain_bytes = 0;
    while (pool->count > 0) free_item(pool, take(pool));
    sw_address_set_end(&pool->idle);
    if (pool->primaries != NULL) {
        for (void *item; (item = sw_primaries_take(pool->primaries)) != NULL;)
            free_item(pool, item);
        (void)sw_os_release(pool->primaries, SW_PRIMARIES * sizeof *pool->primaries);
    }
    (void)sw_os_release(pool->items, pool->capacity * sizeof(void *));
    sw_handle_retire(pool, sizeof *pool, sizeof pool->front.mark, SW_HANDLE_POOL);
}

/* --- features ---------------------------------------------------------------------------------- */

/* SW_STATE unless nothing was asked of the pool yet. */
static sw_status check_unused(const sw_pool *pool, const char *op) {
    if (pool->fresh + pool->front.puts == 0) return SW_OK;
    return sw_fail(SW_STATE, op, "the pool was used before: call it right after sw_pool_create");
}

sw_status sw_pool_set_constructor(sw_pool *pool, sw_pool_construct_fn *construct, void *context) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_set_constructor");
    if (status == SW_OK) status = check_unused(pool, "pool_set_constructor");
    if (status != SW_OK) return status;
    if (pool->zero != 0)
        return sw_fail(SW_UNSUPPORTED, "pool_set_constructor",
                       "the pool clears its items: nothing of what is constructed would stay");
    pool->construct = construct;
    pool->context = context;
    return SW_OK;
}

sw_status sw_pool_watch_puts(sw_pool *pool) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_watch_puts");
    if (status == SW_OK) status = check_unused(pool, "pool_watch_puts");
    if (status != SW_OK) return status;
    if (pool->primaries != NULL)
        return sw_fail(SW_UNSUPPORTED, "pool_watch_puts",
                       "the pool has primaries, which no put locks");
    if (pool->idle.slots == NULL && !sw_address_set_reserve(&pool->idle, pool->capacity))
        return sw_fail(SW_NOMEM, "pool_watch_puts", "no memory for %llu addresses",
                       (unsigned long long)pool->capacity);
    pool->front.plain_bytes = 0;
    return SW_OK;
}

sw_status sw_pool_add_primaries(sw_pool *pool) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_add_primaries");
    if (status == SW_OK) status = check_unused(pool, "pool_add_primaries");
    if (status != SW_OK) return status;
    if (pool->locked == 0 || pool->order != SW_POOL_LIFO || pool->idle.slots != NULL)
        return sw_fail(SW_UNSUPPORTED, "pool_add_primaries",
                       "primaries are for pools that are locked, LIFO and not watched");
    if (pool->primaries == NULL) pool->primaries = sw_os_map(SW_PRIMARIES * sizeof(sw_primary));
    if (pool->primaries == NULL)
        return sw_fail(SW_NOMEM, "pool_add_primaries", "no memory for %d primaries", SW_PRIMARIES);
    return SW_OK;
}

/* --- items ------------------------------------------------------------------------------------ */

static sw_always_inline void enter(sw_pool *pool) {
    if (sw_unlikely(pool->locked != 0)) sw_os_lock_acquire(&pool->lock);
}
static sw_always_inline void leave(sw_pool *pool) {
    if (sw_unlikely(pool->locked != 0)) sw_os_lock_release(&pool->lock);
}

/* What another thread has put, else a new item. The lock, if the pool has one, is held, and is released. */
static sw_noinline void *get_fresh(sw_pool *pool) {
    sw_check2(sw_pool_record_check(pool));
    void *item = pool->primaries == NULL ? NULL : sw_primaries_take(pool->primaries);
    leave(pool);
    if (item != NULL) return item;
    item = new_item(pool);
    if (item == NULL) return NULL;
    enter(pool);
    pool->fresh++;
    leave(pool);
    return item;
}

void *sw_pool_get(sw_pool *pool) {
    if (sw_unlikely(!sw_handle_check(pool, MARK, SW_HANDLE_POOL, "pool_get"))) {
        errno = EINVAL;
        return NULL;
    }
    void *item = NULL;
    if (pool->primaries != NULL) item = sw_primary_take(sw_primary_of_thread(pool->primaries));
    if (item != NULL) return item;
    enter(pool);
    item = pool->front.newest;
    if (item != NULL) {
        pool->front.newest = NULL;
    } else {
        if (sw_unlikely(pool->count == 0)) return get_fresh(pool);
        item = take(pool);
    }
    leave(pool);
    return item;
}

static sw_cold sw_status refuse_item(const sw_pool *pool, const void *item, size_t bytes) {
    if (item == NULL) return sw_fail(SW_INVALID, "pool_put", "the item is NULL");
    return sw_fail(SW_INVALID, "pool_put", "an item of %llu bytes in a pool of items of %llu",
                   (unsigned long long)bytes, (unsigned long long)pool->item_bytes);
}

/* In the array and in front of it; those of primaries are beside. */
static uint64_t idle_items(const sw_pool *pool) {
    return pool->count + (pool->front.newest != NULL);
}

/* False: the pool is full. */
static bool keep(sw_pool *pool, void *item) {
    if (idle_items(pool) == pool->capacity) return false;
    uint64_t at = pool->count;
    if (pool->front.plain_bytes != 0) {
        void *older = pool->front.newest;
        pool->front.newest = item;
        if (older == NULL) return true;
        item = older;
    } else if (pool->order == SW_POOL_FIFO) {
        at += pool->first;
        if (at >= pool->capacity) at -= pool->capacity;
    }
    pool->items[at] = item;
    pool->count++;
    return true;
}

/* Counts a put. False: the pool is full, and the item is to be freed. */
static sw_always_inline bool give(sw_pool *pool, void *item) {
    pool->front.puts++;
    bool is_kept = keep(pool, item);
    if (sw_unlikely(!is_kept)) pool->dropped++;
    return is_kept;
}

/* Of a watched pool: an item that is idle already, or that is no object of the heap any more, is misuse. */
static sw_noinline sw_status put_watched(sw_pool *pool, void *item) {
    sw_heap *heap = pool->heap != NULL ? pool->heap : sw_heap_default();
    if (sw_heap_usable_size(heap, item) < pool->item_bytes) {
        return sw_fail(SW_INVALID, "pool_put", "%p is no object of %llu bytes of the pool's heap",
                       item, (unsigned long long)pool->item_bytes);
    }
    enter(pool);
    bool is_idle = !sw_address_set_insert(&pool->idle, item), is_kept = false;
    if (!is_idle) {
        if (pool->zero != 0) memset(item, 0, pool->item_bytes);
        is_kept = give(pool, item);
        if (!is_kept) sw_address_set_remove(&pool->idle, item);
    }
    leave(pool);
    if (is_idle) {
        sw_misuse_report(&(sw_fault){.code = SW_MISUSE_DOUBLE_PUT,
                                     .op = "pool_put",
                                     .ptr = item,
                                     .size = pool->item_bytes,
                                     .heap_id = heap == NULL ? 0 : sw_heap_id(heap),
                                     .thread = sw_os_thread_id()});
        return SW_INVALID;
    }
    if (!is_kept) free_item(pool, item);
    return SW_OK;
}

sw_status sw_pool_put(sw_pool *pool, void *item, size_t bytes) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_put");
    if (sw_unlikely(status != SW_OK)) return status;
    if (sw_unlikely(item == NULL || bytes != pool->item_bytes))
        return refuse_item(pool, item, bytes);
    if (pool->zero != 0 && pool->idle.slots == NULL) memset(item, 0, bytes);
    if (pool->primaries != NULL && sw_primary_put(sw_primary_of_thread(pool->primaries), item))
        return SW_OK;
    if (sw_unlikely(pool->idle.slots != NULL)) return put_watched(pool, item);
    enter(pool);
    bool is_kept = give(pool, item);
    leave(pool);
    if (sw_unlikely(!is_kept)) free_item(pool, item);
    return SW_OK;
}

/* Puts what threads have in their primaries into the array: it ages with the others. */
static void collect_primaries(sw_pool *pool) {
    for (uint32_t i = 0; i < SW_PRIMARIES; i++) {
        void *item = sw_primary_take(&pool->primaries[i]);
        if (item == NULL || keep(pool, item)) continue;
        pool->old++;
        free_item(pool, item);
    }
}

sw_status sw_pool_age(sw_pool *pool) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_age");
    if (status != SW_OK) return status;
    if (pool->aged == 0)
        return sw_fail(SW_UNSUPPORTED, "pool_age", "the pool has one generation: make it aged");
    enter(pool);
    sw_check2(sw_pool_record_check(pool));
    for (uint64_t i = 0; i < pool->victims; i++) {
        sw_address_set_remove(&pool->idle, pool->items[i]);
        free_item(pool, pool->items[i]);
    }
    pool->count -= pool->victims;
    pool->old += pool->victims;
    memmove(pool->items, pool->items + pool->victims, pool->count * sizeof(void *));
    if (pool->primaries != NULL) collect_primaries(pool);
    pool->victims = pool->count;
    leave(pool);
    return SW_OK;
}

static uint64_t puts_of(const sw_pool *pool) {
    uint64_t beside = pool->primaries == NULL ? 0 : sw_primaries_puts(pool->primaries);
    return pool->front.puts + beside;
}

sw_status sw_pool_get_stats(sw_pool *pool, sw_pool_stats *out) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_stats");
    if (status != SW_OK) return status;
    enter(pool);
    uint64_t idle = idle_items(pool), puts = puts_of(pool);
    if (pool->primaries != NULL) idle += sw_primaries_idle(pool->primaries);
    uint64_t gone = pool->dropped + pool->old + idle;
    *out = (sw_pool_stats){.idle = idle,
                           .gets = pool->fresh + (puts > gone ? puts - gone : 0),
                           .fresh = pool->fresh,
                           .puts = puts,
                           .dropped = pool->dropped,
                           .aged = pool->old};
    leave(pool);
    return SW_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_pool_record_check(const sw_pool *pool) {
    const char *broken = SW_RULE(idle_items(pool) <= pool->capacity);
    broken = broken ? broken : SW_RULE(pool->victims <= pool->count);
    broken = broken ? broken : SW_RULE(pool->order == SW_POOL_LIFO || pool->victims == 0);
    broken = broken ? broken
                    : SW_RULE(pool->front.plain_bytes == pool->item_bytes ||
                              (pool->front.plain_bytes == 0 && pool->front.newest == NULL));
    broken = broken ? broken : SW_RULE(pool->order == SW_POOL_FIFO || pool->first == 0);
    broken = broken ? broken : SW_RULE(pool->first < pool->capacity);
    broken = broken ? broken : SW_RULE(pool->primaries == NULL || pool->locked != 0);
    broken = broken ? broken : SW_RULE(pool->primaries == NULL || pool->idle.slots == NULL);
    broken = broken ? broken : SW_RULE(pool->idle.slots == NULL || pool->idle.count == pool->count);
    broken = broken ? broken : sw_address_set_check(&pool->idle);
    uint64_t gone = pool->dropped + pool->old;
    return broken ? broken : SW_RULE(idle_items(pool) + gone <= puts_of(pool));
}

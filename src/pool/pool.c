/* SPDX-License-Identifier: Apache-2.0 */
/* Creation, destruction and optional features of pools (spanwise/pool.h, pool.h). */
#include "pool/pool.h"

#include "base/base.h"
#include "ds/handle.h"
#include "gc/type.h"

_Static_assert(offsetof(sw_pool, front) == 0, "inline code finds the front at the handle");
#define MARK offsetof(sw_pool, front.mark)

/* --- life ------------------------------------------------------------------------------------- */

void sw_pool_options_init(sw_pool_options *options) {
    if (options == NULL) return;
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
    if (out == NULL) return sw_fail_null("pool_create", "out");
    if (options == NULL)
        return sw_fail(SW_INVALID, "pool_create", "options are NULL: they give the item's size");
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

void sw_pool_destroy(sw_pool *pool) {
    if (pool == NULL || !sw_handle_check(pool, MARK, SW_HANDLE_POOL, "pool_destroy")) return;
    if (!sw_handle_try_end(&pool->front.mark, SW_HANDLE_POOL)) return;
    sw_fork_lock_remove(&pool->fork);
    sw_gc_remove_source(&pool->source);
    sw_pool_empty(pool); /* inline code now calls the library, which reports the ended handle */
    pool->front.plain_bytes = 0;
    sw_address_set_end(&pool->idle);
    if (pool->thread_slots != NULL)
        (void)sw_os_release(pool->thread_slots, SW_THREAD_SLOTS * sizeof *pool->thread_slots);
    (void)sw_os_release(pool->items, pool->capacity * sizeof(void *));
    sw_handle_retire(pool, sizeof *pool, sizeof pool->front.mark, SW_HANDLE_POOL);
}

/* --- features --------------------------------------------------------------------------------- */

/* Returns SW_STATE if the pool has been used. */
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
                       "the pool clears its items, and would undo the constructor");
    pool->construct = construct;
    pool->context = context;
    return SW_OK;
}

sw_status sw_pool_watch_puts(sw_pool *pool) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_watch_puts");
    if (status == SW_OK) status = check_unused(pool, "pool_watch_puts");
    if (status != SW_OK) return status;
    if (pool->thread_slots != NULL)
        return sw_fail(SW_UNSUPPORTED, "pool_watch_puts",
                       "the pool has thread slots, which are used without its lock");
    if (pool->idle.slots == NULL && !sw_address_set_reserve(&pool->idle, pool->capacity))
        return sw_fail(SW_NOMEM, "pool_watch_puts", "no memory for %llu addresses",
                       (unsigned long long)pool->capacity);
    pool->front.plain_bytes = 0;
    return SW_OK;
}

sw_status sw_pool_add_thread_slots(sw_pool *pool) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_add_thread_slots");
    if (status == SW_OK) status = check_unused(pool, "pool_add_thread_slots");
    if (status != SW_OK) return status;
    if (pool->locked == 0 || pool->order != SW_POOL_LIFO || pool->idle.slots != NULL)
        return sw_fail(SW_UNSUPPORTED, "pool_add_thread_slots",
                       "thread slots are for locked LIFO pools that do not watch puts");
    if (pool->thread_slots == NULL)
        pool->thread_slots = sw_os_map(SW_THREAD_SLOTS * sizeof(sw_thread_slot));
    if (pool->thread_slots == NULL)
        return sw_fail(SW_NOMEM, "pool_add_thread_slots", "no memory for %d thread slots",
                       SW_THREAD_SLOTS);
    return SW_OK;
}

/* Called when a cycle begins in a stopped world: stores only its number, which the pool's next call
 * reads. */
static bool note_cycle(sw_gc_source *source, sw_gc_array *ranges) {
    sw_pool *pool = (sw_pool *)(void *)((char *)source - offsetof(sw_pool, source));
    (void)ranges; /* it has no roots */
    __atomic_store_n(&pool->cycle, source->gc->cycle.number, __ATOMIC_RELEASE);
    return true;
}

sw_status sw_pool_age_with(sw_pool *pool, sw_gc *gc) {
    const char *op = "pool_age_with";
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, op);
    if (status == SW_OK && gc != NULL) status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (pool->aged == 0)
        return sw_fail(SW_UNSUPPORTED, op, "the pool has one generation: make it aged");
    sw_gc_remove_source(&pool->source);
    if (gc == NULL) return SW_OK;
    sw_os_lock_acquire(&gc->lock);
    uint64_t now = gc->cycle.number; /* earlier cycles do not count */
    sw_os_lock_release(&gc->lock);
    __atomic_store_n(&pool->cycle, now, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->aged_cycle, now, __ATOMIC_RELAXED);
    pool->source.lend = note_cycle;
    sw_gc_add_source(gc, &pool->source);
    return SW_OK;
}

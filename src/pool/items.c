/* SPDX-License-Identifier: Apache-2.0 */
/* Gets, puts and ages items of pools (spanwise/pool.h, pool.h). */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/base.h"
#include "ds/handle.h"
#include "heap/target.h"
#include "os/os.h"
#include "pool/pool.h"

/* --- thread slots ----------------------------------------------------------------------------- */

_Static_assert(sizeof(sw_thread_slot) == 64, "two threads' places share no line of the cache");

sw_thread_slot *sw_thread_slot_of_thread(sw_thread_slot *thread_slots) {
    return &thread_slots[((uintptr_t)sw_os_here() * UINT64_C(0x9E3779B97F4A7C15)) >> 58];
}

/* Takes the item. NULL: none. */
static void *sw_thread_slot_take(sw_thread_slot *thread_slot) {
    if (__atomic_load_n(&thread_slot->item, __ATOMIC_RELAXED) == NULL) return NULL;
    return __atomic_exchange_n(&thread_slot->item, NULL, __ATOMIC_ACQUIRE);
}

/* Puts an item. False: there is one already, and nothing was counted. The put is counted before
 * the item is visible, so that statistics never show an item that was not put. */
static bool sw_thread_slot_put(sw_thread_slot *thread_slot, void *item) {
    if (__atomic_load_n(&thread_slot->item, __ATOMIC_RELAXED) != NULL) return false;
    (void)__atomic_add_fetch(&thread_slot->puts, 1, __ATOMIC_RELAXED);
    void *none = NULL;
    if (__atomic_compare_exchange_n(&thread_slot->item, &none, item, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
        return true;
    (void)__atomic_sub_fetch(&thread_slot->puts, 1, __ATOMIC_RELAXED);
    return false;
}

/* Takes an item of any thread slot. NULL: none. */
static void *sw_thread_slots_take(sw_thread_slot *thread_slots) {
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++) {
        void *item = sw_thread_slot_take(&thread_slots[i]);
        if (item != NULL) return item;
    }
    return NULL;
}

static uint64_t sw_thread_slots_idle(const sw_thread_slot *thread_slots) {
    uint64_t idle = 0;
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++)
        idle += __atomic_load_n(&thread_slots[i].item, __ATOMIC_RELAXED) != NULL;
    return idle;
}

static uint64_t sw_thread_slots_puts(const sw_thread_slot *thread_slots) {
    uint64_t puts = 0;
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++)
        puts += __atomic_load_n(&thread_slots[i].puts, __ATOMIC_RELAXED);
    return puts;
}

/* --- items ------------------------------------------------------------------------------------ */

#define MARK offsetof(sw_pool, front.mark)

/* --- the array -------------------------------------------------------------------------------- */

static void free_item(const sw_pool *pool, void *item) {
    sw_heap_free(pool->heap != NULL ? pool->heap : sw_heap_default(), item);
}

/* Allocates an item; no lock is held. NULL, with errno: no memory, or the constructor has
 * refused. */
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

/* Takes the next item of the nonempty array. */
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

static sw_always_inline void enter(sw_pool *pool) {
    if (sw_unlikely(pool->locked != 0)) sw_os_lock_acquire(&pool->lock);
}
static sw_always_inline void leave(sw_pool *pool) {
    if (sw_unlikely(pool->locked != 0)) sw_os_lock_release(&pool->lock);
}

/* --- generations ------------------------------------------------------------------------------ */

/* Returns the number of idle items in the array and in front.newest, without those of thread
 * slots. */
static uint64_t idle_items(const sw_pool *pool) {
    return pool->count + (pool->front.newest != NULL);
}

/* Keeps an idle item. False: the pool is full. */
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

/* Moves the items of all thread slots to the array, where they age with the others. */
static void collect_thread_slots(sw_pool *pool) {
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++) {
        void *item = sw_thread_slot_take(&pool->thread_slots[i]);
        if (item == NULL || keep(pool, item)) continue;
        pool->old++;
        free_item(pool, item);
    }
}

/* Ages the pool once. The caller holds the lock or, of a pool without one, may call it. */
static void age(sw_pool *pool) {
    sw_check2(sw_pool_record_check(pool));
    for (uint64_t i = 0; i < pool->victims; i++) {
        sw_address_set_remove(&pool->idle, pool->items[i]);
        free_item(pool, pool->items[i]);
    }
    pool->count -= pool->victims;
    pool->old += pool->victims;
    memmove(pool->items, pool->items + pool->victims, pool->count * sizeof(void *));
    if (pool->thread_slots != NULL) collect_thread_slots(pool);
    pool->victims = pool->count;
}

sw_status sw_pool_age(sw_pool *pool) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_age");
    if (status != SW_OK) return status;
    if (pool->aged == 0)
        return sw_fail(SW_UNSUPPORTED, "pool_age", "the pool has one generation: make it aged");
    enter(pool);
    age(pool);
    leave(pool);
    return SW_OK;
}

/* Ages once per cycle of its collector since the last time, but at most twice: two agings free
 * everything that was idle before. */
static sw_cold void age_due(sw_pool *pool) {
    enter(pool);
    uint64_t cycle = __atomic_load_n(&pool->cycle, __ATOMIC_ACQUIRE);
    uint64_t passed = cycle - pool->aged_cycle;
    for (uint64_t i = 0; i < passed && i < 2; i++) age(pool);
    __atomic_store_n(&pool->aged_cycle, cycle, __ATOMIC_RELAXED);
    leave(pool);
}

static sw_always_inline void look_at_cycles(sw_pool *pool) {
    uint64_t cycle = __atomic_load_n(&pool->cycle, __ATOMIC_RELAXED);
    if (sw_unlikely(cycle != __atomic_load_n(&pool->aged_cycle, __ATOMIC_RELAXED))) age_due(pool);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Returns an item of another thread's slot, else a new one. It is called with the lock, if the pool
 * has one, and releases it. */
static sw_noinline void *get_fresh(sw_pool *pool) {
    sw_check2(sw_pool_record_check(pool));
    void *item = pool->thread_slots == NULL ? NULL : sw_thread_slots_take(pool->thread_slots);
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
    look_at_cycles(pool);
    void *item = NULL;
    if (pool->thread_slots != NULL)
        item = sw_thread_slot_take(sw_thread_slot_of_thread(pool->thread_slots));
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

/* Counts a put. False: the pool is full, and the item is to be freed. */
static sw_always_inline bool give(sw_pool *pool, void *item) {
    pool->front.puts++;
    bool is_kept = keep(pool, item);
    if (sw_unlikely(!is_kept)) pool->dropped++;
    return is_kept;
}

/* Puts an item into a pool that watches puts: an item that is idle already, or no longer an object
 * of the heap, is misuse. */
static sw_noinline sw_status put_watched(sw_pool *pool, void *item) {
    sw_heap *heap = pool->heap != NULL ? pool->heap : sw_heap_default();
    if (sw_target_usable(heap, item, "pool_put") < pool->item_bytes) {
        return sw_fail(SW_INVALID, "pool_put", "%p is not an object of %llu bytes in the heap",
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
    look_at_cycles(pool);
    if (pool->zero != 0 && pool->idle.slots == NULL) memset(item, 0, bytes);
    if (pool->thread_slots != NULL &&
        sw_thread_slot_put(sw_thread_slot_of_thread(pool->thread_slots), item))
        return SW_OK;
    if (sw_unlikely(pool->idle.slots != NULL)) return put_watched(pool, item);
    enter(pool);
    bool is_kept = give(pool, item);
    leave(pool);
    if (sw_unlikely(!is_kept)) free_item(pool, item);
    return SW_OK;
}

static uint64_t puts_of(const sw_pool *pool) {
    uint64_t in_threads = pool->thread_slots == NULL ? 0 : sw_thread_slots_puts(pool->thread_slots);
    return pool->front.puts + in_threads;
}

sw_status sw_pool_get_stats(sw_pool *pool, sw_pool_stats *out) {
    sw_status status = sw_handle_status(pool, MARK, SW_HANDLE_POOL, "pool_stats");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("pool_stats", "out");
    look_at_cycles(pool);
    enter(pool);
    uint64_t idle = idle_items(pool), puts = puts_of(pool);
    if (pool->thread_slots != NULL) idle += sw_thread_slots_idle(pool->thread_slots);
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

void sw_pool_empty(sw_pool *pool) {
    if (pool->front.newest != NULL) free_item(pool, pool->front.newest);
    pool->front.newest = NULL;
    while (pool->count > 0) free_item(pool, take(pool));
    if (pool->thread_slots == NULL) return;
    for (void *item; (item = sw_thread_slots_take(pool->thread_slots)) != NULL;)
        free_item(pool, item);
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_pool_record_check(const sw_pool *pool) {
    const char *broken = SW_RULE(idle_items(pool) <= pool->capacity)
               ?: SW_RULE(pool->victims <= pool->count)
               ?: SW_RULE(pool->order == SW_POOL_LIFO || pool->victims == 0)
               ?: SW_RULE(pool->front.plain_bytes == pool->item_bytes ||
                              (pool->front.plain_bytes == 0 && pool->front.newest == NULL))
               ?: SW_RULE(pool->order == SW_POOL_FIFO || pool->first == 0)
               ?: SW_RULE(pool->first < pool->capacity)
               ?: SW_RULE(pool->thread_slots == NULL || pool->locked != 0)
               ?: SW_RULE(pool->thread_slots == NULL || pool->idle.slots == NULL)
               ?: SW_RULE(pool->idle.slots == NULL || pool->idle.count == pool->count)
               ?: SW_RULE(pool->aged != 0 || (pool->cycle | pool->aged_cycle) == 0)
               ?: sw_address_set_check(&pool->idle);
    uint64_t gone = pool->dropped + pool->old;
    return broken ?: SW_RULE(idle_items(pool) + gone <= puts_of(pool));
}

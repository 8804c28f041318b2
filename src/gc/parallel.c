/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread has a mark stack. After each slice of work, if a thread waits and nothing is shared, a
 * thread shares the older half of its stack. Marks are set by an atomic OR, and only the thread that
 * set a mark scans the object. Marking ends when all threads wait. Helpers live as long as one
 * marking, so a fork finds none: it waits for the collector's lock. */
#include "gc/parallel.h"

#include <string.h>

#include "base/base.h"
#include "gc/mark_scan.h"
#include "os/os.h"

/* ALONE: objects that are scanned before helpers are started. */
enum { ALONE = 8192, SLICE = 1024, SHARED_MOST = 1024, NAP_NS = 200000 };

typedef struct helper {
    sw_gc_stack stack;
    sw_gc_marker marker;
    sw_os_thread thread;
    struct sw_gc_pool *pool;
} helper;

/* The lock protects the first fields.
 *   idle <= workers;  idle == workers only at the end of a marking, and then count == 0 */
struct sw_gc_pool {
    uint32_t workers; /* threads that mark */
    uint32_t idle;    /* atomic: of these, waiting for objects */
    uint32_t count;   /* atomic: of `shared` */
    uint32_t bell;    /* atomic: changes when waiting threads have to look again */
    sw_gc_grey shared[SHARED_MOST];
    sw_os_lock lock;
    sw_os_lock meeting; /* held to prepare a span */
    uint32_t helper_count;
    helper helpers[SW_GC_MARKERS_MAX - 1];
};

/* --- the pool --------------------------------------------------------------------------------- */

bool sw_gc_pool_set(sw_gc *gc, uint32_t threads) {
    if (threads > 1 && gc->pool == NULL) gc->pool = sw_os_map(sizeof *gc->pool);
    if (gc->pool == NULL) return threads == 1;
    for (uint32_t i = 0; i < threads - 1; i++) {
        helper *each = &gc->pool->helpers[i];
        each->pool = gc->pool;
        if (each->stack.base == NULL && !sw_gc_stack_start(&each->stack)) return false;
    }
    gc->pool->helper_count = threads - 1;
    return true;
}

void sw_gc_pool_end(sw_gc *gc) {
    if (gc->pool == NULL) return;
    for (uint32_t i = 0; i < SW_GC_MARKERS_MAX - 1; i++)
        sw_gc_stack_end(&gc->pool->helpers[i].stack);
    (void)sw_os_release(gc->pool, sizeof *gc->pool);
    gc->pool = NULL;
}

static void ring(sw_gc_pool *pool) {
    __atomic_store_n(&pool->bell, pool->bell + 1, __ATOMIC_RELAXED);
    sw_os_wake(&pool->bell);
}

static void set(uint32_t *field, uint32_t value) {
    __atomic_store_n(field, value, __ATOMIC_RELAXED);
}

/* Shares objects, if a thread waits for some. The oldest ones lead to most others in a tree. */
static void share(sw_gc_pool *pool, sw_gc_stack *stack) {
    size_t count = sw_min_u64((uint64_t)(stack->top - stack->base) / 2, SHARED_MOST);
    if (__atomic_load_n(&pool->idle, __ATOMIC_RELAXED) == 0 || count == 0) return;
    sw_os_lock_acquire(&pool->lock);
    if (pool->count == 0) {
        memcpy(pool->shared, stack->base, count * sizeof *stack->base);
        stack->top -= count;
        memcpy(stack->base, stack->top, count * sizeof *stack->base);
        set(&pool->count, (uint32_t)count);
        ring(pool);
    }
    sw_os_lock_release(&pool->lock);
}

/* Waits for shared objects, and takes its part of them. False: all threads wait. */
static bool take(sw_gc_pool *pool, sw_gc_stack *stack) {
    sw_os_lock_acquire(&pool->lock);
    set(&pool->idle, pool->idle + 1);
    while (pool->count == 0 && pool->idle < pool->workers) {
        uint32_t bell = pool->bell;
        sw_os_lock_release(&pool->lock);
        (void)sw_os_wait(&pool->bell, bell, NAP_NS);
        sw_os_lock_acquire(&pool->lock);
    }
    uint32_t count = (pool->count + pool->idle - 1) / pool->idle;
    if (count != 0) {
        set(&pool->count, pool->count - count);
        memcpy(stack->top, &pool->shared[pool->count], count * sizeof *stack->top);
        stack->top += count;
        set(&pool->idle, pool->idle - 1);
    } else {
        ring(pool);
    }
    sw_os_lock_release(&pool->lock);
    return count != 0;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void work(sw_gc_pool *pool, sw_gc_marker *marker) {
    do {
        marker->work = SLICE;
        while (!sw_gc_drain_objects(marker)) {
            share(pool, &marker->stack);
            marker->work = SLICE;
        }
    } while (take(pool, &marker->stack));
}

static void help(void *arg) {
    helper *own = arg;
    sw_gc_pointer found[SW_GC_FOUND] = {0};
    own->marker.found = found;
    work(own->pool, &own->marker);
    own->marker.found = NULL;
}

/* Starts the helpers; returns how many the system allows. */
static uint32_t start(sw_gc_pool *pool, const sw_gc_marker *marker) {
    for (uint32_t i = 0; i < pool->helper_count; i++) {
        helper *own = &pool->helpers[i];
        own->marker = *marker;
        own->marker.stack = own->stack;
        own->marker.refused = 0;
        sw_os_lock_acquire(&pool->lock);
        pool->workers++;
        sw_os_lock_release(&pool->lock);
        if (sw_os_thread_start(&own->thread, help, own)) continue;
        sw_os_lock_acquire(&pool->lock);
        pool->workers--;
        sw_os_lock_release(&pool->lock);
        return i;
    }
    return pool->helper_count;
}

static void finish(sw_gc_pool *pool, sw_gc_marker *marker, uint32_t helpers) {
    for (uint32_t i = 0; i < helpers; i++) {
        helper *own = &pool->helpers[i];
        sw_os_thread_join(&own->thread);
        marker->refused += own->marker.refused;
        own->stack = own->marker.stack;
        sw_gc_stack_clear(&own->stack);
        (void)sw_gc_stack_purge(&own->stack, true);
    }
}

void sw_gc_mark_parallel(sw_gc_marker *marker) {
    sw_gc_pool *pool = marker->gc->pool;
    int64_t work_left = marker->work;
    marker->work = ALONE;
    if (!sw_gc_drain_objects(marker)) {
        pool->workers = 1;
        pool->idle = pool->count = 0;
        marker->meeting = &pool->meeting;
        marker->is_shared = true;
        uint32_t helpers = start(pool, marker);
        work(pool, marker);
        finish(pool, marker, helpers);
        marker->meeting = NULL;
        marker->is_shared = false;
        marker->gc->cycle.markers = sw_max_u64(marker->gc->cycle.markers, helpers + 1);
    }
    marker->work = work_left;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and threads: thread slots, and pools with concurrent users. */
#include <stdbool.h>

#include "pool/pool.h"
#include "pool/thread_slot.h"
#include "pools.h"
#include "spawn.h"

/* A thread that gets what another one has put: first what threads share, then what the other one
 * keeps. Where the hash gives both threads one thread slot (one time in 64), the other way round.
 */
struct visit {
    sw_pool *pool;
    sw_thread_slot *thread_slot; /* the other thread's */
    void *kept, *shared;
};
static void *get_both_elsewhere(void *arg) {
    struct visit *visit = arg;
    bool together = sw_thread_slot_of_thread(visit->pool->thread_slots) == visit->thread_slot;
    CHECK(sw_pool_get(visit->pool) == (together ? visit->kept : visit->shared));
    CHECK(sw_pool_get(visit->pool) == (together ? visit->shared : visit->kept));
    return visit;
}
static void *put_elsewhere(void *pool) {
    void *item = sw_pool_get(pool);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    return item;
}

static void a_thread_slot_needs_no_lock(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 1, .locked = 1});
    CHECK_EQ(sw_pool_add_thread_slots(pool), SW_OK);
    CHECK_EQ(sw_pool_watch_puts(pool), SW_UNSUPPORTED);
    void *a = sw_pool_fast_get(pool), *b = sw_pool_get(pool), *c = sw_pool_get(pool);
    uint64_t turns = pool->lock.acquisitions;
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(sw_pool_fast_put(pool, a, POOL_BYTES), SW_OK);
        CHECK(sw_pool_fast_get(pool) == a);
    }
    CHECK_EQ(pool->lock.acquisitions, turns);
    CHECK_EQ(sw_pool_put(pool, a, POOL_BYTES), SW_OK); /* the thread_slot */
    CHECK_EQ(sw_pool_put(pool, b, POOL_BYTES), SW_OK); /* the array */
    CHECK_EQ(sw_pool_put(pool, c, POOL_BYTES), SW_OK); /* full */
    sw_pool_stats stats = stats_of(pool);
    CHECK(stats.idle == 2 && stats.puts == 8 && stats.dropped == 1 && stats.gets == 8);
    struct visit visit = {pool, sw_thread_slot_of_thread(pool->thread_slots), a, b};
    CHECK(in_thread(get_both_elsewhere, &visit) == &visit);
    CHECK_EQ(stats_of(pool).fresh, 3);
    sw_heap_free(heap, a);
    sw_heap_free(heap, b);
    void *own = in_thread(put_elsewhere, pool);
    CHECK_EQ(stats_of(pool).idle, 1); /* it outlives its thread */
    CHECK(sw_pool_get(pool) == own);
    CHECK_EQ(sw_pool_put(pool, own, POOL_BYTES), SW_OK);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

/* What a thread slot has is gone after two agings, unless it was used between them; a full array
 * lets it go at once. */
static void thread_slots_age(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 2, .locked = 1, .aged = 1});
    CHECK_EQ(sw_pool_add_thread_slots(pool), SW_OK);
    void *item = sw_pool_get(pool);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(stats_of(pool).idle == 1 && stats_of(pool).aged == 0);
    CHECK(sw_pool_get(pool) == item); /* the victim */
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(stats_of(pool).idle, 1);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(stats_of(pool).idle == 0 && stats_of(pool).aged == 1 && live_objects() == 0);
    void *three[3];
    for (int i = 0; i < 3; i++) three[i] = sw_pool_get(pool);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_pool_put(pool, three[i], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(stats_of(pool).idle == 2 && stats_of(pool).aged == 2 && live_objects() == 2);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

enum { THREADS = 4, TURNS = 5000 };

static void *take_fast(void *arg) {
    for (int i = 0; i < TURNS; i++) {
        uint64_t *item = sw_pool_fast_get(arg);
        if (item == NULL || item[0] != 0) return item; /* another thread has it, too */
        item[0] = 1;
        item[0] = 0;
        if (sw_pool_fast_put(arg, item, POOL_BYTES) != SW_OK) return item;
    }
    return NULL;
}

static void serves_threads_at_once(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 2, .zero = 1, .locked = 1});
    in_threads(THREADS, take_fast, pool, 0);
    CHECK_EQ(stats_of(pool).gets, THREADS * TURNS);
    CHECK_EQ(stats_of(pool).puts, THREADS * TURNS);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

static void refuses_what_does_not_fit(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 3});
    CHECK_EQ(sw_pool_add_thread_slots(pool), SW_UNSUPPORTED); /* not locked */
    sw_pool_destroy(pool);
    pool = make_pool((sw_pool_options){.capacity = 3, .locked = 1, .order = SW_POOL_FIFO});
    CHECK_EQ(sw_pool_add_thread_slots(pool), SW_UNSUPPORTED);
    void *item = sw_pool_get(pool);
    CHECK_EQ(sw_pool_watch_puts(pool), SW_STATE);
    CHECK_EQ(sw_pool_add_thread_slots(pool), SW_STATE);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    sw_pool_destroy(pool);
}

int main(void) {
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    a_thread_slot_needs_no_lock();
    thread_slots_age();
    serves_threads_at_once();
    refuses_what_does_not_fit();
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}

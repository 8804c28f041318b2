/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: order, capacity, zeroes, aging by hand and with a collector, constructors, detection of
 * double puts, refused arguments, thread slots, concurrent users. Forks: test_fork.c, damage:
 * test_memory_grades.c. */
#include <errno.h>
#include <stdbool.h>

#include "collector.h"
#include "faults.h"
#include "pool/pool.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

enum { POOL_BYTES = 48 };

static sw_heap *heap; /* of the test; its main makes it */

/* A pool of the options' order, capacity, zero, locked and aged. */
static sw_pool *make_pool(sw_pool_options asked) {
    return MADE(sw_pool, o.order = asked.order, o.capacity = asked.capacity,
                o.item_bytes = POOL_BYTES, o.zero = asked.zero, o.locked = asked.locked,
                o.aged = asked.aged, o.heap = heap);
}

static uint64_t live_objects(void) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.live_objects;
}

/* --- items ------------------------------------------------------------------------------------ */

/* Random calls, in line and not, against an array of at most three items: a stack, or a queue. */
static void walks_as_an_array(uint32_t order) {
    enum { CAPACITY = 3, OUT = 8, STEPS = 4000 };
    sw_pool *pool = make_pool((sw_pool_options){.order = order, .capacity = CAPACITY});
    void *array[CAPACITY], *out[OUT];
    uint64_t idle = 0, outside = 0, gets = 0, puts = 0, fresh = 0, dropped = 0, seed = 7;
    for (int step = 0; step < STEPS; step++) {
        bool put = outside == OUT || (outside > 0 && (check_random(&seed) & 1) != 0);
        if (put) {
            void *item = out[--outside];
            bool fast = (check_random(&seed) & 1) != 0;
            CHECK_EQ(fast ? sw_pool_fast_put(pool, item, POOL_BYTES)
                          : sw_pool_put(pool, item, POOL_BYTES),
                     SW_OK);
            if (idle < CAPACITY)
                array[idle++] = item;
            else
                dropped++;
            puts++;
        } else {
            bool fast = (check_random(&seed) & 1) != 0;
            void *item = fast ? sw_pool_fast_get(pool) : sw_pool_get(pool);
            if (idle == 0) {
                fresh++;
            } else {
                uint64_t next = order == SW_POOL_LIFO ? idle - 1 : 0;
                CHECK(item == array[next]);
                memmove(&array[next], &array[next + 1], (--idle - next) * sizeof *array);
            }
            out[outside++] = item;
            gets++;
        }
        sw_pool_stats stats = STATS(sw_pool, pool);
        CHECK(stats.idle == idle && stats.gets == gets && stats.puts == puts);
        CHECK(stats.fresh == fresh && stats.dropped == dropped);
    }
    CHECK_EQ(live_objects(), idle + outside);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), outside); /* items in use are their users' */
    while (outside > 0) sw_heap_free(heap, out[--outside]);
    sw_pool_destroy(NULL);
}

static void clears_items(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 4, .zero = 1});
    char *item = sw_pool_get(pool);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < POOL_BYTES; i++) CHECK_EQ(item[i], 0);
        memset(item, 1, POOL_BYTES);
        CHECK_EQ(sw_pool_fast_put(pool, item, POOL_BYTES), SW_OK);
        for (int i = 0; i < POOL_BYTES; i++)
            CHECK_EQ(item[i], 0); /* at once, not at the next get */
        CHECK(sw_pool_get(pool) == item);
    }
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

/* An item that two agings find idle is freed by the second; one that was used in between is not. */
static void ages(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 10, .aged = 1});
    void *items[3];
    for (int i = 0; i < 3; i++) items[i] = sw_pool_get(pool);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_pool_put(pool, items[i], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(STATS(sw_pool, pool).idle, 3);
    CHECK(sw_pool_get(pool) == items[2]); /* a victim, as there is no other */
    CHECK_EQ(sw_pool_put(pool, items[2], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(STATS(sw_pool, pool).idle, 1);
    CHECK_EQ(STATS(sw_pool, pool).aged, 2);
    CHECK_EQ(live_objects(), 1);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(live_objects(), 0);
    CHECK_EQ(sw_pool_age(pool), SW_OK); /* of an empty one */
    sw_pool_destroy(pool);
    pool = make_pool((sw_pool_options){.capacity = 10});
    CHECK_EQ(sw_pool_age(pool), SW_UNSUPPORTED);
    sw_pool_destroy(pool);
}

static void refuses_what_is_wrong(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 10, .zero = 1});
    char *item = sw_pool_get(pool);
    item[0] = 7;
    CHECK_EQ(sw_pool_put(pool, item, 47), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "an item of 47 bytes in a pool of items of 48");
    CHECK_EQ(item[0], 7); /* it is still the caller's */
    CHECK_EQ(sw_pool_put(pool, NULL, 48), SW_INVALID);
    CHECK_EQ(sw_pool_fast_put(pool, NULL, 48), SW_INVALID);
    CHECK_EQ(sw_pool_fast_put(pool, item, 47), SW_INVALID);
    CHECK_EQ(STATS(sw_pool, pool).puts, 0);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    sw_pool_destroy(pool);
    EXPECT_FAULT(STALE_HANDLE, pool, CHECK(sw_pool_get(pool) == NULL));
    EXPECT_FAULT(STALE_HANDLE, pool, CHECK(sw_pool_fast_get(pool) == NULL));
    EXPECT_FAULT(STALE_HANDLE, pool,
                 CHECK_EQ(sw_pool_fast_put(pool, item, POOL_BYTES), SW_INVALID));
    sw_pool *none = NULL;
    CHECK_EQ(sw_pool_create(NULL, &none), SW_INVALID);
    REFUSED(sw_pool, SW_INVALID, o.item_bytes = 0);
    REFUSED(sw_pool, SW_INVALID, o.item_bytes = SIZE_MAX);
    REFUSED(sw_pool, SW_INVALID, o.capacity = 0);
    REFUSED(sw_pool, SW_INVALID, o.capacity = SW_POOL_CAPACITY_MAX + 1);
    REFUSED(sw_pool, SW_INVALID, o.order = SW_POOL_ORDER_COUNT);
    REFUSED(sw_pool, SW_UNSUPPORTED, o.item_bytes = 8, o.order = SW_POOL_FIFO, o.aged = 1);
    REFUSED(sw_pool, SW_INVALID, o.struct_bytes = 8);
}

typedef struct maker {
    int calls;
    int refuse; /* the errno; 0: it serves */
    sw_pool *pool;
} maker;

static int construct(void *item, void *context) {
    maker *one = context;
    one->calls++;
    if (one->pool != NULL) { /* it may call the pool, as no lock is held */
        sw_pool_stats stats;
        CHECK_EQ(sw_pool_get_stats(one->pool, &stats), SW_OK);
    }
    if (one->refuse > 0) errno = one->refuse;
    if (one->refuse != 0) return 0;
    memset(item, 'c', POOL_BYTES);
    return 1;
}

static void constructs_new_items_only(void) {
    for (uint32_t locked = 0; locked < 2; locked++) {
        sw_pool *pool = make_pool((sw_pool_options){.capacity = 4, .locked = locked});
        maker one = {.pool = pool};
        CHECK_EQ(sw_pool_set_constructor(pool, construct, &one), SW_OK);
        char *item = sw_pool_get(pool);
        CHECK(one.calls == 1 && item[0] == 'c' && item[POOL_BYTES - 1] == 'c');
        item[0] = 'x';
        CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
        CHECK(sw_pool_get(pool) == item);
        CHECK(one.calls == 1 && item[0] == 'x'); /* used again as it was left */
        one.refuse = EBUSY;
        CHECK(sw_pool_get(pool) == NULL && errno == EBUSY);
        one.refuse = -1; /* says nothing of why */
        CHECK(sw_pool_get(pool) == NULL && errno == ECANCELED);
        CHECK_EQ(live_objects(), 1); /* what was refused is freed */
        CHECK_EQ(STATS(sw_pool, pool).fresh, 1);
        CHECK_EQ(sw_pool_set_constructor(pool, NULL, NULL), SW_STATE);
        CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
        sw_pool_destroy(pool);
    }
    sw_pool *clearing = make_pool((sw_pool_options){.capacity = 4, .zero = 1});
    CHECK_EQ(sw_pool_set_constructor(clearing, construct, NULL), SW_UNSUPPORTED);
    sw_pool_destroy(clearing);
    CHECK_EQ(live_objects(), 0);
}

static void names_a_double_put(sw_pool_options options) {
    options.capacity = 3;
    sw_pool *pool = make_pool(options);
    CHECK_EQ(sw_pool_watch_puts(pool), SW_OK);
    CHECK_EQ(sw_pool_watch_puts(pool), SW_OK); /* again is no error before the first use */
    char *items[4];
    for (int i = 0; i < 4; i++) items[i] = sw_pool_fast_get(pool);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(sw_pool_fast_put(pool, items[i], POOL_BYTES), SW_OK);
        for (int k = 0; k <= i; k++) {
            EXPECT_FAULT(DOUBLE_PUT, items[k],
                         CHECK_EQ(sw_pool_fast_put(pool, items[k], POOL_BYTES), SW_INVALID));
            CHECK_EQ(seen.size, POOL_BYTES);
            CHECK_STR(seen.op, "pool_put");
        }
        CHECK_EQ(STATS(sw_pool, pool).puts, (uint64_t)i + 1);
    }
    CHECK_EQ(sw_pool_put(pool, items[3], POOL_BYTES), SW_OK); /* full: freed */
    CHECK_EQ(STATS(sw_pool, pool).dropped, 1);
    EXPECT_FAULT(DOUBLE_FREE, items[3],
                 CHECK_EQ(sw_pool_put(pool, items[3], POOL_BYTES), SW_INVALID));
    char *again = sw_pool_get(pool);
    CHECK(again == items[options.order == SW_POOL_LIFO ? 2 : 0]);
    again[0] = 'u';
    CHECK_EQ(sw_pool_put(pool, again, POOL_BYTES), SW_OK);
    if (options.aged != 0) {
        CHECK_EQ(sw_pool_age(pool), SW_OK);
        CHECK_EQ(sw_pool_age(pool), SW_OK);
        EXPECT_FAULT(DOUBLE_FREE, again,
                     CHECK_EQ(sw_pool_put(pool, again, POOL_BYTES), SW_INVALID));
    }
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

static void watches_no_foreign_item_in(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 3});
    CHECK_EQ(sw_pool_watch_puts(pool), SW_OK);
    static uint64_t foreign[POOL_BYTES];
    EXPECT_FAULT(FOREIGN, foreign, CHECK_EQ(sw_pool_put(pool, foreign, POOL_BYTES), SW_INVALID));
    CHECK_STR(seen.op, "pool_put");
    char *small = sw_heap_alloc(heap, 8, 0);
    CHECK_EQ(sw_pool_put(pool, small, POOL_BYTES), SW_INVALID);
    CHECK_EQ(STATS(sw_pool, pool).puts, 0);
    sw_heap_free(heap, small);
    CHECK_EQ(sw_pool_add_thread_slots(pool), SW_UNSUPPORTED);
    sw_pool_destroy(pool);
}

/* The set of addresses against an array. They are drawn, so that some want the same slots. */
static void set_is_a_set(void) {
    enum { ITEMS = 64, STEPS = 20000 };
    sw_address_set idle = {0};
    const void *items[ITEMS];
    bool is_in[ITEMS] = {false};
    uint64_t count = 0, seed = 5;
    CHECK(sw_address_set_reserve(&idle, ITEMS));
    for (int i = 0; i < ITEMS; i++) items[i] = (const void *)(uintptr_t)(check_random(&seed) | 1);
    for (int step = 0; step < STEPS; step++) {
        uint64_t i = check_random(&seed) % ITEMS;
        bool fresh = sw_address_set_insert(&idle, items[i]);
        CHECK(fresh == !is_in[i]);
        count += fresh;
        is_in[i] = true;
        if ((check_random(&seed) & 1) != 0) {
            sw_address_set_remove(&idle, items[i]);
            is_in[i] = false;
            count--;
        }
        CHECK_EQ(idle.count, count);
        CHECK(sw_address_set_check(&idle) == NULL);
    }
    sw_address_set_end(&idle);
}

static void put_new(sw_pool *pool, int count) {
    void *items[3];
    for (int i = 0; i < count; i++) items[i] = sw_pool_get(pool);
    for (int i = 0; i < count; i++) CHECK_EQ(sw_pool_put(pool, items[i], POOL_BYTES), SW_OK);
}

static void ages_with_a_collector(uint32_t locked, unsigned debug) {
    sw_gc *gc = gc_begin(debug);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK); /* before: does not count */
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 8, .locked = locked, .aged = 1});
    if (locked != 0) CHECK_EQ(sw_pool_add_thread_slots(pool), SW_OK);
    CHECK_EQ(sw_pool_age_with(pool, gc), SW_OK);
    put_new(pool, 3);
    CHECK_EQ(sw_gc_start(gc), SW_OK); /* a cycle counts from its beginning on, and once */
    CHECK_EQ(STATS(sw_pool, pool).idle, 3);
    CHECK_EQ(sw_gc_finish(gc, NULL), SW_OK);
    void *item = sw_pool_get(pool); /* in use between two agings */
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK(STATS(sw_pool, pool).idle == 3 && STATS(sw_pool, pool).fresh == 3);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK(STATS(sw_pool, pool).idle == 1 && STATS(sw_pool, pool).aged == 2 && live_objects() == 1);
    put_new(pool, 3);
    for (int i = 0; i < 5; i++) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(live_objects(), 3); /* nobody has looked yet */
    item = sw_pool_get(pool);
    CHECK(STATS(sw_pool, pool).fresh == 6 && STATS(sw_pool, pool).idle == 0 && live_objects() == 1);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age_with(pool, NULL), SW_OK);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(STATS(sw_pool, pool).idle, 1);
    CHECK_EQ(sw_pool_age_with(pool, gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK); /* the pool stays, and is aged by hand */
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(STATS(sw_pool, pool).idle == 0 && live_objects() == 0);
    sw_pool_destroy(pool);
    pool = make_pool((sw_pool_options){.capacity = 8});
    CHECK_EQ(sw_pool_age_with(pool, NULL), SW_UNSUPPORTED);
    sw_pool_destroy(pool);
}

/* --- threads ---------------------------------------------------------------------------------- */

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
    sw_pool_stats stats = STATS(sw_pool, pool);
    CHECK(stats.idle == 2 && stats.puts == 8 && stats.dropped == 1 && stats.gets == 8);
    struct visit visit = {pool, sw_thread_slot_of_thread(pool->thread_slots), a, b};
    CHECK(in_thread(get_both_elsewhere, &visit) == &visit);
    CHECK_EQ(STATS(sw_pool, pool).fresh, 3);
    sw_heap_free(heap, a);
    sw_heap_free(heap, b);
    void *own = in_thread(put_elsewhere, pool);
    CHECK_EQ(STATS(sw_pool, pool).idle, 1); /* it outlives its thread */
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
    CHECK(STATS(sw_pool, pool).idle == 1 && STATS(sw_pool, pool).aged == 0);
    CHECK(sw_pool_get(pool) == item); /* the victim */
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(STATS(sw_pool, pool).idle, 1);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(STATS(sw_pool, pool).idle == 0 && STATS(sw_pool, pool).aged == 1 && live_objects() == 0);
    void *three[3];
    for (int i = 0; i < 3; i++) three[i] = sw_pool_get(pool);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_pool_put(pool, three[i], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(STATS(sw_pool, pool).idle == 2 && STATS(sw_pool, pool).aged == 2 && live_objects() == 2);
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
    CHECK_EQ(STATS(sw_pool, pool).gets, THREADS * TURNS);
    CHECK_EQ(STATS(sw_pool, pool).puts, THREADS * TURNS);
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
    remember_faults();
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    walks_as_an_array(SW_POOL_LIFO);
    walks_as_an_array(SW_POOL_FIFO);
    clears_items();
    ages();
    refuses_what_is_wrong();
    constructs_new_items_only();
    names_a_double_put((sw_pool_options){.order = SW_POOL_LIFO});
    names_a_double_put((sw_pool_options){.order = SW_POOL_FIFO, .zero = 1});
    names_a_double_put((sw_pool_options){.locked = 1, .aged = 1});
    watches_no_foreign_item_in();
    set_is_a_set();
    ages_with_a_collector(0, 0);
    ages_with_a_collector(1, SW_GC_CHECKMARK); /* a checked cycle asks its sources twice */
    a_thread_slot_needs_no_lock();
    thread_slots_age();
    serves_threads_at_once();
    refuses_what_does_not_fit();
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: order, capacity, zeroes, aging by hand and with a collector, constructors, detection of
 * double puts, refused arguments. Threads: test_pool_threads.c, forks: test_fork.c, damage:
 * test_memory_grades.c. */
#include <errno.h>
#include <stdbool.h>

#include "collector.h"
#include "faults.h"
#include "pool/pool.h"
#include "pools.h"

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
        sw_pool_stats stats = stats_of(pool);
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
    CHECK_EQ(stats_of(pool).idle, 3);
    CHECK(sw_pool_get(pool) == items[2]); /* a victim, as there is no other */
    CHECK_EQ(sw_pool_put(pool, items[2], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(stats_of(pool).idle, 1);
    CHECK_EQ(stats_of(pool).aged, 2);
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
    CHECK_EQ(stats_of(pool).puts, 0);
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

/* --- constructor ------------------------------------------------------------------------------ */

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
        CHECK_EQ(stats_of(pool).fresh, 1);
        CHECK_EQ(sw_pool_set_constructor(pool, NULL, NULL), SW_STATE);
        CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
        sw_pool_destroy(pool);
    }
    sw_pool *clearing = make_pool((sw_pool_options){.capacity = 4, .zero = 1});
    CHECK_EQ(sw_pool_set_constructor(clearing, construct, NULL), SW_UNSUPPORTED);
    sw_pool_destroy(clearing);
    CHECK_EQ(live_objects(), 0);
}

/* --- watched puts ----------------------------------------------------------------------------- */

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
        CHECK_EQ(stats_of(pool).puts, (uint64_t)i + 1);
    }
    CHECK_EQ(sw_pool_put(pool, items[3], POOL_BYTES), SW_OK); /* full: freed */
    CHECK_EQ(stats_of(pool).dropped, 1);
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
    CHECK_EQ(stats_of(pool).puts, 0);
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

/* --- a collector ------------------------------------------------------------------------------ */

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
    CHECK_EQ(stats_of(pool).idle, 3);
    CHECK_EQ(sw_gc_finish(gc, NULL), SW_OK);
    void *item = sw_pool_get(pool); /* in use between two agings */
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK(stats_of(pool).idle == 3 && stats_of(pool).fresh == 3);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK(stats_of(pool).idle == 1 && stats_of(pool).aged == 2 && live_objects() == 1);
    put_new(pool, 3);
    for (int i = 0; i < 5; i++) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(live_objects(), 3); /* nobody has looked yet */
    item = sw_pool_get(pool);
    CHECK(stats_of(pool).fresh == 6 && stats_of(pool).idle == 0 && live_objects() == 1);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age_with(pool, NULL), SW_OK);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(stats_of(pool).idle, 1);
    CHECK_EQ(sw_pool_age_with(pool, gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK); /* the pool stays, and is aged by hand */
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK(stats_of(pool).idle == 0 && live_objects() == 0);
    sw_pool_destroy(pool);
    pool = make_pool((sw_pool_options){.capacity = 8});
    CHECK_EQ(sw_pool_age_with(pool, NULL), SW_UNSUPPORTED);
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
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that come and go: a closed one serves the next thread, and costs nobody anything
 * meanwhile. */
#include "check.h"
#include "heap/cache.h"
#include "spanwise/spanwise.h"

enum { MANY = 20000, STAY = 16, SLOT_BYTES = 512 };

static sw_cache *caches[MANY];

static uint64_t length_of(const sw_cache *list, uint32_t closed) {
    uint64_t count = 0;
    for (; list != NULL; list = list->cold->list_next, count++)
        CHECK_EQ(list->cold->closed, closed);
    return count;
}

static void check_lists(const sw_heap *heap, uint64_t open, uint64_t closed) {
    CHECK_EQ(length_of(heap->open_caches, 0), open);
    uint64_t whole = closed < SW_CLOSED_WHOLE ? closed : SW_CLOSED_WHOLE;
    CHECK_EQ(length_of(heap->closed_caches, 1), whole);
    CHECK_EQ(length_of(heap->stripped_caches, 1), closed - whole);
    CHECK_EQ(heap->closed_count, whole);
    CHECK_EQ(heap->cache_count, open);
    CHECK_EQ(heap->cache_numbers, open + closed);
}

/* Caches that are no user's close in an order of their own; records are made for no more than are open at once. */
static void closed_ones_are_taken_again(void) {
    sw_heap *heap;
    uint64_t rng = 4;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &caches[i]), SW_OK);
    check_lists(heap, MANY, 0);
    for (int left = MANY; left > STAY; left--) {
        int at = (int)(check_random(&rng) % (uint64_t)left);
        sw_cache_close(caches[at]);
        caches[at] = caches[left - 1];
    }
    check_lists(heap, STAY, MANY - STAY);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = STAY; i < MANY; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &caches[i]), SW_OK);
    check_lists(heap, MANY, 0);
    for (int i = 0; i < MANY; i++) sw_cache_close(caches[i]);
    check_lists(heap, 0, MANY);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* A span that becomes wholly free is given up unless an open cache has a hazard on it. What stands in a
 * closed cache's record does not count: nobody looks at it. */
static void spans_given_up(bool by_closed, uint64_t spans_left) {
    sw_heap *heap;
    sw_cache *cache, *freer;
    sw_ledger ledger;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &freer), SW_OK);
    if (by_closed) sw_cache_close(freer);
    void *p = sw_cache_alloc(cache, SLOT_BYTES, 0);
    freer->cold->hazard_id = *sw_space_entry(heap->space, (uintptr_t)p);
    sw_cache_free(cache, p);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.spans, spans_left);
    CHECK_EQ(heap->central_idle, spans_left);
    heap->central_idle = 0;
    CHECK_EQ(sw_heap_verify(heap), spans_left == 0 ? SW_OK : SW_STATE);
    heap->central_idle = (uint32_t)spans_left;
    freer->cold->hazard_id = 0;
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_trim(heap); /* the hazard is cleared: now it is given up */
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.spans, 0);
    CHECK_EQ(heap->central_idle, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Two full spans with a free slot each, and a current one. The cache closes: who adopts takes the current one
 * first, then the one whose slot was freed last. */
static void warm_ones_are_adopted_first(void) {
    enum { SLOTS = 16, COUNT = 2 * SLOTS + 1 }; /* 512 B, table go: a page, so 16 slots, a span */
    sw_heap_options options;
    sw_heap *heap;
    sw_cache *cache;
    char *p[COUNT];
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.placement = SW_PLACE_LIFO;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (int i = 0; i < COUNT; i++)
        p[i] = sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN); /* no hints */
    sw_cache_free(cache, p[0]);
    sw_cache_free(cache, p[SLOTS]);
    sw_cache_close(cache);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (int i = 1; i < SLOTS; i++)
        CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[COUNT - 1] + i * SLOT_BYTES);
    CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[SLOTS]);
    CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[0]);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    closed_ones_are_taken_again();
    spans_given_up(false, 1);
    spans_given_up(true, 0);
    warm_ones_are_adopted_first();
    return check_result();
}

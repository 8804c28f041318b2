/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects: freed ones that a cache keeps for its next requests, and growth in place. Kept
 * ones are bounded, counted by the ledger, and used before fresh pages and before a request is
 * refused; decay, trims and the end of their cache return them (forks: test_fork.c). Misuse:
 * test_misuse.c.
 */
#include <stdbool.h>

#include "check.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

enum { K = 1 << 10, M = 1 << 20, SIZE = 64 * K, SHELVED_MOST = 4 * M };

static sw_heap *heap;

static sw_heap *make(bool dry, uint64_t limit, uint64_t decay_ns) {
    return heap_with((heap_setting){.dry = dry,
                                    .limit_bytes = limit,
                                    .decay_ns = decay_ns,
                                    .tracked = true,
                                    .manual_clock = true});
}

static int count_object(void *p, size_t bytes, uint32_t cls, void *arg) {
    (void)p;
    (void)bytes;
    (void)cls;
    ++*(int *)arg;
    return 0;
}

/* --- what is on shelves ------------------------------------------------------------------- */

static void shelved_is_told(void) {
    sw_span_info rows[3];
    int objects = 0;
    heap = make(false, 0, SW_DECAY_NEVER);
    unsigned char *more = sw_heap_alloc(heap, SIZE + 1, 0);
    unsigned char *scanned = sw_heap_alloc(heap, SIZE, SW_SCAN);
    unsigned char *p = sw_heap_alloc(heap, SIZE - 5, 0);
    memset(p, 0xAA, SIZE - 5);
    sw_heap_free(heap, p);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.cached_bytes, SIZE);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.large_objects, 2);
    CHECK_EQ(l.live_objects, 2);
    CHECK_EQ(l.requested_bytes, 2 * SIZE + 1);
    CHECK_EQ(sw_heap_spans(heap, rows, 3), 3);
    CHECK(rows[2].slots == 1 && rows[2].live == 0 && rows[2].needzero == 1);
    CHECK_EQ(sw_heap_each_object(heap, count_object, &objects), 0);
    CHECK_EQ(objects, 2);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_free(heap, more);
    sw_heap_free(heap, scanned);
    CHECK_EQ(ledger_of(heap).cached_bytes, 3 * SIZE + 8 * K);
    CHECK(sw_heap_alloc(heap, SIZE, SW_SCAN) == scanned); /* of its own kind */
    CHECK(sw_heap_alloc(heap, SIZE + 1, 0) == more);
    CHECK(sw_heap_alloc(heap, SIZE - 9, SW_ZERO) == p);
    for (size_t i = 0; i < SIZE; i++)
        if (p[i] != 0) CHECK_EQ(i, SIZE_MAX);
    l = ledger_of(heap);
    CHECK_EQ(l.cached_bytes, 0);
    CHECK_EQ(l.large_objects, 3);
    CHECK_EQ(l.requested_bytes, 3 * SIZE - 8);
    heap_end(heap);
}

/* --- before memory is refused, or grows ------------------------------------------------------- */

static int hook_calls;
static int count_call(sw_heap *of, uint64_t bytes, void *arg) {
    (void)of;
    (void)bytes;
    (void)arg;
    hook_calls++;
    return 0;
}

/* What a cache keeps is given up before the limit's hook is asked: for a large object, a span of
 * slots, an aligned object, an object that grows. */
static void limit_comes_last(void) {
    for (int what = 0; what < 4; what++) {
        heap = make(false, 8 * M, SW_DECAY_NEVER);
        sw_heap_set_limit_hook(heap, count_call, NULL);
        hook_calls = 0;
        void *warm = sw_heap_alloc(heap, 2000, 0), *p[256];
        int n = 0;
        while (n < 256 && (p[n] = sw_heap_alloc(heap, SIZE, 0)) != NULL) n++;
        CHECK(n > 100 && n < 128 && hook_calls == 1);
        hook_calls = 0;
        for (int i = 9; i < 11; i++) sw_heap_free(heap, p[i]);
        for (int i = 9; i < 11; i++) /* asked for once more: shelved from now on */
            CHECK(sw_heap_alloc(heap, SIZE, 0) == p[i]);
        sw_heap_free(heap, p[9]);
        sw_heap_free(heap, p[10]);
        CHECK(ledger_of(heap).cached_bytes > 2 * SIZE); /* and the current span of warm */
        if (what == 0) CHECK(sw_heap_alloc(heap, 2 * SIZE, 0) == p[9]);
        if (what == 1) CHECK(sw_heap_alloc(heap, 20000, 0) != NULL);
        if (what == 2) CHECK(sw_heap_alloc_aligned(heap, 100, SIZE, 0) != NULL);
        if (what == 3) CHECK(sw_heap_realloc(heap, p[8], 3 * SIZE, 0) == p[8]);
        CHECK_EQ(hook_calls, 0);
        CHECK(sw_heap_held_bytes(heap) <= 8 * M);
        sw_heap_free(heap, warm);
        heap_end(heap);
    }
}

/* --- how they leave --------------------------------------------------------------------------- */

static void decay_takes_them(void) {
    heap = make(false, 0, 10);
    for (int shelved = 0; shelved < 2; shelved++) {
        void *p = sw_heap_alloc(heap, SIZE, 0);
        sw_heap_free(heap, p);
        if (shelved == 1) CHECK_EQ(ledger_of(heap).cached_bytes, SIZE);
        sw_heap_set_time(heap, 100 + 15 * (uint64_t)(3 * shelved)); /* a tick: idle from now on */
        CHECK_EQ(ledger_of(heap).cached_bytes, 0);
        CHECK_EQ(ledger_of(heap).free_page_bytes, SIZE); /* late as that tick was */
        CHECK_EQ(ledger_of(heap).returned_bytes, (uint64_t)shelved * SIZE);
        sw_heap_set_time(heap, 115 + 15 * (uint64_t)(3 * shelved));
        CHECK_EQ(ledger_of(heap).free_page_bytes, 0);
    }
    CHECK_EQ(ledger_of(heap).returned_bytes, 2 * SIZE);
    heap_end(heap);
}

static void trims_take_them(void) {
    sw_cache *a, *b;
    heap = make(false, 0, SW_DECAY_NEVER);
    a = cache_of(heap);
    b = cache_of(heap);
    void *p = sw_cache_alloc(a, SIZE, 0), *q = sw_cache_alloc(a, M, 0), *r;
    sw_cache_free(b, p);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0); /* it has not asked for such */
    p = sw_cache_alloc(a, SIZE, 0);
    r = sw_cache_alloc(b, M, 0);
    sw_cache_free(a, p);
    sw_cache_free(b, q); /* the freer keeps it */
    CHECK_EQ(ledger_of(heap).cached_bytes, SIZE + M);
    sw_cache_free(b, r);
    CHECK_EQ(ledger_of(heap).cached_bytes, SIZE + M);
    sw_cache_trim(a);
    CHECK_EQ(ledger_of(heap).cached_bytes, M);
    CHECK_EQ(ledger_of(heap).free_page_bytes, SIZE + M);
    CHECK_EQ(sw_heap_trim(heap), SIZE + 2 * M); /* of every cache */
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    sw_cache_free(b, sw_cache_alloc(b, SIZE, 0));
    CHECK_EQ(ledger_of(heap).cached_bytes, SIZE);
    sw_cache_close(b);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    sw_cache_close(a);
    heap_end(heap);
}

/* --- growth in place -------------------------------------------------------------------------- */

enum { STEP = 64 << 10, STEPS = 1000, BLOCKS = 3 };

int main(void) {
    shelved_is_told();
    limit_comes_last();
    decay_takes_them();
    trims_take_them();
    return check_result();
}

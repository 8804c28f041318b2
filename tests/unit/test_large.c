/* SPDX-License-Identifier: Apache-2.0 */
/* A cache keeps large objects that were freed, for its next requests. They are bounded, told by the
 * ledger, used before fresh pages are and before a request is refused, and leave with the decay,
 * a trim, their cache (and in forks: test_fork_large.c). A free of one is still a double free. */
#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { K = 1 << 10, M = 1 << 20, SIZE = 64 * K, SHELVED_MOST = 4 * M };

static sw_heap *heap;
static sw_misuse last_fault;
static int faults;

static sw_fault_action note_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    last_fault = fault->code;
    faults++;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static sw_heap *make(uint64_t limit, uint64_t decay_ns) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.tracked = 1;
    options.manual_clock = 1;
    options.limit_bytes = limit;
    options.decay_ns = decay_ns;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static sw_ledger ledger_of(sw_heap *of) {
    sw_ledger l;
    CHECK_EQ(sw_heap_ledger(of, &l, NULL, 0), SW_OK);
    return l;
}

static int count_object(void *p, size_t bytes, uint32_t cls, void *arg) {
    (void)p;
    (void)bytes;
    (void)cls;
    ++*(int *)arg;
    return 0;
}

/* --- what lies on shelves ------------------------------------------------------------------- */

static void shelved_is_told(void) {
    sw_span_info rows[3];
    int objects = 0;
    make(0, SW_DECAY_NEVER);
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
    end();
}

/* Whatever is freed, in whatever order. What lies on shelves is the newest. */
static void shelved_is_bounded(void) {
    static void *p[400];
    uint64_t rng = 7;
    make(0, SW_DECAY_NEVER);
    for (int i = 0; i < 400; i++)
        p[i] = sw_heap_alloc(heap, 33 * K + check_random(&rng) % (2 * M), 0);
    for (int i = 0; i < 400; i++) {
        sw_heap_free(heap, p[i]);
        CHECK(ledger_of(heap).cached_bytes <= SHELVED_MOST);
    }
    CHECK(ledger_of(heap).cached_bytes > SHELVED_MOST / 2);
    void *last = sw_heap_alloc(heap, 100 * K, 0);
    sw_heap_free(heap, last);
    CHECK(sw_heap_alloc(heap, 100 * K, 0) == last);
    end();
}

/* Nothing goes to the system or comes from it while pairs are all that happens. */
static void pairs_are_quiet(void) {
    make(0, 10);
    for (size_t size = 33 * K; size <= M; size += 31 * K) {
        void *first = sw_heap_alloc(heap, size, 0);
        sw_heap_free(heap, first);
        sw_ledger before = ledger_of(heap);
        for (int i = 0; i < 100; i++) {
            void *a = sw_heap_alloc(heap, size, 0), *b = sw_heap_alloc(heap, size, 0);
            CHECK(a == first || b == first || i > 0);
            sw_heap_free(heap, a);
            sw_heap_free(heap, b);
        }
        CHECK_EQ(ledger_of(heap).returned_bytes, before.returned_bytes);
    }
    end();
}

/* --- misuse ----------------------------------------------------------------------------------- */

static void misuse_is_found(void) {
    make(0, SW_DECAY_NEVER);
    unsigned char *p = sw_heap_alloc(heap, SIZE, 0);
    faults = 0;
    sw_heap_free(heap, p + 4096);
    CHECK(faults == 1 && last_fault == SW_MISUSE_INTERIOR);
    sw_heap_free(heap, p);
    sw_heap_free(heap, p);
    CHECK(faults == 2 && last_fault == SW_MISUSE_DOUBLE_FREE);
    sw_heap_free(heap, p + 4096);
    CHECK(faults == 3 && last_fault == SW_MISUSE_DOUBLE_FREE);
    CHECK(sw_heap_realloc(heap, p, 2 * SIZE, 0) == NULL);
    CHECK(faults == 4 && last_fault == SW_MISUSE_DOUBLE_FREE);
    CHECK_EQ(sw_heap_usable_size(heap, p), 0);
    CHECK(faults == 5 && last_fault == SW_MISUSE_DOUBLE_FREE);
    sw_heap_free_sized(heap, p, SIZE);
    CHECK(faults == 6 && last_fault == SW_MISUSE_DOUBLE_FREE);
    CHECK(sw_heap_alloc(heap, SIZE, 0) == p); /* once */
    CHECK(sw_heap_alloc(heap, SIZE, 0) != p);
    end();
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
        make(8 * M, SW_DECAY_NEVER);
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
        end();
    }
}

/* No fresh pages while some lie on shelves: the peak is what it was. */
static void nothing_fresh_beside_shelved(void) {
    make(0, SW_DECAY_NEVER);
    void *p[24];
    for (int i = 0; i < 24; i++) p[i] = sw_heap_alloc(heap, (size_t)(i / 2 + 5) * 8 * K, 0);
    for (int i = 0; i < 24; i++) sw_heap_free(heap, p[i]);
    uint64_t held = ledger_of(heap).held_bytes, shelved = ledger_of(heap).cached_bytes;
    uint64_t pages = ledger_of(heap).free_page_bytes;
    CHECK(shelved >= 6 * 5 * 8 * K);
    size_t n = (size_t)((shelved + pages) / 1024) - 64;
    for (size_t i = 0; i < n; i++) CHECK(sw_heap_alloc(heap, 1024, 0) != NULL);
    sw_ledger l = ledger_of(heap);
    CHECK(l.held_bytes - l.metadata_bytes <= held);
    end();
}

/* --- how they leave --------------------------------------------------------------------------- */

static void decay_takes_them(void) {
    make(0, 10);
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
    end();
}

static void trims_take_them(void) {
    sw_cache *a, *b;
    make(0, SW_DECAY_NEVER);
    CHECK_EQ(sw_cache_open(heap, &a), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &b), SW_OK);
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
    end();
}

int main(void) {
    sw_set_fault_handler(note_fault, NULL);
    shelved_is_told();
    shelved_is_bounded();
    pairs_are_quiet();
    misuse_is_found();
    limit_comes_last();
    nothing_fresh_beside_shelved();
    decay_takes_them();
    trims_take_them();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Idle spans on the shelves of a cache: they serve the next class of their length without the lock, count as
 * cached, are found by a second free, and are given up for whoever needs their pages. */
#include <stdbool.h>

#include "check.h"
#include "faults.h"
#include "heap/heap.h"
#include "heap/remote.h"
#include "heap/span_shelf.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SECOND = 1000000000, MOST = 8 }; /* spans of one page on shelves */

static sw_heap *heap;
static sw_cache *cache;

static void make_kind(uint64_t limit_bytes, bool dry, bool tracked) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.tracked = tracked;
    options.table = sw_table_go(); /* every span of a class has one length */
    options.manual_clock = 1;
    options.dry = dry;
    options.limit_bytes = limit_bytes;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
}

static void make(uint64_t limit_bytes, bool dry) { make_kind(limit_bytes, dry, false); }

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Of the lock. Builds of grade 3 verify the heap in between, each time by one more: there all are 0. */
static uint64_t turns(void) {
    if (SW_CHECK >= 3) return 0;
    sw_heap_stats s = {.struct_bytes = sizeof s};
    CHECK_EQ(sw_heap_stats_read(heap, &s), SW_OK);
    return s.lock_acquisitions;
}

static sw_ledger ledger(void) {
    sw_ledger l;
    CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
    return l;
}

static void *take(size_t size) {
    void *p = sw_cache_alloc(cache, size, 0);
    CHECK(p != NULL);
    return p;
}

/* Every object is a span of its own. The first n are freed, and their spans shelved; the last one stays
 * the current span of its class, and its object lives. */
static void *objects[64];
static void shelve(int n) {
    for (int i = 0; i <= n; i++) objects[i] = take(PAGE);
    for (int i = 0; i < n; i++) sw_cache_free(cache, objects[i]);
}

/* --- without the lock ------------------------------------------------------------------------- */

/* Spans of one slot of 8 KiB become, the last one first, one of two slots, one of eight, and one of one. */
static void serves_every_class(bool dry) {
    make(0, dry);
    shelve(3);
    uint64_t before = turns();
    char *p = objects[2];
    CHECK(take(4096) == p && take(4096) == p + 4096);
    p = objects[1];
    for (int i = 0; i < 8; i++) CHECK(take(1024) == p + (ptrdiff_t)i * 1024);
    CHECK(take(PAGE) == objects[0]);
    CHECK_EQ(turns(), before);
    sw_ledger l = ledger();
    CHECK_EQ(l.spans, 4);
    CHECK_EQ(l.live_objects, 1 + 2 + 8 + 1);
    CHECK_EQ(l.cached_bytes, 0);
    end();
}

/* What another cache freed waits on the stack while there is a span on a shelf, and is drained before a
 * fresh span is made. */
static void serves_before_a_drain(void) {
    sw_cache *other;
    make(0, false);
    CHECK_EQ(sw_cache_open(heap, &other), SW_OK);
    char *small = take(1024);
    shelve(1);
    sw_cache_free(other, small);
    CHECK(cache->cold->remote_head != 0);
    CHECK(take(4096) == objects[0]);
    CHECK(cache->cold->remote_head != 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK(take(PAGE) != NULL);
    CHECK_EQ(cache->cold->remote_head, 0);
    sw_cache_close(other);
    end();
}

/* What was written to is cleared for whoever asks for zeroes. */
static void is_cleared(void) {
    make(0, false);
    for (int i = 0; i < 2; i++) objects[i] = memset(take(PAGE), 0xAA, PAGE);
    sw_cache_free(cache, objects[0]);
    unsigned char *q = sw_cache_alloc(cache, 2048, SW_ZERO);
    CHECK(q == objects[0]);
    for (int i = 0; i < 2048; i++) CHECK_EQ(q[i], 0);
    end();
}

/* --- what is kept ----------------------------------------------------------------------------- */

static void is_cached(bool dry) {
    make(0, dry);
    shelve(5);
    sw_ledger l = ledger();
    CHECK_EQ(l.spans, 6);
    CHECK_EQ(l.cached_bytes, 5 * PAGE);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.live_objects, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_set_time(heap, SECOND); /* free pages from here on, which the next tick gives back */
    CHECK_EQ(ledger().cached_bytes, 0);
    CHECK_EQ(ledger().free_page_bytes, 5 * PAGE);
    sw_heap_set_time(heap, 2 * (uint64_t)SECOND);
    CHECK_EQ(ledger().free_page_bytes, 0);
    shelve(3);
    CHECK_EQ(ledger().cached_bytes, 3 * PAGE);
    sw_cache_trim(cache);
    CHECK_EQ(ledger().cached_bytes, 0);
    shelve(3);
    sw_cache_close(cache);
    CHECK_EQ(ledger().cached_bytes, 0);
    CHECK_EQ(ledger().spans, 3); /* those of the objects that live */
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    end();
}

/* The ninth span of a page finds the eight shelves full: it is given up, and four others in the same turn
 * of the lock. */
static void is_bounded(void) {
    make(0, false);
    for (int i = 0; i <= MOST + 1; i++) objects[i] = take(PAGE);
    uint64_t before = turns();
    for (int i = 0; i < MOST; i++) sw_cache_free(cache, objects[i]);
    CHECK_EQ(turns(), before);
    sw_cache_free(cache, objects[MOST]);
    CHECK_EQ(turns(), SW_CHECK >= 3 ? 0 : before + 1);
    CHECK_EQ(ledger().cached_bytes, MOST / 2 * PAGE);
    CHECK_EQ(ledger().free_page_bytes, (MOST / 2 + 1) * PAGE);
    end();
}

/* At the heap's limit what one cache keeps serves another one. */
static void serves_others(void) {
    enum { LIMIT = 2 << 20, OBJECTS = LIMIT / PAGE };
    static void *p[OBJECTS];
    sw_cache *other;
    make(LIMIT, false);
    CHECK_EQ(sw_cache_open(heap, &other), SW_OK);
    int n = 0;
    while (n < OBJECTS && (p[n] = sw_cache_alloc(cache, PAGE, 0)) != NULL) n++;
    CHECK(n > MOST && n < OBJECTS);
    for (int i = 0; i < MOST; i++) sw_cache_free(cache, p[i]);
    CHECK_EQ(ledger().cached_bytes, MOST * PAGE);
    for (int i = 0; i < MOST; i++) CHECK(sw_cache_alloc(other, PAGE, 0) != NULL);
    CHECK(sw_cache_alloc(other, PAGE, 0) == NULL);
    sw_cache_close(other);
    end();
}

/* --- misuse ----------------------------------------------------------------------------------- */

/* Objects of a shelved span are gone, wherever one points into them; by any cache. */
static void second_frees(void) {
    sw_cache *other;
    make(0, false);
    CHECK_EQ(sw_cache_open(heap, &other), SW_OK);
    shelve(1);
    char *p = objects[0];
    remember_faults();
    void *stale[] = {p, p + 4096, p + 8};
    for (int i = 0; i < 3; i++) {
        sw_cache *by[] = {cache, other};
        for (int k = 0; k < 2; k++) {
            EXPECT_FAULT(DOUBLE_FREE, stale[i], sw_cache_free(by[k], stale[i]));
        }
    }
    sw_set_fault_handler(NULL, NULL);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK(take(PAGE) == p);
    sw_cache_close(other);
    end();
}

/* Two frees at once: the second one set its bit when the first had been decided already, and told a
 * cache that had owned the span before. That one finds it on a shelf. */
static void late_second_free(void) {
    sw_cache *former;
    make(0, false);
    CHECK_EQ(sw_cache_open(heap, &former), SW_OK);
    shelve(2);
    sw_span *span = sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)objects[0]));
    CHECK_EQ(span->state, SW_SPAN_SHELVED);
    __atomic_store_n(&span->own.remote, 1, __ATOMIC_RELAXED);
    CHECK(sw_span_announce(heap->space, span, 0));
    remember_faults();
    EXPECT_FAULT(DOUBLE_FREE, objects[0], sw_remote_announce(former, span, 0);
                 sw_cache_trim(former));
    sw_set_fault_handler(NULL, NULL);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(ledger().cached_bytes, PAGE);
    CHECK_EQ(ledger().free_page_bytes, PAGE);
    CHECK(take(PAGE) == objects[1]);
    sw_cache_close(former);
    end();
}

/* The same while the span's cache asks for one of another class: it gets another span. */
static void second_free_pending(void) {
    sw_cache *former;
    make(0, false);
    CHECK_EQ(sw_cache_open(heap, &former), SW_OK);
    shelve(2);
    sw_span *span = sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)objects[1]));
    __atomic_store_n(&span->own.remote, 1, __ATOMIC_RELAXED);
    CHECK(sw_span_announce(heap->space, span, 0));
    sw_remote_announce(former, span, 0);
    char *p = objects[1], *q = take(4096);
    CHECK(q != p && q != p + 4096);
    CHECK_EQ(span->state, SW_SPAN_CENTRAL_PARTIAL);
    remember_faults();
    EXPECT_FAULT(DOUBLE_FREE, p, sw_cache_trim(former));
    sw_set_fault_handler(NULL, NULL);
    sw_cache_close(former);
    end();
}

/* --- frees by other threads ------------------------------------------------------------------- */

/* A span of one word that another cache has freed into does not wait for more: it is drained, shelved
 * and taken by the next allocation. */
static void drained_at_once(void) {
    sw_cache *other;
    make(0, false);
    CHECK_EQ(sw_cache_open(heap, &other), SW_OK);
    for (int i = 0; i < 3; i++) objects[i] = take(PAGE);
    sw_cache_free(other, objects[0]);
    const sw_span *span =
        sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)objects[0]));
    CHECK_EQ(span->own.remote, 1);
    CHECK_EQ(sw_space_cold(heap->space, span)->remote_words[0], 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_free(other, take(64)); /* its hazard is another span from here on */
    CHECK(take(PAGE) == objects[0]);
    sw_cache_close(other);
    end();
}

/* The upper half of a span of one word has no word. A drain that took one would take that of the record
 * which lies 64 words behind. */
static void upper_half_is_none(void) {
    enum { RECORDS = 64 * sizeof(sw_word) / sizeof(sw_span) };
    make(0, false);
    shelve(1);
    CHECK(take(PAGE) == objects[0]); /* a drain leaves no span fresh, and this one is not */
    sw_span *span = sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)objects[0]));
    uint64_t before = span[RECORDS].own.remote;
    uintptr_t doubled;
    span[RECORDS].own.remote = 2;
    sw_span_drain(heap->space, span, 1, &doubled);
    CHECK_EQ(span[RECORDS].own.remote, 2);
    CHECK_EQ(doubled, 0);
    span[RECORDS].own.remote = before;
    end();
}

/* A tracked heap has a slack array for each span, which changes its length with the class: of one slot, then of
 * 64. The requested bytes are those of the new objects. */
static void tracked(bool dry) {
    enum { MANY = 128, FEW = 5 };
    void *many[MANY];
    make_kind(0, dry, true);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < FEW; i++) objects[i] = take(PAGE - 7);
        CHECK_EQ(ledger().requested_bytes, FEW * (PAGE - 7));
        CHECK_EQ(ledger().roundup_bytes, FEW * 7);
        for (int i = 0; i < FEW; i++) sw_cache_free(cache, objects[i]);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        CHECK_EQ(ledger().cached_bytes,
                 (uint64_t)FEW * PAGE); /* an idle span of 128 B served, too */
        for (int i = 0; i < MANY; i++) many[i] = take(i < 64 ? 120 : 125); /* a span of each */
        CHECK_EQ(ledger().requested_bytes, 64 * (120 + 125));
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        for (int i = 0; i < MANY; i++) sw_cache_free(cache, many[i]);
        CHECK_EQ(ledger().requested_bytes + ledger().roundup_bytes, 0);
    }
    end();
}

int main(void) {
    for (int dry = 0; dry < 2; dry++) {
        serves_every_class(dry);
        is_cached(dry);
        tracked(dry);
    }
    serves_before_a_drain();
    is_cleared();
    is_bounded();
    serves_others();
    second_frees();
    late_second_free();
    second_free_pending();
    drained_at_once();
    upper_half_is_none();
    return check_result();
}

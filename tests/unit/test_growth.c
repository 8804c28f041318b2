/* SPDX-License-Identifier: Apache-2.0 */
/* Growth of heaps: the lengths of a class's spans depend on its use, and empty current spans serve
 * other classes before the heap takes more pages. Expected numbers are computed by hand. */
#include <stdbool.h>

#include "check.h"
#include "faults.h"
#include "heap/cache.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

enum { PAGE = 4096, SIZE = 64, SLOTS = PAGE / SIZE, SPANS_MAX = 64 };

/* Classes of 64 B, 1 to 8 pages; of 128 B, always 2; of 3 KiB, 3 or 6 pages. */
static const sw_class_spec specs[] = {{SIZE, 8, 1}, {128, 2, 0}, {3072, 6, 3}};

static sw_table *table;
static sw_heap *heap;

static void open_heap(bool dry, uint64_t limit_bytes) {
    heap = heap_with(
        (heap_setting){.table = table, .manual_clock = 1, .dry = dry, .limit_bytes = limit_bytes});
}

static void close_heap(void) { heap_end(heap); }

/* Allocates so many pages full of objects of a class of one size; their addresses. */
static void fill(void **objects, uint32_t size, uint32_t pages, unsigned flags) {
    for (uint32_t i = 0; i < pages * PAGE / size; i++) {
        objects[i] = sw_heap_alloc(heap, size, flags);
        CHECK(objects[i] != NULL);
    }
}

/* Pages of the heap's spans of a class, in heap order, as digits: "1248". */
static const char *lengths(uint32_t cls) {
    static char digits[SPANS_MAX + 1];
    static sw_span_info rows[SPANS_MAX];
    size_t count = sw_heap_spans(heap, rows, SPANS_MAX), n = 0;
    CHECK(count <= SPANS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].cls != cls) continue;
        CHECK_EQ(rows[i].slots, rows[i].bytes / specs[cls - 1].size_bytes);
        digits[n++] = (char)('0' + rows[i].bytes / PAGE);
    }
    digits[n] = '\0';
    return digits;
}

static void doubles_to_the_longest(bool dry) {
    static void *objects[31 * SLOTS];
    open_heap(dry, 0);
    fill(objects, SIZE, 1, 0);
    CHECK_STR(lengths(1), "1");
    fill(objects, SIZE, 2, 0);
    CHECK_STR(lengths(1), "12");
    fill(objects, SIZE, 4, 0);
    CHECK_STR(lengths(1), "124");
    fill(objects, SIZE, 24, 0);
    CHECK_STR(lengths(1), "124888");
    CHECK_STR(lengths(2), "");
    close_heap();
}

/* All caches of a heap share the count of a class; objects with and without pointers do not. The
 * first span of a cache is the shortest, whatever the count is. */
static void counted_by_span_class(void) {
    static void *objects[SLOTS];
    sw_cache *other;
    open_heap(false, 0);
    fill(objects, SIZE, 1, 0);
    other = cache_of(heap);
    CHECK(sw_cache_alloc(other, SIZE, 0) != NULL);
    CHECK_STR(lengths(1), "11");
    for (uint32_t i = 0; i < SLOTS; i++) CHECK(sw_cache_alloc(other, SIZE, 0) != NULL);
    CHECK_STR(lengths(1), "114"); /* the class had 2 pages */
    fill(objects, SIZE, 1, SW_SCAN);
    CHECK_STR(lengths(1), "1141");
    sw_cache_close(other);
    close_heap();
}

/* The first span of each of many caches is the shortest, and so is that of a cache which opens
 * again. */
static void first_ones_are_short(bool dry) {
    enum { CACHES = 9 };
    sw_cache *caches[CACHES];
    open_heap(dry, 0);
    for (int i = 0; i < CACHES; i++) {
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &caches[i]), SW_OK);
        CHECK(sw_cache_alloc(caches[i], SIZE, 0) != NULL);
        CHECK(sw_cache_alloc(caches[i], 3072, 0) != NULL);
    }
    CHECK_STR(lengths(1), "111111111");
    CHECK_STR(lengths(3), "333333333");
    for (int i = 0; i < CACHES; i++) sw_cache_close(caches[i]);
    sw_cache *again;
    CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &again), SW_OK);
    CHECK(again == caches[CACHES - 1]);
    fill((void *[SLOTS]){NULL}, SIZE, 1, SW_SCAN);
    CHECK(sw_cache_alloc(again, SIZE, SW_SCAN) != NULL);
    CHECK_STR(lengths(1), "11111111111");
    sw_cache_close(again);
    close_heap();
}

/* Where a longer span is above the limit, the first length may do. */
static void short_at_the_limit(void) {
    static void *objects[3 * SLOTS];
    open_heap(false, 0);
    fill(objects, SIZE, 3, 0);
    uint64_t held = sw_heap_held_bytes(heap);
    close_heap();
    open_heap(false, held + PAGE + PAGE / 2);
    fill(objects, SIZE, 3, 0);
    CHECK_STR(lengths(1), "12");
    fill(objects, SIZE, 1, 0);
    CHECK_STR(lengths(1), "121");
    CHECK(sw_heap_alloc(heap, SIZE, 0) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_LIMIT);
    close_heap();
}

/* Tables without growth have no counts, and their hash is that of size and pages alone: FNV-1a over
 * 4096, 64, 8, computed by hand; with growth the first length takes part. */
static void fixed_tables_are_as_before(void) {
    static const sw_class_spec fixed[] = {{SIZE, 8, 0}}, same[] = {{SIZE, 8, 8}},
                               growing[] = {{SIZE, 8, 1}};
    static const uint32_t words[] = {4096, SIZE, 8};
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < 3; i++)
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ (words[i] >> shift & 0xFF)) * 0x100000001B3u;
    sw_table *made[3];
    CHECK_EQ(sw_table_create("fixed", PAGE, fixed, 1, &made[0]), SW_OK);
    CHECK_EQ(sw_table_create("same", PAGE, same, 1, &made[1]), SW_OK);
    CHECK_EQ(sw_table_create("growing", PAGE, growing, 1, &made[2]), SW_OK);
    CHECK_EQ(sw_table_hash(made[0]), hash);
    CHECK_EQ(sw_table_hash(made[1]), hash);
    CHECK(sw_table_hash(made[2]) != hash);
    sw_class_info info;
    CHECK_EQ(sw_table_class(made[2], 1, &info), SW_OK);
    CHECK_EQ(info.first_span_bytes, PAGE);
    CHECK_EQ(info.span_bytes, 8 * PAGE);
    heap = heap_with((heap_setting){.table = made[0]});
    CHECK(heap->class_pages == NULL);
    CHECK(sw_heap_alloc(heap, SIZE, 0) != NULL);
    CHECK_STR(lengths(1), "8");
    close_heap();
    for (int i = 0; i < 3; i++) sw_table_destroy(made[i]);
}

/* --- idle spans serve other classes ----------------------------------------------------------- */

/* One page, two and four of them, each two slots long. */
static const sw_class_spec long_specs[] = {{2048, 1, 0}, {4096, 2, 0}, {8192, 4, 0}};

static sw_cache *cache;

static void close_idle(void) {
    sw_cache_close(cache);
    close_heap();
}

static void open_idle(void) {
    heap = heap_with((heap_setting){.table = table, .manual_clock = 1});
    cache = cache_of(heap);
}

static uint64_t held_pages(void) { return heap->pages.held_pages; }

/* The long span is idle: the other two classes live in its pages, and then the heap grows. */
static void longer_ones_serve(void) {
    open_idle();
    void *p = sw_cache_alloc(cache, 8192, 0);
    sw_cache_free(cache, p);
    CHECK_EQ(held_pages(), 4);
    CHECK(cache->bins[sw_span_class_of(3, true)].span != NULL);
    void *q = sw_cache_alloc(cache, 4096, 0);
    CHECK(q == p);
    CHECK(cache->bins[sw_span_class_of(3, true)].span == NULL);
    CHECK(sw_cache_alloc(cache, 2048, 0) == (char *)p + 2 * PAGE);
    CHECK_EQ(held_pages(), 4);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK(sw_cache_alloc(cache, 8192, 0) != NULL);
    CHECK_EQ(held_pages(), 3 + 4); /* its old place is taken: first fit goes on after it */
    close_idle();
}

/* Nothing lives, and one class of a page follows another, so that each takes the page of the last
 * one. 64 times, and once more for 64 adopted ones; then each keeps its own: a cache that gave up G
 * of them adopted at most 3 + G, and 64 G <= 64 * 64 + 3 + G, so G is at most 65. After 64 more,
 * another one is given up. */
static void turns_come_to_an_end(void) {
    enum { CLASSES = 3, TURNS = 3000, GIVEN = 65, SLOTS = PAGE / 16 };
    static const sw_class_spec alike[] = {{16, 1, 0}, {32, 1, 0}, {48, 1, 0}};
    sw_table *own = table;
    uint32_t adopted = 0;
    table = table_of("alike", PAGE, alike, CLASSES);
    open_idle();
    for (uint32_t i = 0; i < TURNS; i++) {
        uint32_t cls = 1 + i % CLASSES;
        adopted += cache->bins[sw_span_class_of(cls, true)].span == NULL;
        sw_cache_free(cache, sw_cache_alloc(cache, 16 * cls, 0));
    }
    CHECK(adopted > 60 && adopted <= CLASSES + GIVEN);
    CHECK_EQ(held_pages(), CLASSES);
    for (int i = 0; i < 64 * SLOTS; i++) CHECK(sw_cache_alloc(cache, 16, 0) != NULL);
    CHECK(held_pages() < CLASSES + 63);
    close_idle();
    sw_table_destroy(table);
    table = own;
}

/* Pages 0 to 19 have two objects each, with pointers, so that they get no hints; 20 to 27 two idle
 * spans. Every second page becomes free and stays held, but a span of two pages fits into none of
 * them, so the idle ones are given up for them. */
static void pages_apart_do_not_count(void) {
    enum { SMALL = 2048, COUNT = 40 };
    void *small[COUNT];
    open_idle();
    for (int i = 0; i < COUNT; i++) small[i] = sw_cache_alloc(cache, SMALL, SW_SCAN);
    void *p = sw_cache_alloc(cache, 8192, 0), *scanned = sw_cache_alloc(cache, 8192, SW_SCAN);
    sw_cache_free(cache, p);
    sw_cache_free(cache, scanned);
    for (int i = 0; i < COUNT; i++)
        if (i % 4 < 2) sw_cache_free(cache, small[i]);
    CHECK_EQ(held_pages(), 28);
    CHECK(heap->pages.free_held_pages >= 2);
    void *first = sw_cache_alloc(cache, 4096, 0);
    CHECK(first == p || first == scanned);
    for (int i = 1; i < 8;
         i++) /* both idle ones serve, though the heap has not grown between them */
        CHECK(sw_cache_alloc(cache, 4096, 0) != NULL);
    CHECK_EQ(held_pages(), 28);
    close_idle();
}

int main(void) {
    table = table_of("grows", PAGE, specs, 3);
    doubles_to_the_longest(false);
    doubles_to_the_longest(true);
    counted_by_span_class();
    first_ones_are_short(false);
    first_ones_are_short(true);
    short_at_the_limit();
    fixed_tables_are_as_before();
    sw_table_destroy(table);
    remember_faults();
    table = table_of("idle", PAGE, long_specs, 3);
    longer_ones_serve();
    turns_come_to_an_end();
    pages_apart_do_not_count();
    sw_table_destroy(table);
    return check_result();
}

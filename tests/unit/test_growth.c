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

/* Above 1 KiB: the first length until the class has twice the longest, 12 pages. */
static void waits_above_1_KiB(bool dry) {
    static void *objects[24 * PAGE / 3072];
    open_heap(dry, 0);
    fill(objects, 3072, 3, 0);
    CHECK_STR(lengths(3), "3");
    fill(objects, 3072, 9, 0);
    CHECK_STR(lengths(3), "3333");
    fill(objects, 3072, 12, 0);
    CHECK_STR(lengths(3), "333366");
    close_heap();
}

/* A class that has given its spans back begins with a short one. */
static void shrinks_with_use(void) {
    static void *objects[15 * SLOTS];
    open_heap(false, 0);
    fill(objects, SIZE, 15, 0);
    CHECK_STR(lengths(1), "1248");
    for (uint32_t i = 0; i < 15 * SLOTS; i++) sw_heap_free(heap, objects[i]);
    (void)sw_heap_trim(heap);
    CHECK_STR(lengths(1), "");
    fill(objects, SIZE, 1, 0);
    CHECK_STR(lengths(1), "1");
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

/* The count decides lengths, so a heap whose count is wrong does not verify. */
static void counts_are_verified(void) {
    open_heap(false, 0);
    CHECK(sw_heap_alloc(heap, SIZE, 0) != NULL);
    uint32_t *count = &heap->class_pages[sw_span_class_of(1, true)];
    CHECK_EQ(*count, 1);
    *count = 2;
    CHECK_EQ(sw_heap_verify(heap), SW_STATE);
    CHECK_STR(sw_last_error()->message, "span class 3: its spans have 1 pages, counted as 2");
    *count = 1;
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

/* Spans that are in use, or shorter than what is requested, stay. */
static void others_stay(void) {
    open_idle();
    CHECK(sw_cache_alloc(cache, 8192, 0) != NULL);
    sw_cache_free(cache, sw_cache_alloc(cache, 2048, 0));
    CHECK_EQ(held_pages(), 5);
    CHECK(sw_cache_alloc(cache, 4096, 0) != NULL);
    CHECK_EQ(held_pages(), 7);
    CHECK(cache->bins[sw_span_class_of(1, true)].span != NULL);
    CHECK(cache->bins[sw_span_class_of(3, true)].span != NULL);
    close_idle();
}

/* So does an idle one while the heap has free pages. */
static void free_pages_come_first(void) {
    open_idle();
    void *large = sw_cache_alloc(cache, 8 * PAGE, 0);
    sw_cache_free(cache, sw_cache_alloc(cache, 8192, 0));
    sw_cache_free(cache, large);
    sw_cache_trim(cache);
    sw_cache_free(cache, sw_cache_alloc(cache, 8192, 0));
    CHECK(heap->pages.free_held_pages >= 2);
    CHECK(sw_cache_alloc(cache, 4096, 0) != NULL);
    CHECK(cache->bins[sw_span_class_of(3, true)].span != NULL);
    close_idle();
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

/* Of 69 classes with a page each two are idle, and both are found, whichever they are. */
static void every_class_is_looked_at(void) {
    enum {
        CLASSES = 70,
        LAST = CLASSES - 1,
        LAST_BYTES = 16 * CLASSES,
        LAST_SLOTS = PAGE / LAST_BYTES
    };
    sw_class_spec many[CLASSES];
    sw_table *own = table;
    for (uint32_t i = 0; i < CLASSES; i++) many[i] = (sw_class_spec)SW_CLASS_SPEC(16 * i + 16, 1);
    table = table_of("many", PAGE, many, CLASSES);
    for (int idle = 0; idle < LAST; idle++) {
        void *objects[LAST];
        open_idle();
        for (int i = 0; i < LAST; i++)
            objects[i] =
                sw_cache_alloc_aligned(cache, many[i].size_bytes, 16, i % 2 != 0 ? SW_SCAN : 0);
        sw_cache_free(cache, objects[idle]);
        sw_cache_free(cache, objects[(idle + 31) % LAST]);
        for (int i = 0; i < 2 * LAST_SLOTS; i++)
            CHECK(sw_cache_alloc(cache, LAST_BYTES, 0) != NULL);
        CHECK_EQ(held_pages(), LAST);
        CHECK(sw_cache_alloc(cache, LAST_BYTES, 0) != NULL);
        CHECK_EQ(held_pages(), LAST + 1);
        close_idle();
    }
    sw_table_destroy(table);
    table = own;
}

/* A second free of what was in a span that was given up is reported. */
static void double_frees_are_told(void) {
    open_idle();
    void *p = sw_cache_alloc(cache, 8192, 0), *second = sw_cache_alloc(cache, 8192, 0);
    sw_cache_free(cache, p);
    sw_cache_free(cache, second);
    CHECK(sw_cache_alloc(cache, 2048, 0) == p);
    EXPECT_FAULT(DOUBLE_FREE, second, sw_cache_free(cache, second));
    close_idle();
}

int main(void) {
    table = table_of("grows", PAGE, specs, 3);
    doubles_to_the_longest(false);
    doubles_to_the_longest(true);
    waits_above_1_KiB(false);
    waits_above_1_KiB(true);
    shrinks_with_use();
    counted_by_span_class();
    first_ones_are_short(false);
    first_ones_are_short(true);
    short_at_the_limit();
    counts_are_verified();
    fixed_tables_are_as_before();
    sw_table_destroy(table);
    remember_faults();
    table = table_of("idle", PAGE, long_specs, 3);
    longer_ones_serve();
    turns_come_to_an_end();
    others_stay();
    free_pages_come_first();
    pages_apart_do_not_count();
    every_class_is_looked_at();
    double_frees_are_told();
    sw_table_destroy(table);
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Current spans that are idle serve other classes before the heap grows: by hand, with three classes
 * of fixed lengths. */
#include <stdbool.h>

#include "check.h"
#include "faults.h"
#include "heap/cache.h"
#include "spanwise/spanwise.h"

enum { PAGE = 4096 };

/* One page, two and four of them, each two slots long. */
static const sw_class_spec specs[] = {{2048, 1, 0}, {4096, 2, 0}, {8192, 4, 0}};

static sw_table *table;
static sw_heap *heap;
static sw_cache *cache;

static void open_heap(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
}

static void close_heap(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static uint64_t held_pages(void) { return heap->pages.held_pages; }

/* The long span is idle: the other two classes live in its pages, and then the heap grows. */
static void longer_ones_serve(void) {
    open_heap();
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
    CHECK_EQ(held_pages(), 3 + 4); /* its old place is taken: first fit goes on behind it */
    close_heap();
}

/* Nothing lives, and one class of a page follows another, so that each takes the page of the last one. 64 times,
 * and once more for 64 adopted ones; then each keeps its own: a cache that gave up G of them adopted at most
 * 3 + G, and 64 G <= 64 * 64 + 3 + G, so G is at most 65. After 64 more, another one is given up. */
static void turns_come_to_an_end(void) {
    enum { CLASSES = 3, TURNS = 3000, GIVEN = 65, SLOTS = PAGE / 16 };
    static const sw_class_spec alike[] = {{16, 1, 0}, {32, 1, 0}, {48, 1, 0}};
    sw_table *own = table;
    uint32_t adopted = 0;
    CHECK_EQ(sw_table_create("alike", PAGE, alike, CLASSES, &table), SW_OK);
    open_heap();
    for (uint32_t i = 0; i < TURNS; i++) {
        uint32_t cls = 1 + i % CLASSES;
        adopted += cache->bins[sw_span_class_of(cls, true)].span == NULL;
        sw_cache_free(cache, sw_cache_alloc(cache, 16 * cls, 0));
    }
    CHECK(adopted > 60 && adopted <= CLASSES + GIVEN);
    CHECK_EQ(held_pages(), CLASSES);
    for (int i = 0; i < 64 * SLOTS; i++) CHECK(sw_cache_alloc(cache, 16, 0) != NULL);
    CHECK(held_pages() < CLASSES + 63);
    close_heap();
    sw_table_destroy(table);
    table = own;
}

/* Spans that are in use, or shorter than what is asked for, stay. */
static void others_stay(void) {
    open_heap();
    CHECK(sw_cache_alloc(cache, 8192, 0) != NULL);
    sw_cache_free(cache, sw_cache_alloc(cache, 2048, 0));
    CHECK_EQ(held_pages(), 5);
    CHECK(sw_cache_alloc(cache, 4096, 0) != NULL);
    CHECK_EQ(held_pages(), 7);
    CHECK(cache->bins[sw_span_class_of(1, true)].span != NULL);
    CHECK(cache->bins[sw_span_class_of(3, true)].span != NULL);
    close_heap();
}

/* So does an idle one while the heap has free pages. */
static void free_pages_come_first(void) {
    open_heap();
    void *large = sw_cache_alloc(cache, 8 * PAGE, 0);
    sw_cache_free(cache, sw_cache_alloc(cache, 8192, 0));
    sw_cache_free(cache, large);
    sw_cache_trim(cache);
    sw_cache_free(cache, sw_cache_alloc(cache, 8192, 0));
    CHECK(heap->pages.free_held_pages >= 2);
    CHECK(sw_cache_alloc(cache, 4096, 0) != NULL);
    CHECK(cache->bins[sw_span_class_of(3, true)].span != NULL);
    close_heap();
}

/* Pages 0 to 19 have two objects each, 20 to 27 two idle spans. Every second page becomes idle: more than lie on
 * shelves are free and held, but a span of two pages fits into none of them, so the idle ones are given
 * up for them. */
static void pages_apart_do_not_count(void) {
    enum { SMALL = 2048, COUNT = 40 };
    void *small[COUNT];
    open_heap();
    for (int i = 0; i < COUNT; i++) small[i] = sw_cache_alloc(cache, SMALL, 0);
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
    close_heap();
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
    CHECK_EQ(sw_table_create("many", PAGE, many, CLASSES, &table), SW_OK);
    for (int idle = 0; idle < LAST; idle++) {
        void *objects[LAST];
        open_heap();
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
        close_heap();
    }
    sw_table_destroy(table);
    table = own;
}

/* A second free of what lay in a span that was given up is told. */
static void double_frees_are_told(void) {
    open_heap();
    void *p = sw_cache_alloc(cache, 8192, 0), *second = sw_cache_alloc(cache, 8192, 0);
    sw_cache_free(cache, p);
    sw_cache_free(cache, second);
    CHECK(sw_cache_alloc(cache, 2048, 0) == p);
    EXPECT_FAULT(DOUBLE_FREE, second, sw_cache_free(cache, second));
    close_heap();
}

int main(void) {
    remember_faults();
    CHECK_EQ(sw_table_create("idle", PAGE, specs, 3, &table), SW_OK);
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

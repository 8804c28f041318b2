/* SPDX-License-Identifier: Apache-2.0 */
/* Growth of heaps: the lengths of a class's spans depend on its use, and empty current spans serve
 * other classes before the heap takes more pages. Expected numbers are computed by hand. Then the
 * choice of the span that serves the next request: a partial one by the placement policy, or an
 * idle one of a medium class, which serves its class without the lock, counts as cached, and is
 * released when pages are needed. */
#include "faults.h"
#include "heap/cache.h"
#include "heap/heap.h"
#include "heaps.h"

enum { PAGE = 4096, SIZE = 64, SLOTS = PAGE / SIZE, SPANS_MAX = 64 };

/* Classes of 64 B, 1 to 8 pages; of 128 B, always 2; of 3 KiB, 3 or 6 pages. */
static const sw_class_spec specs[] = {{SIZE, 8, 1}, {128, 2, 0}, {3072, 6, 3}};

static sw_table *table;
static sw_heap *heap;

static void open_heap(bool dry, uint64_t limit_bytes) {
    heap = MADE(sw_heap, o.table = table, o.manual_clock = 1, o.dry = dry,
                o.limit_bytes = limit_bytes);
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
    open_heap(false, 0);
    fill(objects, SIZE, 1, 0);
    sw_cache *other = cache_of(heap);
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
    heap = MADE(sw_heap, o.table = made[0]);
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
    heap = MADE(sw_heap, o.table = table, o.manual_clock = 1);
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

/* --- placement policies ----------------------------------------------------------------------- */

enum { CHOICE_PAGE = 8192, TEN_SLOT = 800, CHOICE_SLOTS = 10, SPANS = 5 };

static char *slots[SPANS][CHOICE_SLOTS];

/* Spans 0 to 4, all full, the last one current. Objects with pointers: these get no hints. */
static void choice_fill(sw_placement placement) {
    static const sw_class_spec specs[] = {{TEN_SLOT, 1, 0}};
    table = table_of("ten", CHOICE_PAGE, specs, 1);
    heap = MADE(sw_heap, o.table = table, o.placement = placement, o.dry = 1, o.manual_clock = 1);
    cache = cache_of(heap);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < CHOICE_SLOTS; i++)
            slots[s][i] = sw_cache_alloc(cache, TEN_SLOT, SW_SCAN);
    for (int s = 1; s < SPANS; s++) CHECK(slots[s][0] == slots[0][0] + s * CHOICE_PAGE);
}

static void free_some(int span, int count) {
    for (int i = 0; i < count; i++) sw_cache_free(cache, slots[span][i]);
}

static int span_of_next(void) {
    char *p = sw_cache_alloc(cache, TEN_SLOT, SW_SCAN);
    CHECK(p != NULL);
    return (int)((p - slots[0][0]) / CHOICE_PAGE);
}

static void end_placement(void) {
    sw_cache_close(cache);
    heap_end(heap);
    sw_table_destroy(table);
}

/* Span `first` serves until it is full, then `second`, then `third`. */
static void serves(const int order[3], const int holes[3]) {
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < holes[order[k]]; i++) CHECK_EQ(span_of_next(), order[k]);
    CHECK_EQ(span_of_next(), SPANS); /* a fresh one */
}

/* central: the cache closes, another takes its spans over. */
static void placement(sw_placement placement, const int holes[3], const int order[3],
                      bool central) {
    choice_fill(placement);
    for (int s = 0; s < 3; s++) free_some(s, holes[s]);
    if (central) {
        sw_cache_close(cache);
        cache = cache_of(heap);
    }
    serves(order, holes);
    end_placement();
}

enum { YOUNG = 1, SECOND = 2, OLD = 3, LAST = SPANS - 1 };

/* A choice, at which all partial spans are looked at. It falls on a span that is full but for one
 * slot: the first and the last in turns, since a current span is not chosen. */
static void choose_once(int *turn) {
    int span = (*turn)++ % 2 == 0 ? 0 : LAST;
    sw_cache_free(cache, slots[span][0]);
    CHECK_EQ(span_of_next(), span);
}

/* One object lives in OLD and one in a younger span of a lower address. Where the class's history has
 * seen objects in young spans die, OLD lasts longer; where it has not, the younger one does.
 *
 * Four choices have looked at OLD: as a new span, then at ages 0, 1 and 2, each time one object of which
 * none was gone: of the first ages 3 seen, 0 gone.
 *  no one saw: YOUNG comes with its one object. A choice looks at both. Then of the first ages 3 seen, 0
 *    gone, of the next ones 1 and 0; the mean lifetime is 16 * 5 / 1 = 80 sixteenths, those of the two
 *    ages are (16 * 3 + 4 * 80) / 4 = 92 and (16 + 320) / 4 = 84: the younger one lasts.
 *  seen: YOUNG comes with 8 objects, a choice looks, 7 are freed, and a choice looks again. Of the first
 *    ages 3 + 8 seen and 7 gone, of the next ones 2 and 0. Mean 16 * 14 / 8 = 28; lifetimes (176 + 112) /
 *    11 = 26 and (32 + 112) / 4 = 36: OLD lasts.
 *  given up: a choice looks at the 8, then all are freed, and SECOND comes with one object. 11 seen and 8
 *    gone, 2 and 0; mean 16 * 14 / 9 = 24; lifetimes (176 + 96) / 12 = 22 and (32 + 96) / 4 = 32: OLD. */
typedef enum deaths { NOBODY_SAW, SEEN, GIVEN_UP } deaths;

static void lasting(deaths young, int next) {
    int turn = 0;
    choice_fill(SW_PLACE_LASTING);
    free_some(OLD, CHOICE_SLOTS - 1);
    for (int i = 0; i < 4; i++) choose_once(&turn);
    free_some(YOUNG, 2);
    if (young != NOBODY_SAW) choose_once(&turn);
    for (int i = 2; i < CHOICE_SLOTS - 1; i++) sw_cache_free(cache, slots[YOUNG][i]);
    if (young == GIVEN_UP) {
        sw_cache_free(cache, slots[YOUNG][CHOICE_SLOTS - 1]);
        free_some(SECOND, CHOICE_SLOTS - 1);
    }
    choose_once(&turn);
    CHECK_EQ(span_of_next(), next);
    end_placement();
}

/* --- idle spans of medium classes -------------------------------------------------------------- */

enum { SECOND_NS = 1000000000 }; /* idle spans of one slot of 8 KiB */

static void make(uint64_t limit_bytes, bool dry, bool tracked) {
    /* every span of a class has one length */
    heap = MADE(sw_heap, o.tracked = tracked, o.table = sw_table_go(), o.manual_clock = 1,
                o.dry = dry, o.limit_bytes = limit_bytes);
    cache = cache_of(heap);
}

/* Turns of the lock. Builds of grade 3 verify the heap in between, each time by one more: there all
 * are 0. */
static uint64_t turns(void) { return SW_CHECK >= 3 ? 0 : locks_of(heap); }

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    heap_end(heap);
}

static void *take(size_t size) {
    void *p = sw_cache_alloc(cache, size, 0);
    CHECK(p != NULL);
    return p;
}

/* Every object is a span of its own. The first n are freed; the last one stays the current span of
 * its class, and its object lives. */
static void *objects[64];
static void free_full(int n) {
    for (int i = 0; i <= n; i++) objects[i] = take(CHOICE_PAGE);
    for (int i = 0; i < n; i++) sw_cache_free(cache, objects[i]);
}

/* The span that was freed last serves first. */
static void serves_its_class(bool dry) {
    make(0, dry, false);
    free_full(3);
    uint64_t before = turns();
    for (int i = 3; i-- > 0;) CHECK(take(CHOICE_PAGE) == objects[i]);
    CHECK_EQ(turns(), before);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.spans, 4);
    CHECK_EQ(l.live_objects, 4);
    CHECK_EQ(l.cached_bytes, 0);
    end();
}

/* Idle spans are released at the cache's first request for a span after a tick, by a trim, and when
 * the cache closes. */
static void is_cached(bool dry) {
    make(0, dry, false);
    free_full(5);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.spans, 6);
    CHECK_EQ(l.cached_bytes, 5 * CHOICE_PAGE);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.live_objects, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_set_time(heap, SECOND_NS);
    CHECK_EQ(ledger_of(heap).cached_bytes, 5 * CHOICE_PAGE);
    sw_cache_free(cache, take(16));
    CHECK_EQ(ledger_of(heap).cached_bytes,
             CHOICE_PAGE); /* the span of 16 B: it became idle after the tick */
    sw_cache_trim(cache);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    free_full(3);
    CHECK_EQ(ledger_of(heap).cached_bytes, 3 * CHOICE_PAGE);
    sw_cache_trim(cache);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    free_full(3);
    sw_cache_close(cache);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    CHECK_EQ(ledger_of(heap).spans, 3); /* those of the objects that live */
    cache = cache_of(heap);
    end();
}

/* A span of another class takes the pages of an idle one, so that the heap does not grow. */
static void pages_are_used(bool dry) {
    make(0, dry, false);
    free_full(3);
    uint64_t held = ledger_of(heap).held_bytes;
    char *p = take(4096);
    CHECK(p == objects[0]);
    CHECK_EQ(ledger_of(heap).held_bytes, held);
    CHECK_EQ(ledger_of(heap).cached_bytes, 2 * CHOICE_PAGE + 4096);
    end();
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
    static const int holes[] = {5, 2, 7}, middle_least[] = {1, 0, 2};
    static const int by_address[] = {0, 1, 2}, newest_first[] = {2, 1, 0};
    static const int equal[] = {4, 4, 4}, falling[] = {9, 8, 1}, last_least[] = {2, 1, 0};
    placement(SW_PLACE_LIFO, holes, newest_first, false);
    for (int central = 0; central < 2; central++) {
        placement(SW_PLACE_ADDRESS, holes, by_address, central != 0);
        placement(SW_PLACE_ADDRESS, falling, by_address, central != 0);
        placement(SW_PLACE_FULLEST, holes, middle_least, central != 0);
        placement(SW_PLACE_FULLEST, falling, last_least, central != 0);
        placement(SW_PLACE_FULLEST, equal, by_address, central != 0);
        /* Spans that came together have one age, so the order is that of what lives in them. */
        placement(SW_PLACE_LASTING, holes, middle_least, central != 0);
        placement(SW_PLACE_LASTING, falling, last_least, central != 0);
        placement(SW_PLACE_LASTING, equal, by_address, central != 0);
    }
    lasting(NOBODY_SAW, YOUNG);
    lasting(SEEN, OLD);
    lasting(GIVEN_UP, OLD);
    remember_faults();
    for (int dry = 0; dry < 2; dry++) {
        serves_its_class(dry);
        is_cached(dry);
        pages_are_used(dry);
    }
    return check_result();
}

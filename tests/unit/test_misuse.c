/* SPDX-License-Identifier: Apache-2.0 */
/* Every invalid free is detected, named, and harmless if the handler continues; without a handler
 * the process prints one exact line and aborts. The same holds for large objects that caches keep,
 * in every kind of heap, with the limit and the records of such objects. Frees that race with
 * reuse: test_large_storm.c. */
#include <stdbool.h>

#include "check.h"
#include "dying_words.h"
#include "faults.h"
#include "heap/target.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

static void each_kind(size_t size, const sw_table *table) {
    sw_heap *heap = heap_with((heap_setting){.table = table});
    sw_heap *other = heap_with((heap_setting){.table = table});
    char *p = sw_heap_alloc(heap, size, 0), *q = sw_heap_alloc(heap, size, 0);
    char *theirs = sw_heap_alloc(other, size, 0);
    int local;
    EXPECT_FAULT(FOREIGN, &local, sw_heap_free(heap, &local));
    EXPECT_FAULT(FOREIGN, &each_kind, sw_heap_free(heap, (void *)(uintptr_t)&each_kind));
    EXPECT_FAULT(FOREIGN, 8, sw_heap_free(heap, (void *)8));
    EXPECT_FAULT(INTERIOR, p + 1, sw_heap_free(heap, p + 1));
    if (size >= 16) EXPECT_FAULT(INTERIOR, p + 8, sw_heap_free(heap, p + 8));
    EXPECT_FAULT(WRONG_HEAP, theirs, sw_heap_free(heap, theirs));
    EXPECT_FAULT(INTERIOR, p + 1, (void)sw_heap_realloc(heap, p + 1, 10, 0));
    EXPECT_FAULT(FOREIGN, &local, (void)sw_heap_usable_size(heap, &local));
    EXPECT_FAULT(SIZE_MISMATCH, p, sw_heap_free_sized(heap, p, size * 3 + 1));
    sw_heap_free_sized(heap, q, size);
    EXPECT_FAULT(DOUBLE_FREE, q, sw_heap_free(heap, q));
    sw_heap_free(heap, p);
    EXPECT_FAULT(DOUBLE_FREE, p, sw_heap_free(heap, p));
    EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_heap_realloc(heap, p, 10, 0));
    CHECK_EQ(seen.heap_id == sw_heap_id(heap) || seen.heap_id == 0, 1);
    heap_end(heap);
    heap_end(other);
}

/* Offsets past the last slot: 48-byte slots leave a tail of 32 bytes in the first span,
 * of 8 KiB. */
static void past_the_last_slot(void) {
    sw_heap *heap = heap_with((heap_setting){0});
    char *p = sw_heap_alloc(heap, 48, 0);
    char *tail = p + (8192 / 48) * 48;
    EXPECT_FAULT(PAST_LAST_SLOT, tail, sw_heap_free(heap, tail));
    EXPECT_FAULT(PAST_LAST_SLOT, tail + 8, sw_heap_free(heap, tail + 8));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Every byte of a small heap's first span: exactly the live starts are accepted. */
static void every_offset(void) {
    sw_heap *heap = heap_with((heap_setting){0});
    char *p = sw_heap_alloc(heap, 100, 0); /* slots of 112 bytes, 73 of them in 8 KiB */
    for (int offset = 1; offset < 8192; offset++) {
        seen_count = 0;
        sw_heap_free(heap, p + offset);
        CHECK_EQ(seen_count, 1);
        sw_misuse want = offset >= 73 * 112  ? SW_MISUSE_PAST_LAST_SLOT
                         : offset % 112 != 0 ? SW_MISUSE_INTERIOR
                                             : SW_MISUSE_DOUBLE_FREE;
        CHECK_STR(sw_misuse_name(seen.code), sw_misuse_name(want));
    }
    sw_heap_free(heap, p);
    heap_end(heap);
}

static void tiny_blocks(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.tiny = 1;
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    char *a = sw_heap_alloc(heap, 4, 0), *b = sw_heap_alloc(heap, 4, 0);
    char *c = sw_heap_alloc(heap, 8, 0), *d = sw_heap_alloc(heap, 1, 0);
    CHECK(b == a + 4 && c == a + 8);               /* one 16-byte block holds three */
    CHECK((uintptr_t)d / 16 != (uintptr_t)a / 16); /* and is full */
    CHECK(*a == 0 && *b == 0 && *c == 0 && *d == 0);
    EXPECT_FAULT(COLLECTED, a, sw_heap_free(heap, a));
    EXPECT_FAULT(COLLECTED, a, (void)sw_heap_realloc(heap, a, 12, 0)); /* would grow over b */
    seen_count = 0;
    CHECK_EQ(sw_heap_usable_size(heap, a), 0); /* b begins in it */
    CHECK_EQ(sw_heap_usable_size(heap, b), 0);
    CHECK_EQ(sw_heap_usable_size(heap, c), 0);
    CHECK_EQ(seen_count, 0);
    char *e = sw_heap_alloc(heap, 4, SW_SCAN); /* with pointers: a slot of its own */
    sw_heap_free(heap, e);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void free_twice(void) {
    void *p = sw_malloc(100);
    sw_free(p);
    sw_free(p);
}

/* Without a handler: the line, then SIGABRT. */
static void prints_and_aborts(void) {
    char text[DYING_WORDS_MAX];
    dying_words(free_twice, text);
    CHECK(strncmp(text, "spanwise: fatal: DOUBLE_FREE op=free ptr=0x", 43) == 0);
    CHECK(strstr(text, " size=112 heap=1 thread=") != NULL);
    CHECK(strstr(text, "\nspanwise: object is already free\n") != NULL);
}

/* --- large objects ---------------------------------------------------------------------------- */

enum { K = 1 << 10, M = 1 << 20 };

static sw_heap *heap;

/* Whether one fault was reported since the last call, and it was this one. */
static bool reported(sw_misuse misuse) {
    bool as_expected = seen_count == 1 && seen.code == misuse;
    seen_count = 0;
    return as_expected;
}

/* --- one object at a time, in every kind of heap ---------------------------------------------- */

/* Each way to name an object that a cache keeps, from its own cache and from another. */
static void name_freed(sw_cache *const *caches, unsigned char *p, size_t size, size_t page) {
    for (int i = 0; i < 2; i++) {
        sw_cache_free(caches[i], p);
        CHECK(reported(SW_MISUSE_DOUBLE_FREE));
        sw_cache_free(caches[i], p + size / page / 2 * page);
        CHECK(reported(SW_MISUSE_DOUBLE_FREE));
        CHECK(sw_cache_realloc(caches[i], p, size + 1, 0) == NULL);
        CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    }
    sw_heap_free_sized(heap, p, size);
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    sw_heap_free_sized(heap, p, 1);
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    CHECK_EQ(sw_heap_usable_size(heap, p), 0);
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
}

static void name_live(unsigned char *p, size_t size) {
    sw_heap_free(heap, p + size / 2);
    CHECK(reported(SW_MISUSE_INTERIOR));
    sw_heap_free_sized(heap, p, sw_heap_usable_size(heap, p) + 1);
    CHECK(reported(SW_MISUSE_SIZE_MISMATCH));
}

/* Written, shelved, and asked for again: zeroed, scanned, with weaker and stronger alignment. */
static void one_size(sw_cache *const *caches, size_t size, size_t page) {
    bool dry = sw_heap_is_dry(heap) != 0;
    for (unsigned flags = 0; flags < 4; flags++) {
        for (size_t align = 1; align <= 8 * page; align *= 8) {
            unsigned char *p = sw_cache_alloc_aligned(caches[0], size, align, flags);
            CHECK(p != NULL && (uintptr_t)p % align == 0);
            if (!dry && flags != 0) CHECK(all_are(p, size, 0));
            if (!dry) memset(p, 0xAA, size);
            name_live(p, size);
            sw_cache_free(caches[0], p);
            name_freed(caches, p, size, page);
            CHECK_EQ(sw_heap_verify(heap), SW_OK);
        }
    }
}

static void one_heap(heap_setting setting) {
    heap = heap_with(setting);
    sw_cache *const caches[2] = {cache_of(heap), cache_of(heap)};
    const sw_table *table = sw_heap_table(heap);
    size_t page = sw_table_page_bytes(table), least = sw_table_max_bytes(table) + 1;
    one_size(caches, least, page);
    one_size(caches, least + page, page);
    one_size(caches, M, page);
    one_size(caches, M + 1, page);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    heap_end(heap);
}

static void every_heap(void) {
    static const sw_class_spec specs[] = {{8, 1, 0}, {16, 1, 0}, {1024, 1, 0}};
    sw_table *tables[3] = {NULL};
    CHECK_EQ(sw_table_create("pages of 4 KiB", 4 * K, specs, 3, &tables[1]), SW_OK);
    CHECK_EQ(sw_table_create("pages of 64 KiB", 64 * K, specs, 3, &tables[2]), SW_OK);
    for (int i = 0; i < 3; i++) {
        for (int mode = 0; mode < 8; mode++) {
            one_heap((heap_setting){.table = tables[i],
                                    .tracked = (mode & 1) != 0,
                                    .dry = (mode & 2) != 0,
                                    .tiny = (mode & 4) != 0,
                                    .manual_clock = true});
        }
    }
    sw_table_destroy(tables[1]);
    sw_table_destroy(tables[2]);
}

/* --- the limit -------------------------------------------------------------------------------- */

/* Large objects take all of a heap that has few records. Small ones follow, in shelved and free
 * pages, and need more: over the limit for that, the heap holds no page that it could give back. */
static void limit_beside_shelved(uint64_t seed) {
    static void *p[1024];
    size_t n = 0;
    const uint64_t limit_bytes = 2 * M + seed * 16 * K;
    heap = heap_with((heap_setting){
        .limit_bytes = limit_bytes, .decay_ns = SW_DECAY_NEVER, .manual_clock = true});
    while ((p[n] = sw_heap_alloc(heap, 33000 + check_random(&seed) % 90000, 0)) != NULL) n++;
    while (n < 1024 && (p[n] = sw_heap_alloc(heap, 8 * K, 0)) != NULL) n++;
    while (n > 0) sw_heap_free(heap, p[--n]);
    for (int i = 0; i < 1200; i++) {
        if (i % 40 == 0) sw_heap_free(heap, sw_heap_alloc(heap, 64 * K, 0));
        uint64_t r = check_random(&seed);
        (void)sw_heap_alloc(heap, 8 + r % 4000, r >> 32 & SW_SCAN);
        if (sw_heap_held_bytes(heap) <= limit_bytes) continue;
        CHECK_EQ(ledger_of(heap).free_page_bytes, 0);
    }
    heap_end(heap);
}

/* --- records ---------------------------------------------------------------------------------- */

/* The last records of a space are an object's that a cache keeps: another cache gets them. */
static void records_run_out(void) {
    heap = heap_with((heap_setting){.dry = true, .decay_ns = SW_DECAY_NEVER, .manual_clock = true});
    sw_cache *const caches[2] = {cache_of(heap), cache_of(heap)};
    heap->space->span_limit = heap->space->span_committed;
    void *first = sw_cache_alloc(caches[1], 2 * M, 0);
    while (sw_cache_alloc(caches[1], 2 * M, 0) != NULL) {
    }
    sw_cache_free(caches[1], first);
    sw_cache_free(caches[0], sw_cache_alloc(caches[0], 64 * K, 0));
    CHECK_EQ(ledger_of(heap).cached_bytes, 64 * K);
    CHECK(sw_cache_alloc(caches[1], 2 * M, 0) != NULL);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    heap_end(heap);
}

/* A free that comes while another gives the record up is a double free, of no other heap. */
static void record_given_up(void) {
    heap = heap_with((heap_setting){.manual_clock = true});
    void *p = sw_heap_alloc(heap, 2 * M, 0);
    sw_span_cold *cold = sw_space_cold(heap->space, sw_target_find(heap, p).span);
    cold->heap = NULL;
    sw_heap_free(heap, p);
    cold->heap = heap;
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    sw_heap_free(heap, p);
    heap_end(heap);
}

int main(void) {
    prints_and_aborts();
    remember_faults();
    const size_t sizes[] = {8, 16, 48, 100, 500, 2000, 9000, 32768, 40000, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        each_kind(sizes[i], sw_table_go());
        each_kind(sizes[i], sw_table_c16());
    }
    past_the_last_slot();
    every_offset();
    tiny_blocks();
    every_heap();
    for (uint64_t seed = 1; seed <= 16; seed++) limit_beside_shelved(seed);
    records_run_out();
    record_given_up();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The specialised paths against the generic one: the same class for every size, and memory that is
 * zeroed when the rules say so, and only then. */
#include <stdbool.h>

#include "check.h"
#include "gen/paths.h"
#include "heap/default.h"
#include "heap/target.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

static sw_heap *make_heap(const sw_table *table, bool tracked, bool tiny) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = tracked; /* tracked heaps take the generic path */
    options.tiny = tiny;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

static uint32_t span_class_of(sw_heap *heap, const void *p) {
    sw_target target = sw_target_find(heap, p);
    CHECK_EQ(target.misuse, SW_MISUSE_NONE);
    return target.span->span_class;
}

static bool all_are(const unsigned char *p, size_t n, unsigned char byte) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte) return false;
    return true;
}

/* Same class and slot number as a generic heap that is asked for the same things. */
static void same_as_generic(const sw_table *table, sw_path_fn *const *paths, uint32_t cutoff,
                            unsigned scan) {
    sw_heap *fast = make_heap(table, false, false), *generic = make_heap(table, true, false);
    sw_cache *cache, *other;
    CHECK_EQ(sw_cache_open(fast, &cache), SW_OK);
    CHECK_EQ(sw_cache_open(generic, &other), SW_OK);
    for (int round = 0; round < 12; round++) {
        for (size_t size = 0; size <= cutoff; size++) {
            unsigned flags = scan | (size % 3 == 0 ? SW_ZERO : 0u);
            char *p = paths[size](cache, size, flags), *q = sw_cache_alloc(other, size, flags);
            CHECK(p != NULL && q != NULL);
            CHECK_EQ(span_class_of(fast, p), span_class_of(generic, q));
            CHECK_EQ(span_class_of(fast, p) & 1, scan == 0);
            CHECK_EQ(span_class_of(fast, p) / 2, sw_table_class_of(table, size));
            CHECK_EQ((uintptr_t)p - fast->pages.windows[0].base,
                     (uintptr_t)q - generic->pages.windows[0].base);
            if (size % 2 == (size_t)round % 2) {
                sw_cache_free(cache, p);
                sw_cache_free(other, q);
            }
        }
    }
    CHECK_EQ(sw_heap_verify(fast), SW_OK);
    CHECK_EQ(sw_heap_verify(generic), SW_OK);
    sw_cache_close(cache);
    sw_cache_close(other);
    CHECK_EQ(sw_heap_destroy(fast), SW_OK);
    CHECK_EQ(sw_heap_destroy(generic), SW_OK);
}

/* Fills every slot of a span with bytes and frees it, so that the next object has old bytes. */
static void zeroing(const sw_table *table, sw_path_fn *const *paths, uint32_t cutoff, bool scan) {
    sw_heap *heap = make_heap(table, false, false);
    sw_cache *cache;
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (size_t size = 1; size <= cutoff; size++) {
        unsigned kind = scan ? SW_SCAN : 0u;
        size_t slot = sw_table_round_up(table, size);
        unsigned char *old = paths[size](cache, size, kind);
        memset(old, 0xA5, slot);
        sw_cache_free(cache, old);
        unsigned char *p = NULL;
        void *others[2000];
        size_t count = 0;
        while (count < 2000 && p != old) /* until the slot comes round again */
            others[count++] = p = paths[size](cache, size, kind);
        CHECK(p == old);
        CHECK(all_are(p, slot, scan ? 0 : 0xA5)); /* noscan: not cleared unless asked */
        memset(p, 0xA5, slot);
        for (size_t i = 0; i < count; i++) sw_cache_free(cache, others[i]);
        for (count = 0, p = NULL; count < 2000 && p != old;)
            others[count++] = p = paths[size](cache, size, kind | SW_ZERO);
        CHECK(p == old && all_are(p, slot, 0));
        for (size_t i = 0; i < count; i++) sw_cache_free(cache, others[i]);
    }
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Tiny objects share blocks, do not overlap, are aligned as their size allows, and read as zero. */
static void tiny_paths(void) {
    sw_heap *heap = make_heap(sw_table_go(), false, true);
    sw_cache *cache;
    uint64_t rng = 4, bytes = 0, blocks = 0;
    uintptr_t end = 0, block = 0;
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (int i = 0; i < 20000; i++) {
        size_t size = 1 + check_random(&rng) % 15;
        unsigned flags = i % 3 == 0 ? SW_ZERO : 0u;
        unsigned char *p = i % 2 == 0 ? sw_paths_go_tiny[size](cache, size, flags)
                                      : sw_cache_alloc(cache, size, flags);
        uintptr_t at = (uintptr_t)p;
        CHECK(all_are(p, size, 0));
        CHECK_EQ(at % (size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1), 0);
        CHECK_EQ(at / 16, (at + size - 1) / 16); /* inside one block */
        if (at / 16 == block) CHECK(at >= end);
        if (at / 16 != block) blocks++;
        block = at / 16;
        end = at + size;
        bytes += size;
        memset(p, 0xFF, size);
    }
    CHECK(blocks * 16 < bytes * 2);
    CHECK(blocks * 16 >= bytes);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Where malloc of the default table finds the bin of a size. */
static void default_pairs(void) {
    const sw_table *table = sw_table_default();
    for (uint32_t n = 0; n <= SW_FAST_SIZE_MAX; n++) {
        uint32_t span_class = sw_span_class_of(sw_size_class(table, n), false);
        CHECK_EQ(sw_default_pairs[(n + 7) >> 3], span_class * sizeof(sw_cache_bin));
    }
    CHECK_EQ(SW_DEFAULT_CUTOFF, SW_DEFAULT_PATHS.cutoff);
}

/* Which path serves: specialised ones up to the cut-off, in plain heaps of tables that have them, and
 * none where a sanitizer is at work. */
static void which_path(void) {
    sw_path small = SANITIZED ? SW_PATH_GENERIC : SW_PATH_SPECIALISED;
    sw_heap *plain = make_heap(sw_table_c16(), false, false);
    sw_heap *tracked = make_heap(sw_table_c16(), true, false);
    CHECK_EQ(sw_heap_path(plain, 0, 0), small);
    CHECK_EQ(sw_heap_path(plain, 512, SW_SCAN), small);
    CHECK_EQ(sw_heap_path(plain, 513, 0), SW_PATH_GENERIC);
    CHECK_EQ(sw_heap_path(plain, 32769, 0), SW_PATH_LARGE);
    CHECK_EQ(sw_heap_path(tracked, 8, 0), SW_PATH_GENERIC);
    CHECK_EQ(sw_heap_path(sw_heap_default(), 8, 0), small);
    CHECK_EQ(sw_heap_destroy(plain), SW_OK);
    CHECK_EQ(sw_heap_destroy(tracked), SW_OK);
}

int main(void) {
    which_path();
    CHECK_EQ(sw_paths_go_cutoff, 512);
    CHECK_EQ(sw_paths_c16_cutoff, 512);
    same_as_generic(sw_table_go(), sw_paths_go_scan, 512, SW_SCAN);
    same_as_generic(sw_table_go(), sw_paths_go_noscan, 512, 0);
    same_as_generic(sw_table_c16(), sw_paths_c16_scan, 512, SW_SCAN);
    same_as_generic(sw_table_c16(), sw_paths_c16_noscan, 512, 0);
    zeroing(sw_table_go(), sw_paths_go_scan, 512, true);
    zeroing(sw_table_go(), sw_paths_go_noscan, 512, false);
    zeroing(sw_table_c16(), sw_paths_c16_scan, 512, true);
    zeroing(sw_table_c16(), sw_paths_c16_noscan, 512, false);
    tiny_paths();
    default_pairs();
    return check_result();
}

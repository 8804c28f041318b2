/* SPDX-License-Identifier: Apache-2.0 */
/* Specialised and inline paths against the generic one: the same classes, the same validation, and
 * memory is zeroed exactly when the rules require it. */
#include <errno.h>

#include "faults.h"
#include "gen/paths.h"
#include "heap/default.h"
#include "heap/target.h"
#include "heaps.h"
#include "spanwise/fast.h"

/* The size must be a constant where sw_fast_malloc is written. */
#define SIZE_CASE(n)                                                                               \
    do {                                                                                           \
        char *p_ = sw_fast_malloc(n), *q_ = sw_malloc(n), *z_;                                     \
        CHECK(p_ != NULL && q_ != NULL && p_ != q_);                                               \
        CHECK_EQ(sw_usable_size(p_), sw_usable_size(q_));                                          \
        memset(p_, 0x3C, sw_usable_size(p_));                                                      \
        sw_fast_free(p_);                                                                          \
        for (int k_ = 0; k_ < 3; k_++) {                                                           \
            z_ = sw_fast_zalloc(n);                                                                \
            CHECK(z_ != NULL && all_are(z_, (n), 0));                                              \
            memset(z_, 0x77, sw_usable_size(z_));                                                  \
            sw_free(z_);                                                                           \
        }                                                                                          \
        sw_fast_free(q_);                                                                          \
    } while (0)

static void constant_sizes(void) {
    SIZE_CASE(0);
    SIZE_CASE(1);
    SIZE_CASE(8);
    SIZE_CASE(9);
    SIZE_CASE(16);
    SIZE_CASE(24);
    SIZE_CASE(33);
    SIZE_CASE(48);
    SIZE_CASE(100);
    SIZE_CASE(112);
    SIZE_CASE(255);
    SIZE_CASE(256);
    SIZE_CASE(500);
    SIZE_CASE(512);
    SIZE_CASE(513);
    SIZE_CASE(1000);
    SIZE_CASE(1024);
    SIZE_CASE(1025);
    SIZE_CASE(5000);
    SIZE_CASE(32768);
    SIZE_CASE(32769);
    SIZE_CASE(1000000);
}

/* Objects of the word in use and of other words, other sizes, and every kind of wrong pointer. */
static void sized_frees(void) {
    static char *p[200];
    for (int i = 0; i < 200; i++) p[i] = sw_fast_malloc(48);
    for (int i = 0; i < 200; i++) sw_fast_free_sized(p[i], 48);
    for (int i = 0; i < 200; i++) p[i] = sw_fast_malloc(40);
    for (int i = 199; i >= 0; i--) sw_fast_free_sized(p[i], 33); /* the same class */
    char *q = sw_fast_malloc(48);
    EXPECT_FAULT(SIZE_MISMATCH, q, sw_fast_free_sized(q, 64));
    EXPECT_FAULT(INTERIOR, q + 16, sw_fast_free_sized(q + 16, 48));
    sw_fast_free_sized(q, 48);
    EXPECT_FAULT(DOUBLE_FREE, q, sw_fast_free_sized(q, 48));
    seen_count = 0;
    sw_fast_free_sized(NULL, 48);
    CHECK_EQ(seen_count, 0);
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
}

static void misuse(void) {
    int local;
    char *p = sw_fast_malloc(48), *keep = sw_fast_malloc(48), *large = sw_fast_malloc(100000);
    EXPECT_FAULT(INTERIOR, p + 1, sw_fast_free(p + 1));
    EXPECT_FAULT(INTERIOR, p + 16, sw_fast_free(p + 16));
    EXPECT_FAULT(INTERIOR, large + 4096, sw_fast_free(large + 4096));
    EXPECT_FAULT(FOREIGN, &local, sw_fast_free(&local));
    EXPECT_FAULT(FOREIGN, (void *)1, sw_fast_free((void *)1));
    EXPECT_FAULT(FOREIGN, (void *)(uintptr_t)0xFFFFFFFFFFFFFFF0u,
                 sw_fast_free((void *)(uintptr_t)0xFFFFFFFFFFFFFFF0u));
    sw_fast_free(p);
    EXPECT_FAULT(DOUBLE_FREE, p, sw_fast_free(p));
    sw_fast_free(large);
    EXPECT_FAULT(DOUBLE_FREE, large, sw_fast_free(large));
    seen_count = 0;
    errno = 33;
    sw_fast_free(NULL);
    sw_fast_free(keep);
    CHECK_EQ(seen_count, 0);
    CHECK_EQ(errno, 33);
}

static uint32_t span_class_of(sw_heap *heap, const void *p) {
    sw_target target = sw_target_find(heap, p);
    CHECK_EQ(target.misuse, SW_MISUSE_NONE);
    return target.span->span_class;
}

/* Same class and slot number as a generic heap that gets the same requests. */
static void same_as_generic(const sw_table *table, sw_path_fn *const *paths, uint32_t cutoff) {
    sw_heap *fast = MADE(sw_heap, o.table = table),
            *generic = MADE(sw_heap, o.table = table, o.tracked = true);
    sw_cache *cache, *other;
    cache = cache_of(fast);
    other = cache_of(generic);
    for (int round = 0; round < 12; round++) {
        for (size_t size = 0; size <= cutoff; size++) {
            unsigned flags = SW_SCAN | (size % 3 == 0 ? SW_ZERO : 0u);
            char *p = paths[size](cache, size, flags), *q = sw_cache_alloc(other, size, flags);
            CHECK(p != NULL && q != NULL);
            CHECK_EQ(span_class_of(fast, p), span_class_of(generic, q));
            CHECK_EQ(span_class_of(fast, p) & 1, 0);
            CHECK_EQ(span_class_of(fast, p) / 2, sw_table_class_of(table, size));
            CHECK_EQ((uintptr_t)p - fast->pages.windows[0].base,
                     (uintptr_t)q - generic->pages.windows[0].base);
            if (size % 2 == (size_t)round % 2) {
                sw_cache_free(cache, p);
                sw_cache_free(other, q);
            }
        }
    }
    sw_cache_close(cache);
    sw_cache_close(other);
    heap_end(fast);
    heap_end(generic);
}

/* Fills every slot of a span with bytes and frees it, so that the next object has old bytes. */
static void zeroing(const sw_table *table, sw_path_fn *const *paths, uint32_t cutoff) {
    sw_heap *heap = MADE(sw_heap, o.table = table);
    sw_cache *cache = cache_of(heap);
    for (size_t size = 1; size <= cutoff; size++) {
        size_t slot = sw_table_round_up(table, size);
        unsigned char *old = paths[size](cache, size, SW_SCAN);
        memset(old, 0xA5, slot);
        sw_cache_free(cache, old);
        unsigned char *p = NULL;
        void *others[2000];
        size_t count = 0;
        while (count < 2000 && p != old) /* until the slot comes round again */
            others[count++] = p = paths[size](cache, size, SW_SCAN);
        CHECK(p == old && all_are(p, slot, 0));
        for (size_t i = 0; i < count; i++) sw_cache_free(cache, others[i]);
    }
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Tiny objects share blocks, do not overlap, are aligned as their size allows, and read as zero. */
static void tiny_paths(void) {
    sw_heap *heap = MADE(sw_heap, o.table = sw_table_go(), o.tiny = true);
    uint64_t rng = 4, bytes = 0, blocks = 0;
    uintptr_t end = 0, block = 0;
    sw_cache *cache = cache_of(heap);
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
}

/* Which path serves: specialised ones up to the cut-off, in plain heaps of tables that have them,
 * and none where a sanitizer is at work. */
static void which_path(void) {
    sw_path small = SANITIZED ? SW_PATH_GENERIC : SW_PATH_SPECIALISED;
    sw_heap *plain = MADE(sw_heap, o.table = sw_table_c16());
    sw_heap *tracked = MADE(sw_heap, o.table = sw_table_c16(), o.tracked = true);
    CHECK_EQ(sw_heap_path(plain, 0, SW_SCAN), small);
    CHECK_EQ(sw_heap_path(plain, 512, 0), SW_PATH_GENERIC);
    CHECK_EQ(sw_heap_path(plain, 512, SW_SCAN), small);
    CHECK_EQ(sw_heap_path(plain, 513, SW_SCAN), SW_PATH_GENERIC);
    CHECK_EQ(sw_heap_path(plain, 32769, 0), SW_PATH_LARGE);
    CHECK_EQ(sw_heap_path(tracked, 8, SW_SCAN), SW_PATH_GENERIC);
    CHECK_EQ(sw_heap_path(sw_heap_default(), 8, SW_SCAN), small);
    CHECK_EQ(sw_heap_destroy(plain), SW_OK);
    CHECK_EQ(sw_heap_destroy(tracked), SW_OK);
}

int main(void) {
    void *first = sw_fast_malloc(100); /* before this thread has a cache */
    CHECK(first != NULL);
    sw_fast_free(first);
    remember_faults();
    constant_sizes();
    misuse();
    sized_frees();
    which_path();
    CHECK_EQ(sw_paths_go_cutoff, 512);
    CHECK_EQ(sw_paths_c16_cutoff, 512);
    same_as_generic(sw_table_go(), sw_paths_go_scan, 512);
    same_as_generic(sw_table_c16(), sw_paths_c16_scan, 512);
    zeroing(sw_table_go(), sw_paths_go_scan, 512);
    zeroing(sw_table_c16(), sw_paths_c16_scan, 512);
    tiny_paths();
    default_pairs();
    return check_result();
}

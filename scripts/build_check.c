/* SPDX-License-Identifier: Apache-2.0 */
/* The check that `spanwise build` runs on a build. It is compiled twice: as a user of the library
 * and its inline paths, and (CHECK_MALLOC) as a program that only uses malloc. Every request up to
 * and beyond the largest class must get a slot of the right class, with its size and alignment, and
 * no two objects may share a byte. Exit status 0, or 1 and one line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CHECK_MALLOC
#include <malloc.h>
#else
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>
#endif

enum { BATCH = 64 };

#define REQUIRE(condition, size)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "a request of %zu bytes: not %s\n", (size_t)(size), #condition); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#ifdef CHECK_MALLOC

static void *take(size_t size) { return malloc(size); }
static void give(void *p) { free(p); }

static void check_object(const void *p, size_t size) {
    size_t usable = malloc_usable_size((void *)(uintptr_t)p);
    REQUIRE(p != NULL, size);
    REQUIRE(usable >= size, size);
    REQUIRE(size < 16 || (uintptr_t)p % 16 == 0, size);
    REQUIRE((uintptr_t)p % 8 == 0, size);
}

static size_t largest(void) { return CHECK_LARGEST; }

static void check_rest(void) {
    for (size_t align = 16; align <= 65536; align *= 2) {
        void *p = NULL;
        REQUIRE(posix_memalign(&p, align, 100) == 0, 100);
        REQUIRE((uintptr_t)p % align == 0, 100);
        free(p);
    }
    for (size_t size = 1; size < 100000; size += size / 3 + 1) {
        unsigned char *p = calloc(1, size);
        REQUIRE(p != NULL && p[0] == 0 && p[size - 1] == 0, size);
        p[size - 1] = 7;
        p = realloc(p, size * 2);
        REQUIRE(p != NULL && p[size - 1] == 7, size);
        free(p);
    }
}

#else

static const sw_table *table;

static void *take(size_t size) { return sw_malloc(size); }
static void give(void *p) { sw_free(p); }

static void check_object(const void *p, size_t size) {
    REQUIRE(p != NULL, size);
    size_t usable = sw_usable_size(p);
    uint32_t cls = sw_table_class_of(table, size);
    if (cls == 0) {
        REQUIRE(usable >= size, size);
        return;
    }
    sw_class_info info, below = {0};
    REQUIRE(sw_table_class(table, cls, &info) == SW_OK, size);
    REQUIRE(usable == info.size_bytes && usable >= size, size);
    REQUIRE((uintptr_t)p % info.min_align == 0, size);
    if (cls > 1) REQUIRE(sw_table_class(table, cls - 1, &below) == SW_OK, size);
    REQUIRE(size == 0 || below.size_bytes < size, size);
}

static size_t largest(void) { return sw_table_max_bytes(table); }

#define CHECK_INLINE(size)                                                                         \
    do {                                                                                           \
        void *inline_p = sw_fast_malloc(size);                                                     \
        check_object(inline_p, size);                                                              \
        sw_fast_free(inline_p);                                                                    \
    } while (0)

static void check_rest(void) {
    REQUIRE(table == sw_table_default(), 0);
    REQUIRE(sw_table_hash(table) == SW_FAST_TABLE_HASH, 0);
    REQUIRE(strcmp(sw_table_name(table), SW_FAST_TABLE_NAME) == 0, 0);
    /* A request of 0 bytes has a path of the default table, even if the cut-off is 0. */
    REQUIRE(sw_heap_path(sw_heap_default(), 0, SW_SCAN) == SW_PATH_SPECIALISED, 0);
    CHECK_INLINE(1);
    CHECK_INLINE(8);
    CHECK_INLINE(9);
    CHECK_INLINE(16);
    CHECK_INLINE(17);
    CHECK_INLINE(24);
    CHECK_INLINE(33);
    CHECK_INLINE(64);
    CHECK_INLINE(100);
    CHECK_INLINE(129);
    CHECK_INLINE(257);
    CHECK_INLINE(512);
    CHECK_INLINE(1000);
    CHECK_INLINE(1024);
    REQUIRE(sw_heap_verify(sw_heap_default()) == SW_OK, 0);
}

#endif

/* Allocate and fill a batch of objects of one size, and check that no object overwrites another. */
static void check_size(size_t size) {
    unsigned char *objects[BATCH];
    size_t shown = size < 4096 ? size : 4096;
    for (int i = 0; i < BATCH; i++) {
        objects[i] = take(size);
        check_object(objects[i], size);
        memset(objects[i], i, shown);
        if (size > 0) objects[i][size - 1] = (unsigned char)i;
    }
    for (int i = 0; i < BATCH; i++) {
        for (size_t at = 0; at < shown; at++) REQUIRE(objects[i][at] == i, size);
        if (size > 0) REQUIRE(objects[i][size - 1] == i, size);
    }
    for (int i = 0; i < BATCH; i++) give(objects[i]);
}

int main(void) {
#ifndef CHECK_MALLOC
    table = sw_heap_table(sw_heap_default());
#endif
    for (size_t size = 0; size <= 1032; size++) check_size(size);
    for (size_t size = 1033; size <= largest() + 64; size += 8 + size / 64) check_size(size);
    check_size(largest());
    check_size(largest() + 1);
    check_rest();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of a size-class table, read by page, span and heap. Immutable.
 *
 * Look-up, in units that keep both maps short (Go sizeclasses.go):
 *   size <= 1024:  cls = small_map[(size + 7) >> 3]
 *   above:         cls = large_map[(size - 1024 + (1 << large_shift) - 1) >> large_shift]
 * Spans divide by a 64-bit multiplier (span/span.h), which is exact for every class of a table.
 */
#ifndef SW_SIZE_TABLE_H
#define SW_SIZE_TABLE_H

#include <stdbool.h>

#include "base/base.h"
#include "spanwise/fast_abi.h"
#include "spanwise/sizeclass.h"

enum {
    SW_SMALL_LIMIT = 1024,                /* maximum size that uses small_map */
    SW_SMALL_MAP_LEN = 129,               /* (1024 + 7) / 8 + 1 */
    SW_FRAME_BYTES = 1 << SW_FRAME_SHIFT, /* page sizes of tables are multiples */
};

typedef struct sw_class {
    uint32_t size;        /* slot bytes; 0 in class 0 */
    uint32_t slots;       /* in a span of `pages`; >= 1 */
    uint32_t pages;       /* the longest span, in pages of the table */
    uint32_t first_pages; /* the shortest; later spans double up to `pages` */
} sw_class;

struct sw_table {
    const char *name;
    uint64_t hash;
    uint32_t page_shift;  /* page_bytes == 1 << page_shift, >= SW_FRAME_BYTES */
    uint32_t class_count; /* including the dummy class 0: classes[0 .. class_count) */
    uint32_t max_size;    /* classes[class_count - 1].size */
    uint32_t large_shift; /* every class size above 1024 is a multiple of 1 << large_shift */
    const sw_class *classes;
    const uint8_t *small_map;
    const uint8_t *large_map;
};

/* The built-in tables, generated: src/gen/table_go.c, src/gen/table_c16.c. */
extern const struct sw_table sw_table_go_data;
extern const struct sw_table sw_table_c16_data;

/* Returns whether the table is built in or live. False: misuse was reported. */
bool sw_table_check(const sw_table *table, const char *op);
/* Acquires a table for a heap: a run-time table cannot be destroyed until sw_table_release. False:
 * misuse was reported, because it is not a live table. */
bool sw_table_acquire(const sw_table *table, const char *op);
void sw_table_release(const sw_table *table);

/* Returns the class that serves a size of at most table->max_size, which the caller has checked. */
static sw_always_inline uint32_t sw_size_class(const sw_table *table, size_t size) {
    if (sw_likely(size <= SW_SMALL_LIMIT)) return table->small_map[(size + 7) >> 3];
    uint32_t shift = table->large_shift;
    return table->large_map[(size - SW_SMALL_LIMIT + (1u << shift) - 1) >> shift];
}

/* Returns the slots of a span of so many pages. */
static inline uint32_t sw_class_slots(const sw_class *cls, uint32_t pages, uint32_t page_shift) {
    return (uint32_t)(((uint64_t)pages << page_shift) / cls->size);
}
/* Returns whether some class has spans of several lengths. */
static inline bool sw_table_grows(const sw_table *table) {
    for (uint32_t cls = 1; cls < table->class_count; cls++)
        if (table->classes[cls].first_pages != table->classes[cls].pages) return true;
    return false;
}
/* Returns whether spans of the class may have so many pages: first_pages, doubled any number of
 * times up to `pages`. */
static inline bool sw_class_has_pages(const sw_class *cls, uint32_t pages) {
    uint32_t times = pages / cls->first_pages;
    return pages <= cls->pages && times * cls->first_pages == pages && sw_is_pow2(times);
}

/* Returns the whole pages of a large request; 0 if rounding up overflows. */
static inline size_t sw_pages_of(const sw_table *table, size_t size) {
    size_t page = (size_t)1 << table->page_shift;
    return size > PTRDIFF_MAX - page ? 0 : (size + page - 1) >> table->page_shift;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Size-class tables: which slot size serves a request, and how spans are cut.
 *
 * A table is immutable once made. `go` is bit-exact to Go 1.26.8; `c16` gives the alignment that C
 * promises (Go's procedure with step 16 from 16 bytes up, plus the 8 byte class; up to 1 KiB spans
 * that begin as short as Go's and double as a class holds more). Both are built in; others are made
 * at run time from lists of classes. Class 0 is a dummy, as in Go. Source of the method: Go
 * internal/runtime/gc/sizeclasses.go; exact division by multiplication after Lemire, Kaser, Kurz,
 * "Faster remainder by direct computation" (2019).
 */
#ifndef SPANWISE_SIZECLASS_H
#define SPANWISE_SIZECLASS_H

#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_table sw_table;

enum {
    SW_TABLE_CLASSES_MAX = 256,        /* including the dummy class 0 */
    SW_TABLE_SIZE_MAX = 256 * 1024,    /* largest slot, bytes */
    SW_TABLE_SPAN_BYTES_MAX = 4 << 20, /* largest span, bytes */
    SW_TABLE_SLOTS_MAX = 8192,         /* most objects a span */
};

/* What a user gives for one class. */
typedef struct sw_class_spec {
    uint32_t size_bytes; /* a multiple of 8, rising from class to class */
    uint32_t pages;      /* length of the longest span in pages of the table, >= 1 */
    /* Length of the first span of the class, which doubles as a heap holds more of it; `pages` is a
     * power of two times as much. 0: as long as `pages`, always. */
    uint32_t first_pages;
} sw_class_spec;

/* Initialises a sw_class_spec whose spans all have `pages` pages. Two values in braces mean the
 * same, but at -Wextra compilers warn that the third is missing. */
#define SW_CLASS_SPEC(size_bytes, pages) {(size_bytes), (pages), 0}

/* The properties of one class of a table. */
typedef struct sw_class_info {
    uint32_t cls;
    uint32_t size_bytes;
    uint32_t span_bytes;       /* the longest span */
    uint32_t slots;            /* objects in it */
    uint32_t tail_bytes;       /* span_bytes - slots * size_bytes */
    uint32_t min_align;        /* largest power of two that divides every slot address, <= page */
    double max_waste_percent;  /* worst (round-up + tail) of a span full of the smallest request */
    uint32_t first_span_bytes; /* the first span; span_bytes where all are equally long */
} sw_class_info;

SW_API const sw_table *sw_table_go(void);
SW_API const sw_table *sw_table_c16(void);
/* The table of heaps that name none, of the default heap and of inline code: c16, or in a library
 * that `spanwise build` made the table that it was made for. */
SW_API const sw_table *sw_table_default(void);
/* "go" or "c16"; NULL for any other name. */
SW_API const sw_table *sw_table_builtin(const char *name);

/* Makes a table of `count` classes (class 1 .. count). Copies everything it is given.
 * Errors: SW_INVALID (the message of sw_last_error() names the class and the rule it breaks),
 * SW_NOMEM. */
SW_API sw_status sw_table_create(const char *name, uint32_t page_bytes, const sw_class_spec *specs,
                                 uint32_t count, sw_table **out);
/* Built-in tables, the default one and NULL are ignored. A table that a heap uses stays as it is:
 * misuse BUSY_HANDLE. */
SW_API void sw_table_destroy(sw_table *table);

SW_API const char *sw_table_name(const sw_table *table);
SW_API uint32_t sw_table_page_bytes(const sw_table *table);
SW_API uint32_t sw_table_class_count(const sw_table *table); /* without the dummy class 0 */
SW_API uint32_t sw_table_max_bytes(const sw_table *table);   /* largest slot */
SW_API uint64_t sw_table_hash(const sw_table *table);        /* identity of page size and classes */

/* The class of a request of `size` bytes; 0 when it is larger than every class.
 * A request of 0 bytes is served by class 1. */
SW_API uint32_t sw_table_class_of(const sw_table *table, size_t size);
/* SW_INVALID when cls is 0 or too large. */
SW_API sw_status sw_table_class(const sw_table *table, uint32_t cls, sw_class_info *out);
/* Slot bytes, or whole pages for a large request; 0 when rounding up overflows or size is 0. */
SW_API size_t sw_table_round_up(const sw_table *table, size_t size);

#ifdef __cplusplus
}
#endif
#endif

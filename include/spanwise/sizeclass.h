/* SPDX-License-Identifier: Apache-2.0 */
/* Size-class tables: the slot size of a request, and the span length of a class.
 *
 * Tables are immutable. `go` equals Go 1.26.8; `c16` has the alignment that C requires (Go's
 * procedure with steps of 16 from 16 bytes up, plus the 8-byte class; spans for slots of up to 1
 * KiB start as short as Go's and double as the class grows). Both are built in; others are created
 * at run time from lists of classes. Class 0 is a dummy, as in Go. After Go
 * internal/runtime/gc/sizeclasses.go.
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
    SW_TABLE_SLOTS_MAX = 8192,         /* per span */
};

/* One class, as given by the user. */
typedef struct sw_class_spec {
    uint32_t size_bytes; /* a multiple of 8, increasing */
    uint32_t pages;      /* length of the longest span in pages of the table, >= 1 */
    /* Length of the first span; later ones double up to `pages`, which must be a power of two times
     * as long. 0: `pages`. */
    uint32_t first_pages;
} sw_class_spec;

/* Initialiser of a sw_class_spec with fixed span length; {size, pages} would warn with -Wextra. */
#define SW_CLASS_SPEC(size_bytes, pages) {(size_bytes), (pages), 0}

/* Properties of a class. */
typedef struct sw_class_info {
    uint32_t cls;
    uint32_t size_bytes;
    uint32_t span_bytes;       /* the longest span */
    uint32_t slots;            /* objects in it */
    uint32_t tail_bytes;       /* span_bytes - slots * size_bytes */
    uint32_t min_align;        /* alignment of every slot, at most a page */
    double max_waste_percent;  /* round-up + tail of a span full of the smallest request */
    uint32_t first_span_bytes; /* the first span; span_bytes if the length is fixed */
} sw_class_info;

SW_API const sw_table *sw_table_go(void);
SW_API const sw_table *sw_table_c16(void);
/* Return the table of the default heap, of heaps without a table option, and of inline code: c16,
 * or the table that `spanwise build` compiled in. */
SW_API const sw_table *sw_table_default(void);
/* Return the table "go" or "c16"; NULL for any other name. */
SW_API const sw_table *sw_table_builtin(const char *name);

/* Create a table of `count` classes, numbered from 1. Copies its arguments. Errors: SW_INVALID
 * (sw_last_error() names the class and the broken rule), SW_NOMEM. */
SW_API sw_status sw_table_create(const char *name, uint32_t page_bytes, const sw_class_spec *specs,
                                 uint32_t count, sw_table **out);
/* Destroy a table. Built-in tables, the default one and NULL are ignored. Destroying a table in use
 * is misuse (BUSY_HANDLE). */
SW_API void sw_table_destroy(sw_table *table);

SW_API const char *sw_table_name(const sw_table *table);
SW_API uint32_t sw_table_page_bytes(const sw_table *table);
SW_API uint32_t sw_table_class_count(const sw_table *table); /* without the dummy class 0 */
SW_API uint32_t sw_table_max_bytes(const sw_table *table);   /* largest slot */
SW_API uint64_t sw_table_hash(const sw_table *table);        /* of page size and classes */

/* Return the class that serves `size` bytes, or 0 if `size` exceeds the largest class. Class 1
 * serves 0 bytes. */
SW_API uint32_t sw_table_class_of(const sw_table *table, size_t size);
/* Read the properties of a class. Errors: SW_INVALID: cls is 0 or too large. */
SW_API sw_status sw_table_class(const sw_table *table, uint32_t cls, sw_class_info *out);
/* Return slot bytes, or whole pages for a large request; 0: overflow, or size is 0. */
SW_API size_t sw_table_round_up(const sw_table *table, size_t size);

#ifdef __cplusplus
}
#endif
#endif

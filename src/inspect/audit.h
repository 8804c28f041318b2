/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the parts of verify (verify.c, audit_lists.c). First the
 * windows are checked, then the spans of each window, then lists, caches and records, and then
 * totals. Each part follows only links and indices that earlier parts have checked, so that corrupt
 * metadata is reported and verify itself does not fault. */
#ifndef SW_WATCH_AUDIT_H
#define SW_WATCH_AUDIT_H

#include "base/base.h"
#include "heap/heap.h"

typedef struct sw_audit {
    sw_heap *heap;
    sw_status status;
    uint64_t used_pages; /* pages of spans and of large objects */
    uint64_t free_pages; /* accessible pages without a span */
    uint64_t held_pages; /* accessible pages that are held */
    uint64_t records;    /* records in use: spans of slots and large objects */
    uint64_t halves;     /* halves of spans with announced frees */
    uint64_t shelved;    /* freed large objects on shelves */
    uint64_t by_state[SW_SPAN_STATE_COUNT];
    uint64_t class_pages[2 * SW_TABLE_CLASSES_MAX]; /* by span class: pages of its spans */
} sw_audit;

#define SW_BROKEN(a, ...) ((a)->status = sw_fail(SW_STATE, "verify", __VA_ARGS__))

/* Returns whether id is that of an allocated record of the space. */
static inline bool sw_audit_is_span(const sw_audit *a, uint32_t id) {
    return id >= SW_SPAN_FIRST &&
           id < __atomic_load_n(&a->heap->space->span_next, __ATOMIC_RELAXED);
}

/* Reports a broken rule of a struct (base/base.h); broken_rule NULL: none. */
static inline void sw_audit_rule(sw_audit *a, const char *where, const char *broken_rule) {
    if (a->status == SW_OK && broken_rule != NULL) SW_BROKEN(a, "%s: %s", where, broken_rule);
}

/* verify.c: checks the whole heap, in a quiet state. The caller holds its lock. */
void sw_audit_heap(sw_audit *a);
/* audit_lists.c: checks caches, lists, remote stacks and unused records. */
void sw_audit_lists(sw_audit *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of verify share. They run in this order, each on what the ones before have proved:
 * windows, then the spans of each window, then lists, caches and records, then totals. So nothing
 * is followed that has not been checked, and damaged metadata is reported, not stumbled over. */
#ifndef SW_WATCH_AUDIT_H
#define SW_WATCH_AUDIT_H

#include "base/fail.h"
#include "heap/heap.h"

typedef struct sw_audit {
    sw_heap *heap;
    sw_status status;
    uint64_t used_pages; /* pages under spans and large objects */
    uint64_t free_pages; /* accessible pages that no span has */
    uint64_t held_pages; /* accessible pages that are held */
    uint64_t records;    /* records in use: spans of slots and large objects */
    uint64_t halves;     /* halves of spans with announced frees */
    uint64_t kept;       /* large objects that were freed and not released */
    uint64_t by_state[SW_SPAN_STATE_COUNT];
} sw_audit;

#define SW_BROKEN(a, ...) ((a)->status = sw_fail(SW_STATE, "verify", __VA_ARGS__))

/* True when id names a record that the space has handed out. */
static inline bool sw_audit_is_span(const sw_audit *a, uint32_t id) {
    return id >= SW_SPAN_FIRST &&
           id < __atomic_load_n(&a->heap->space->span_next, __ATOMIC_RELAXED);
}

/* audit_span.c: one span that starts at page n of the window, which the page map says is `id`. */
void sw_audit_span(sw_audit *a, const sw_window *window, uint32_t n, uint32_t id);
/* audit_lists.c: caches, lists, remote stacks, unused records. */
void sw_audit_lists(sw_audit *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over a heap, its ledger, and the ledger restricted to touched pages. */
#ifndef SW_WATCH_LEDGER_H
#define SW_WATCH_LEDGER_H

#include "heap/heap.h"
#include "spanwise/stats.h"

/* --- walks ------------------------------------------------------------------------------------ */

/* Returns whether a cache allocates from the span now, or the span is wholly free and kept by a
 * cache or the heap: then its free slots count as cached. */
bool sw_walk_is_cached(const sw_span *span);

/* --- the ledger ------------------------------------------------------------------------------- */

/* Answers a public call that reads a ledger: checks its arguments, calls `fill` under the heap's
 * locks, and copies as much of the result as the caller's struct has room for. */
typedef sw_status sw_ledger_fill(sw_heap *heap, const char *op, sw_ledger *out,
                                 sw_ledger_class *rows);
sw_status sw_ledger_answer(sw_heap *heap, const char *op, sw_ledger_fill *fill, sw_ledger *out,
                           sw_ledger_class *rows, size_t capacity);
/* Fills in the ledger under the heap's lock. `rows` has class_count elements, or is NULL. */
void sw_ledger_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows);
/* Return the row that a span of slots, or a large object, adds to its class. The round-up of a
 * large object is its rounding to whole pages; if a cache keeps it after its free, its bytes are
 * cached. Under the heap's lock. */
sw_ledger_class sw_ledger_slots_row(const sw_heap *heap, const sw_span *span);
sw_ledger_class sw_ledger_large_row(const sw_heap *heap, const sw_span *span);
/* Zeroes a ledger and its rows (NULL: none), and fills in fields that need no walk over spans. */
void sw_ledger_begin(const sw_heap *heap, sw_ledger *out, sw_ledger_class *rows);
/* Adds the row of a span to the ledger and to the row of its class (rows NULL: only to the ledger).
 * A row of class 0 is a large object, whose roundup_bytes are its rounding to whole pages. */
void sw_ledger_add(sw_ledger *ledger, sw_ledger_class *rows, const sw_ledger_class *span);
/* Returns the sum of all parts, which must be held_bytes. */
uint64_t sw_ledger_sum(const sw_ledger *ledger);
/* Returns the first broken rule, or NULL (base/base.h):
 *   the sum of the parts == held_bytes;  pending_bytes + unswept_bytes <= requested_bytes */
const char *sw_ledger_check(const sw_ledger *ledger);

/* --- touched bytes ---------------------------------------------------------------------------- */

/* The ledger of touched bytes: each part of the ledger, restricted to pages of the system that
 * were written to. Public API: spanwise/stats.h. */

/* Returns the bytes of the records of caches in pages that were never written to. */
uint64_t sw_touched_unwritten_caches(const sw_heap *heap);
/* Returns the bytes of metadata in pages that were written to. The records of caches count in full;
 * `map_bytes` is the part of the page map. */
static inline uint64_t sw_touched_noted_metadata(const sw_heap *heap, uint64_t map_bytes,
                                                 uint32_t grain_shift) {
    uint64_t pool = heap->meta.held_bytes - sw_meta_untouched_bytes(&heap->meta, grain_shift);
    return heap->pages.fixed_bytes + pool + map_bytes;
}

#endif

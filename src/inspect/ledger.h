/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger, for callers that hold the heap's lock already. */
#ifndef SW_WATCH_LEDGER_H
#define SW_WATCH_LEDGER_H

#include "heap/heap.h"
#include "spanwise/stats.h"

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
/* Returns the first broken rule, or NULL (base/assert.h):
 *   the sum of the parts == held_bytes;  pending_bytes + unswept_bytes <= requested_bytes */
const char *sw_ledger_check(const sw_ledger *ledger);

#endif

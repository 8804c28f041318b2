/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger for those who hold the heap's lock already. */
#ifndef SW_WATCH_LEDGER_H
#define SW_WATCH_LEDGER_H

#include "heap/heap.h"
#include "spanwise/stats.h"

/* Under the heap's lock. rows: class_count of them, or NULL. */
void sw_ledger_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows);
/* What one span adds to the row of its class: a span of slots, and a large object, whose rounding to whole
 * pages is the row's round-up; a freed one that a cache keeps is cached. Under the heap's lock. */
sw_ledger_class sw_ledger_slots_row(const sw_heap *heap, const sw_span *span);
sw_ledger_class sw_ledger_large_row(const sw_heap *heap, const sw_span *span);
/* Zeroes a ledger and its rows (NULL: none), and fills in what needs no walk over the spans. */
void sw_ledger_begin(const sw_heap *heap, sw_ledger *out, sw_ledger_class *rows);
/* Adds a span to the ledger and to the row of its class. One of class 0 is a large object, whose roundup_bytes
 * are its rounding to whole pages. */
void sw_ledger_add(sw_ledger *ledger, sw_ledger_class *rows, const sw_ledger_class *span);
/* The sum of every part, which is held_bytes. */
uint64_t sw_ledger_sum(const sw_ledger *ledger);
/* The rule that does not hold, or NULL (base/assert.h):  the parts sum to held_bytes */
const char *sw_ledger_check(const sw_ledger *ledger);

#endif

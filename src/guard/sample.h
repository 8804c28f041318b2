/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled objects, each at the end of its own page between inaccessible pages. An access past the
 * end or after the free faults at once, and the report has the call stacks of its allocation and
 * free (GWP-ASan: Serebryany et al., "GWP-ASan: Sampling-Based Detection of Memory-Safety Bugs in
 * Production", 2024). */
#ifndef SW_GUARD_SAMPLE_H
#define SW_GUARD_SAMPLE_H

#include "guard/guard.h"

void sw_sample_start(uint64_t key, unsigned on); /* of canaries; SW_GUARD_ bits */
/* Draws the number of allocations up to the next sampled one. */
uint64_t sw_sample_draw(void);
/* Puts an object on its own page; NULL: it does not fit, or no page is free. */
void *sw_sample_alloc(size_t size, size_t align, sw_guard_kind kind);
bool sw_sample_owns(const void *p);
/* False: misuse, which was reported as one of `op`. */
bool sw_sample_size(sw_heap *heap, const void *p, const char *op, size_t *size);
void sw_sample_free(sw_heap *heap, void *p, size_t stated, sw_guard_kind kind, const char *op);
void sw_sample_report_fault(sw_heap *heap, const void *address, const char *op);

void sw_sample_lock(void);
void sw_sample_unlock(void);
void sw_sample_reset(void); /* in a fork child */

#endif

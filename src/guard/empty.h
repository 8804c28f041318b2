/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of size 0: addresses in a range that can be neither read nor written. */
#ifndef SW_GUARD_EMPTY_H
#define SW_GUARD_EMPTY_H

#include "heap/heap.h"

enum { SW_EMPTY_ALIGN = 16 };

void sw_empty_start(void);
/* NULL: all addresses are in use, or the range was refused. */
void *sw_empty_alloc(void);
bool sw_empty_owns(const void *p);
/* False: no live object starts there, which was reported as misuse of `op`. */
bool sw_empty_check(sw_heap *heap, const void *p, const char *op, size_t *size);
void sw_empty_free(sw_heap *heap, void *p, const char *op);

void sw_empty_lock(void);
void sw_empty_unlock(void);
void sw_empty_reset(void); /* in a fork child */

#endif

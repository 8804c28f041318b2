/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of size 0, held objects and sampled objects. */
#ifndef SW_GUARD_SAMPLE_H
#define SW_GUARD_SAMPLE_H

#include "guard/guard.h"
#include "guard/state.h"
#include "heap/heap.h"

/* --- objects of size 0 ------------------------------------------------------------------------ */

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

/* --- held objects ----------------------------------------------------------------------------- */

/* Freed objects that are held for a while, so that a use after free does not reach another object.
 * Each replaces a random held object of its thread, so the order of reuse is random too. */

/* Frees a slot, which is marked as held. */
void sw_guard_release(sw_cache *cache, void *p, const char *op);
/* Holds it, and frees the one whose place it takes. */
void sw_hold(sw_guard_thread *own, void *p, const char *op);

/* --- sampled objects -------------------------------------------------------------------------- */

void sw_sample_start(uint64_t key, unsigned on); /* of canaries; SW_GUARD_ bits */
/* Draws the number of allocations up to the next sampled one. */
uint64_t sw_sample_draw(void);
/* Puts an object on its own page; NULL: it does not fit, or no page is free. */
void *sw_sample_alloc(size_t size, size_t align, sw_guard_kind kind);
bool sw_sample_owns(const void *p);
/* False: misuse, which was reported as one of `op`. */
bool sw_sample_size(sw_heap *heap, const void *p, const char *op, size_t *size);
void sw_sample_free(sw_heap *heap, void *p, size_t stated, sw_guard_kind kind, const char *op);

void sw_sample_lock(void);
void sw_sample_unlock(void);
void sw_sample_reset(void); /* in a fork child */

#endif

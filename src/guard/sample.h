/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of size 0, held objects and sampled objects. */
#ifndef SW_GUARD_SAMPLE_H
#define SW_GUARD_SAMPLE_H

#include "guard/guard.h"
#include "guard/state.h"
#include "heap/heap.h"

/* --- objects of size 0 ------------------------------------------------------------------------ */

enum { SW_EMPTY_ALIGN = 16 };

/* NULL: the protection is off, or all addresses are in use. */
void *sw_empty_alloc(sw_guard_state *guard);
static inline bool sw_empty_owns(const sw_guard_state *guard, const void *p) {
    const char *range = guard->empties.range;
    return range != NULL &&
           (uintptr_t)p - (uintptr_t)range < (size_t)SW_EMPTY_OBJECTS * SW_EMPTY_ALIGN;
}
/* False: no live object starts there, which was reported as misuse of `op`. */
bool sw_empty_check(sw_guard_state *guard, const void *p, const char *op, size_t *size);
void sw_empty_free(sw_guard_state *guard, void *p, size_t stated, const char *op);

/* --- held objects ----------------------------------------------------------------------------- */

/* Freed objects that are held for a while, so that a use after free does not reach another object.
 * Each replaces a random held object of its thread, so the order of reuse is random too. */

/* Frees a slot, which is marked as held. */
void sw_guard_release(sw_cache *cache, void *p, const char *op);
/* Holds it, and frees the one whose place it takes. */
void sw_hold(sw_guard_thread *own, void *p, const char *op);

/* --- sampled objects -------------------------------------------------------------------------- */

/* Draws the number of allocations up to the next sampled one. */
uint64_t sw_sample_draw(const sw_guard_state *guard);
/* Puts an object on its own page; NULL: it does not fit, or no page is free. */
void *sw_sample_alloc(sw_guard_state *guard, size_t size, size_t align, sw_guard_kind kind);
bool sw_sample_owns(const sw_guard_state *guard, const void *p);
struct sw_sampled sw_sample_range(const sw_guard_state *guard); /* bytes 0: none */
/* False: misuse, which was reported as one of `op`. */
bool sw_sample_size(sw_guard_state *guard, const void *p, const char *op, size_t *size);
void sw_sample_free(sw_guard_state *guard, void *p, size_t stated, sw_guard_kind kind,
                    const char *op);
/* Returns a live sampled object whose canary is damaged; NULL: there is none. */
const void *sw_sample_find_damage(sw_guard_state *guard);

/* --- both ------------------------------------------------------------------------------------- */

/* Reserves what the heap's switches need, and reports accesses to it when they fault. */
void sw_sample_start(sw_guard_state *guard);
void sw_sample_end(sw_guard_state *guard); /* releases it */

void sw_sample_lock(sw_guard_state *guard); /* for forks */
void sw_sample_unlock(sw_guard_state *guard);
void sw_sample_reset(sw_guard_state *guard); /* in the child */

#endif

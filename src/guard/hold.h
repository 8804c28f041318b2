/* SPDX-License-Identifier: Apache-2.0 */
/* Freed objects that are held for a while, so that a use after free does not reach another object.
 * Each replaces a random held object of its thread, so the order of reuse is random too. */
#ifndef SW_GUARD_HOLD_H
#define SW_GUARD_HOLD_H

#include "guard/state.h"

/* Frees a slot, which is marked as held. */
void sw_guard_release(sw_cache *cache, void *p, const char *op);
/* Holds it, and frees the one whose place it takes. */
void sw_hold(sw_guard_thread *own, void *p, const char *op);

#endif

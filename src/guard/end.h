/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an object in its slot: its canary, if one is written. */
#ifndef SW_GUARD_END_H
#define SW_GUARD_END_H

#include "guard/canary.h"
#include "guard/object.h"
#include "guard/state.h"

/* Writes it, and returns p. */
void *sw_guarded_end(void *p, size_t size, size_t bytes, sw_guard_kind kind);
static sw_always_inline void *sw_guarded_end_quick(void *p, size_t size, size_t bytes,
                                                   sw_guard_kind kind) {
    if ((sw_guard.on & SW_GUARD_ENDS) != 0)
        sw_canary_write(sw_canary_word(sw_guard.key, p, kind), p, size, bytes);
    return p;
}

/* True: the object ends in the canary of an object of this kind and, if stated, this size. */
static sw_always_inline bool sw_guarded_ends_well(const void *p, const sw_guarded *object,
                                                  size_t stated, sw_guard_kind kind) {
    size_t size = object->requested - 1;
    if (stated != SIZE_MAX && stated != size) return false;
    if ((sw_guard.on & SW_GUARD_ENDS) == 0) return true;
    return sw_canary_damage(sw_canary_word(sw_guard.key, p, kind), p, size, object->bytes) == 0;
}

#endif

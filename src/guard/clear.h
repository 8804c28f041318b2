/* SPDX-License-Identifier: Apache-2.0 */
/* Clearing of freed memory, and the check that it is still clear. Bytes of slots are multiples of
 * 8. */
#ifndef SW_GUARD_CLEAR_H
#define SW_GUARD_CLEAR_H

#include "guard/state.h"
#include "heap/template.h"

enum {
    SW_CHECKED_BYTES_MAX = 1 << 17, /* of a large object before it is reused */
    SW_PURGED_BYTES_MIN = 1 << 17,  /* clearing such an object returns its pages */
};

static inline bool sw_guard_is_clear(const void *p, size_t bytes) {
    const sw_pair *pair = p;
    sw_pair found = {0, 0};
    for (size_t i = 0; i < bytes / sizeof *pair; i++) found |= pair[i];
    uint64_t rest = bytes % sizeof *pair == 0 ? 0 : ((const sw_eight *)p)[bytes / 8 - 1];
    return (found[0] | found[1] | rest) == 0;
}

/* Reports a write to memory that is free or held. */
void sw_guard_check_clear(const void *p, size_t bytes, const char *op);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a profile; profile.c creates and fills it. */
#ifndef SW_OPTIMIZE_PROFILE_H
#define SW_OPTIMIZE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "spanwise/optimize.h"

/* Used by one thread at a time.
 *   (capacity == 0) == (objects == NULL);  capacity is 0 or a power of two */
struct sw_profile {
    uint64_t mark; /* ds/handle.h */
    double weights[SW_PROFILE_SIZES];
    sw_profile_large large;
    uint64_t *objects; /* [id]: requested bytes + 1 of the live object; 0: there is none */
    size_t capacity;   /* number of ids that fit into `objects` */
    uint64_t peak_op;
    uint64_t ops; /* number of operations so far */
};

const char *sw_profile_record_check(const struct sw_profile *profile);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a profile; profile.c creates and fills it. */
#ifndef SW_OPTIMIZE_PROFILE_H
#define SW_OPTIMIZE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "spanwise/optimize.h"

/* The object that currently has an id. */
typedef struct sw_profile_object {
    uint64_t size_plus_1; /* requested bytes + 1; 0: not live */
    uint64_t since_ns;
} sw_profile_object;

/* Used by one thread at a time.
 *   (capacity == 0) == (objects == NULL);  capacity is 0 or a power of two;  ended <= 1 */
struct sw_profile {
    uint64_t mark; /* ds/handle.h */
    double weights[SW_WEIGH_COUNT][SW_PROFILE_SIZES];
    sw_profile_large large[SW_WEIGH_COUNT];
    sw_profile_object *objects;
    size_t capacity; /* number of ids that fit into `objects` */
    uint64_t peak_op;
    uint64_t ops; /* number of operations so far */
    uint64_t now_ns;
    int ended;
};

const char *sw_profile_record_check(const struct sw_profile *profile);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Freed objects that are held for a while, so that a use of them does not meet another object. Each
 * takes the place of a random one, so the order of reuse is random too. Lock-free. */
#ifndef SW_GUARD_HOLD_H
#define SW_GUARD_HOLD_H

#include <stddef.h>

typedef struct sw_held {
    void *object; /* NULL: none */
    size_t bytes;
} sw_held;

/* Holds an object in a slot of so many bytes. Returns the one whose place it takes, which is to be
 * freed. */
sw_held sw_hold(void *object, size_t bytes);

#endif

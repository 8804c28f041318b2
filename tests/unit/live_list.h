/* SPDX-License-Identifier: Apache-2.0 */
/* A list of live objects, in the order of allocation: an independent model of a heap's
 * allocations. */
#ifndef TESTS_UNIT_LIVE_LIST_H
#define TESTS_UNIT_LIVE_LIST_H

#include <stdbool.h>

#include "check.h"

enum { LIVE_MAX = 4096 };

static void *live[LIVE_MAX]; /* the oldest first */
static int live_count;

static inline bool is_live(const void *p) {
    for (int i = 0; i < live_count; i++)
        if (live[i] == p) return true;
    return false;
}

/* Adds a new object, which must not be live already. */
static inline void keep(void *p) {
    CHECK(p != NULL && !is_live(p) && live_count < LIVE_MAX);
    live[live_count++] = p;
}

static inline void *take(int index) {
    void *p = live[index];
    live_count--;
    memmove(&live[index], &live[index + 1], (size_t)(live_count - index) * sizeof *live);
    return p;
}

#endif

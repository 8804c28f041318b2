/* SPDX-License-Identifier: Apache-2.0 */
/* A Li Chao tree: lines y = a - b * x are added one by one, and a query gives the line that is lowest at
 * one of the given x. Neither slopes nor queries need to come in an order. After C. Li, lecture on
 * line segment trees (Zhejiang, 2012); here over the sorted x of all queries.
 * Owns nothing: the caller gives the arrays.
 */
#ifndef SW_OPTIMIZE_HULL_H
#define SW_OPTIMIZE_HULL_H

#include <stdint.h>

#include "base/attributes.h"

enum { SW_HULL_NONE = -1 };

/* What a node held before a line was added. */
typedef struct sw_hull_change {
    uint32_t node;
    int32_t line;
} sw_hull_change;

typedef struct sw_hull {
    const double *x; /* count values, rising */
    uint32_t count;  /* >= 1 */
    uint32_t width;  /* a power of two >= count: leaves of the tree */
    const double *a; /* of line i, like b */
    const double *b;
    int32_t *nodes; /* 2 * width: the line of each node, or SW_HULL_NONE; the root is 1 */
    sw_hull_change
        *changes; /* log2(width) + 1 for each line at most; NULL: lines stay until all go */
    uint32_t change_count;
} sw_hull;

/* The rule that does not hold, or NULL (base/assert.h):  1 <= count <= width, a power of two; no change is
 * counted that is not noted */
const char *sw_hull_check(const sw_hull *hull);

/* Removes all lines. */
void sw_hull_clear(sw_hull *hull);
void sw_hull_insert(sw_hull *hull, int32_t line);
/* Removes the lines that were added since there were so many changes. Needs `changes`. */
void sw_hull_undo(sw_hull *hull, uint32_t change_count);

static sw_always_inline double sw_hull_value(const sw_hull *hull, int32_t line, double x) {
    return hull->a[line] - hull->b[line] * x;
}

/* The lowest line at x[index]; SW_HULL_NONE when there is no line. */
int32_t sw_hull_lowest(const sw_hull *hull, uint32_t index);

#endif

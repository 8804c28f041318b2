/* SPDX-License-Identifier: Apache-2.0 */
/* A Li Chao tree: lines y = a - b * x are added one by one, and a query returns the lowest line at
 * one of the given x. Lines and queries may come in any order. After C. Li, lecture on line segment
 * trees (Zhejiang, 2012); this tree is over the sorted x of all queries. It owns nothing: the
 * caller provides the arrays.
 */
#ifndef SW_OPTIMIZE_HULL_H
#define SW_OPTIMIZE_HULL_H

#include <stdint.h>

#include "base/attributes.h"

enum { SW_HULL_NONE = -1 };

/* The previous line of a node that an added line changed, for undo. */
typedef struct sw_hull_change {
    uint32_t node;
    int32_t line;
} sw_hull_change;

typedef struct sw_hull {
    const double *x; /* count values, ascending */
    uint32_t count;  /* >= 1 */
    uint32_t width;  /* leaves of the tree; a power of two >= count */
    const double *a; /* a and b of each line */
    const double *b;
    int32_t *nodes;          /* 2 * width: the line of each node, or SW_HULL_NONE; the root is 1 */
    sw_hull_change *changes; /* at most log2(width) + 1 per line; NULL: lines are not undone */
    uint32_t change_count;
} sw_hull;

/* Returns the first broken rule, or NULL (base/assert.h):
 *   1 <= count <= width, a power of two;  changes != NULL if change_count != 0 */
const char *sw_hull_check(const sw_hull *hull);

void sw_hull_clear(sw_hull *hull);
void sw_hull_insert(sw_hull *hull, int32_t line);
/* Removes the lines added since change_count had this value. Needs `changes`. */
void sw_hull_undo(sw_hull *hull, uint32_t change_count);

static sw_always_inline double sw_hull_value(const sw_hull *hull, int32_t line, double x) {
    return hull->a[line] - hull->b[line] * x;
}

/* Returns the lowest line at x[index]. SW_HULL_NONE: there is no line. */
int32_t sw_hull_lowest(const sw_hull *hull, uint32_t index);

#endif

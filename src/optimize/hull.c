/* SPDX-License-Identifier: Apache-2.0 */
/* The Li Chao tree of hull.h. */
#include "optimize/hull.h"

#include <string.h>

#include "base/assert.h"

void sw_hull_clear(sw_hull *hull) {
    sw_check2(sw_hull_check(hull));
    memset(hull->nodes, 0xFF, 2 * (size_t)hull->width * sizeof *hull->nodes);
    hull->change_count = 0;
}

static void set_node(sw_hull *hull, uint32_t node, int32_t line) {
    if (hull->changes != NULL)
        hull->changes[hull->change_count++] = (sw_hull_change){node, hull->nodes[node]};
    hull->nodes[node] = line;
}

void sw_hull_undo(sw_hull *hull, uint32_t change_count) {
    while (hull->change_count > change_count) {
        sw_hull_change change = hull->changes[--hull->change_count];
        hull->nodes[change.node] = change.line;
    }
}

/* Returns the x of a leaf. Leaves after the last x repeat it, so that x is non-decreasing. */
static double leaf_x(const sw_hull *hull, uint32_t leaf) {
    return hull->x[leaf < hull->count ? leaf : hull->count - 1];
}

void sw_hull_insert(sw_hull *hull, int32_t line) {
    uint32_t node = 1, first = 0, leaves = hull->width;
    for (;;) {
        int32_t held = hull->nodes[node];
        if (held == SW_HULL_NONE) {
            set_node(hull, node, line);
            return;
        }
        double middle = leaf_x(hull, first + leaves / 2);
        if (sw_hull_value(hull, line, middle) < sw_hull_value(hull, held, middle)) {
            set_node(hull, node, line);
            int32_t other = held;
            held = line;
            line = other;
        }
        if (leaves == 1) return;
        /* Two lines cross at most once. So the line that is higher in the middle can be the lower
         * one on one side only, and descends to the child of that side. */
        double left = leaf_x(hull, first), right = leaf_x(hull, first + leaves - 1);
        leaves /= 2;
        if (sw_hull_value(hull, line, left) < sw_hull_value(hull, held, left)) {
            node = 2 * node;
        } else if (sw_hull_value(hull, line, right) < sw_hull_value(hull, held, right)) {
            node = 2 * node + 1;
            first += leaves;
        } else {
            return;
        }
    }
}

int32_t sw_hull_lowest(const sw_hull *hull, uint32_t index) {
    double x = hull->x[index], lowest = 0;
    int32_t found = SW_HULL_NONE;
    for (uint32_t node = hull->width + index; node != 0; node /= 2) {
        int32_t line = hull->nodes[node];
        if (line == SW_HULL_NONE) continue;
        double value = sw_hull_value(hull, line, x);
        if (found == SW_HULL_NONE || value < lowest) {
            found = line;
            lowest = value;
        }
    }
    return found;
}

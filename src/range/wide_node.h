/* SPDX-License-Identifier: Apache-2.0 */
/* Propagates a change of a node to the nodes above it (wide.h). Callers: wide.c and
 * wide_shape.c. */
#ifndef SW_RANGE_WIDE_NODE_H
#define SW_RANGE_WIDE_NODE_H

#include "base/attributes.h"
#include "base/bits.h"
#include "range/wide.h"

static sw_always_inline uint64_t sw_wide_node_largest(const sw_wide_node *node) {
    uint64_t even = 0, odd = 0; /* two maxima, computed in parallel */
    uint32_t i = 0;
    for (; i + 2 <= node->count; i += 2) {
        even = sw_max_u64(even, node->wide[i]);
        odd = sw_max_u64(odd, node->wide[i + 1]);
    }
    if (i < node->count) even = sw_max_u64(even, node->wide[i]);
    return sw_max_u64(even, odd);
}

/* Sets an entry to the start and the largest hole of its child. True: the entry has changed. */
static inline bool sw_wide_renew(sw_wide_node *node, uint32_t index) {
    const sw_wide_node *child = node->child[index];
    uint64_t low = child->low[0], largest = sw_wide_node_largest(child);
    if (node->low[index] == low && node->wide[index] == largest) return false;
    node->low[index] = low;
    node->wide[index] = largest;
    return true;
}

/* Called after a change of the node on `level`: updates the entries above it, until one does not
 * change. */
static sw_always_inline void sw_wide_settle(sw_wide *wide, const sw_wide_path *path,
                                            uint32_t level) {
    for (; level < wide->height; level++)
        if (!sw_wide_renew(path->at[level + 1].node, path->at[level + 1].index)) return;
    wide->largest = sw_wide_node_largest(wide->root);
}

#endif

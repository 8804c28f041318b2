/* SPDX-License-Identifier: Apache-2.0 */
/* Propagates a change of a node to the nodes above it (btree.h). Callers: btree.c and
 * btree_shape.c. */
#ifndef SW_RANGE_BTREE_NODE_H
#define SW_RANGE_BTREE_NODE_H

#include "base/attributes.h"
#include "base/bits.h"
#include "range/btree.h"

static sw_always_inline uint64_t sw_btree_node_largest(const sw_btree_node *node) {
    uint64_t even = 0, odd = 0; /* two maxima, computed in parallel */
    uint32_t i = 0;
    for (; i + 2 <= node->count; i += 2) {
        even = sw_max_u64(even, node->largest[i]);
        odd = sw_max_u64(odd, node->largest[i + 1]);
    }
    if (i < node->count) even = sw_max_u64(even, node->largest[i]);
    return sw_max_u64(even, odd);
}

/* Sets an entry to the start and the largest hole of its child. True: the entry has changed. */
static inline bool sw_btree_renew(sw_btree_node *node, uint32_t index) {
    const sw_btree_node *child = node->child[index];
    uint64_t low = child->low[0], largest = sw_btree_node_largest(child);
    if (node->low[index] == low && node->largest[index] == largest) return false;
    node->low[index] = low;
    node->largest[index] = largest;
    return true;
}

/* Called after a change of the node on `level`: updates the entries above it, until one does not
 * change. */
static sw_always_inline void sw_btree_settle(sw_btree *btree, const sw_btree_path *path,
                                             uint32_t level) {
    for (; level < btree->height; level++)
        if (!sw_btree_renew(path->at[level + 1].node, path->at[level + 1].index)) return;
    btree->largest = sw_btree_node_largest(btree->root);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the B+-tree of holes, as btree.h states them. See base/assert.h. */
#include "base/assert.h"
#include "range/btree.h"
#include "range/btree_node.h"

const char *sw_btree_check(const sw_btree *btree) {
    return SW_RULE(btree->height < SW_BTREE_HEIGHT_MAX)
               ?: SW_RULE((btree->count == 0) == (btree->largest == 0))
               ?: SW_RULE((btree->root->count == 0) == (btree->count == 0))
               ?: SW_RULE(btree->count > 0 || btree->height == 0)
               ?: sw_nodes_check(&btree->nodes);
}

const char *sw_btree_node_check(const sw_btree_node *node) {
    const char *broken = SW_RULE(node->count <= SW_BTREE_ENTRIES);
    for (uint64_t i = 0; broken == NULL && i < node->count; i++)
        broken =
            SW_RULE(node->largest[i] >= 1) ?: SW_RULE(i == 0 || node->low[i] > node->low[i - 1]);
    return broken;
}

/* Checks the entries of a node against its children, and all nodes below. Adds the number of holes
 * to `count`. */
static const char *verify_node(const sw_btree_node *node, uint32_t level, uint64_t *count,
                               uint64_t *end) {
    const char *broken = sw_btree_node_check(node);
    for (uint64_t i = 0; broken == NULL && i < node->count; i++) {
        const sw_btree_node *child = node->child[i];
        if (level == 0) {
            broken = SW_RULE(*count == 0 || node->low[i] > *end);
            *end = node->low[i] + node->largest[i];
            (*count)++;
            continue;
        }
        broken = SW_RULE(child->count >= 1)
                     ?: SW_RULE(child->low[0] == node->low[i])
                     ?: SW_RULE(sw_btree_node_largest(child) == node->largest[i])
                     ?: verify_node(child, level - 1, count, end);
    }
    return broken;
}

const char *sw_btree_verify(const sw_btree *btree) {
    uint64_t count = 0, end = 0;
    return sw_btree_check(btree)
               ?: verify_node(btree->root, btree->height, &count, &end)
               ?: SW_RULE(count == btree->count)
               ?: SW_RULE(sw_btree_node_largest(btree->root) == btree->largest);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a tree of holes, as treap.h states them. See base/assert.h. */
#include "base/assert.h"
#include "base/bits.h"
#include "range/treap.h"

const char *sw_treap_check(const sw_treap *tree) {
    const sw_treap_node *root = tree->root[SW_TREAP_START];
    return SW_RULE((tree->count == 0) == (root == NULL))
               ?: SW_RULE(root == NULL || root->link[SW_TREAP_START].parent == NULL)
               ?: SW_RULE(tree->by_size ? (tree->count == 0) == (tree->root[SW_TREAP_SIZE] == NULL)
                                        : tree->root[SW_TREAP_SIZE] == NULL)
               ?: SW_RULE(tree->seed != 0)
               ?: sw_nodes_check(&tree->nodes);
}

const char *sw_treap_node_check(const sw_treap_node *node) {
    uint64_t largest = node->size;
    for (int side = 0; side < 2; side++) {
        const sw_treap_node *child = node->link[SW_TREAP_START].child[side];
        if (child == NULL) continue;
        largest = sw_max_u64(largest, child->largest);
        const char *broken = SW_RULE(child->link[SW_TREAP_START].parent == node)
                                 ?: SW_RULE(child->priority <= node->priority)
                                 ?: SW_RULE((child->start > node->start) == (side == 1));
        if (broken != NULL) return broken;
    }
    return SW_RULE(node->size >= 1) ?: SW_RULE(node->largest == largest);
}

/* Returns the node after this one in an order; for NULL, the first node. NULL: none. */
static const sw_treap_node *step(const sw_treap *tree, const sw_treap_node *node, int order) {
    const sw_treap_node *at = node == NULL ? tree->root[order] : node->link[order].child[1];
    if (at != NULL) {
        while (at->link[order].child[0] != NULL) at = at->link[order].child[0];
        return at;
    }
    if (node == NULL) return NULL;
    for (at = node->link[order].parent; at != NULL && at->link[order].child[1] == node;
         at = at->link[order].parent)
        node = at;
    return at;
}

const char *sw_treap_verify(const sw_treap *tree) {
    const char *broken = sw_treap_check(tree);
    uint64_t end = 0, nodes = 0, sized = 0;
    const sw_treap_node *last = NULL;
    for (const sw_treap_node *node = step(tree, NULL, SW_TREAP_START); node != NULL && !broken;
         node = step(tree, node, SW_TREAP_START)) {
        broken = sw_treap_node_check(node) ?: SW_RULE(nodes == 0 || node->start > end);
        end = node->start + node->size;
        nodes++;
    }
    for (const sw_treap_node *node = step(tree, NULL, SW_TREAP_SIZE); node != NULL && !broken;
         node = step(tree, node, SW_TREAP_SIZE)) {
        const sw_treap_node *parent = node->link[SW_TREAP_SIZE].parent;
        broken = SW_RULE(parent == NULL || parent->priority >= node->priority)
                     ?: SW_RULE(last == NULL || last->size < node->size ||
                                (last->size == node->size && last->start < node->start));
        last = node;
        sized++;
    }
    return broken ?: SW_RULE(nodes == tree->count) ?: SW_RULE(sized == (tree->by_size ? nodes : 0));
}

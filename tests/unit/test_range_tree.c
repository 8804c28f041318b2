/* SPDX-License-Identifier: Apache-2.0 */
/* The trees of holes by themselves: how deep they are. What they answer is in test_range_model.c. */
#include "range/tree.h"

#include "check.h"
#include "range_memory.h"

enum { HOLES = 4096 };

static counted_memory memory;

/* Nodes on the longest way down in an order. */
static uint64_t depth_of(const sw_tree_node *node, int order) {
    uint64_t deepest = 0;
    for (int side = 0; node != NULL && side < 2; side++) {
        uint64_t below = 1 + depth_of(node->link[order].child[side], order);
        if (below > deepest) deepest = below;
    }
    return deepest;
}

/* A treap of n nodes is about 4.3 ln(n) - 2 ln(ln(n)) deep (Devroye, "A note on the height of binary search trees",
 * 1986): 32 for 4,096 nodes, 26 for 1,024. A tree that nothing balances is as deep as it has nodes here. */
static void check_depth(const sw_tree *tree, uint64_t most) {
    CHECK_STR(sw_tree_verify(tree) ? sw_tree_verify(tree) : "", "");
    for (int order = 0; order < SW_TREE_ORDERS; order++)
        CHECK(depth_of(tree->root[order], order) <= most);
}

/* The original's two trees got the height of a new leaf wrong, and a node that took the place of a deleted one kept the
 * old height, so deletes from one side left lists. Holes that ascend in start and in size are added in that order,
 * the worst one for a plain tree, and three of four are deleted from the left. */
static void defect_9_trees_stay_flat(void) {
    sw_tree tree;
    sw_allocator allocator = counted_allocator(&memory);
    sw_tree_init(&tree, &allocator, true);
    for (uint64_t i = 0; i < HOLES; i++) {
        CHECK(sw_nodes_reserve(&tree.nodes, 1));
        sw_tree_add(&tree, i * 2 * HOLES, 1 + i);
    }
    check_depth(&tree, 40);
    for (uint64_t i = 0; i < HOLES; i++) {
        sw_tree_node *hole = sw_tree_best(&tree, 1 + i);
        CHECK_EQ(hole->start, i * 2 * HOLES);
        if (i % 4 != 0) sw_tree_remove(&tree, hole);
    }
    CHECK_EQ(tree.count, HOLES / 4);
    check_depth(&tree, 34);
    sw_nodes_destroy(&tree.nodes);
    CHECK_EQ(memory.held_bytes, 0);
}

int main(void) {
    defect_9_trees_stay_flat();
    return check_result();
}

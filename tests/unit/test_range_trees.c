/* SPDX-License-Identifier: Apache-2.0 */
/* What the model of test_range_model.c cannot see: sizes above 32 bits, the depth of the two trees of
 * holes, and the requirements of a split or merge of B+-tree nodes. */
#include "base/attributes.h"
#include "range/btree.h"
#include "range/treap.h"
#include "range_cases.h"
#include "range_memory.h"

/* An earlier library rounded sizes of a buddy up in 32 bits. */
static void sizes_above_32_bits(void) {
    sw_range *range = make(SW_RANGE_BUDDY, UINT64_C(64) << 32, UINT64_C(1) << 30);
    CHECK_EQ(sw_range_alloc(range, (UINT64_C(5) << 32) + 1), 0); /* 8 << 32 of 64 */
    CHECK_EQ(sw_range_free_size(range), UINT64_C(56) << 32);
    CHECK_EQ(sw_range_alloc(range, UINT64_C(33) << 32), SW_RANGE_NONE); /* rounded up to 64 << 32 */
    CHECK_EQ(sw_range_alloc(range, UINT64_C(32) << 32), UINT64_C(32) << 32);
    CHECK_EQ(sw_range_free(range, 0, (UINT64_C(5) << 32) + 1), SW_OK);
    CHECK_EQ(sw_range_free_size(range), UINT64_C(32) << 32);
    end(range);
}

/* --- trees of holes --------------------------------------------------------------------------- */

enum { HOLES = 4096 };

static counted_memory memory;

/* Nodes on the longest way down in an order. */
static uint64_t depth_of(const sw_treap_node *node, int order) {
    uint64_t deepest = 0;
    for (int side = 0; node != NULL && side < 2; side++) {
        uint64_t below = 1 + depth_of(node->link[order].child[side], order);
        if (below > deepest) deepest = below;
    }
    return deepest;
}

/* A treap of n nodes is about 4.3 ln(n) - 2 ln(ln(n)) deep (Devroye, "A note on the height of
 * binary search trees", 1986): 32 for 4,096 nodes, 26 for 1,024. A tree that nothing balances is as
 * deep as it has nodes here. */
static void check_depth(const sw_treap *tree, uint64_t most) {
    CHECK_STR(sw_treap_verify(tree) ? sw_treap_verify(tree) : "", "");
    for (int order = 0; order < SW_TREAP_ORDERS; order++)
        CHECK(depth_of(tree->root[order], order) <= most);
}

/* The original's two trees got the height of a new leaf wrong, and a node that took the place of a
 * deleted one kept the old height, so deletes from one side left lists. Holes that ascend in start
 * and in size are added in that order, the worst one for a plain tree, and three of four are
 * deleted from the left. */
static void trees_stay_flat(void) {
    sw_treap tree;
    sw_allocator allocator = counted_allocator(&memory);
    sw_treap_init(&tree, &allocator, true);
    for (uint64_t i = 0; i < HOLES; i++) {
        CHECK(sw_nodes_reserve(&tree.nodes, 1));
        sw_treap_add(&tree, i * 2 * HOLES, 1 + i);
    }
    check_depth(&tree, 40);
    for (uint64_t i = 0; i < HOLES; i++) {
        sw_treap_node *hole = sw_treap_best(&tree, 1 + i);
        CHECK_EQ(hole->start, i * 2 * HOLES);
        if (i % 4 != 0) sw_treap_remove(&tree, hole);
    }
    CHECK_EQ(tree.count, HOLES / 4);
    check_depth(&tree, 34);
    sw_nodes_destroy(&tree.nodes);
    CHECK_EQ(memory.held_bytes, 0);
}

static void make_wide(sw_btree *btree) {
    sw_allocator allocator = counted_allocator(&memory);
    CHECK(sw_btree_init(btree, &allocator));
}

static bool add_wide(sw_btree *btree, uint64_t start) {
    sw_btree_path path;
    bool behind = sw_btree_before(btree, start, &path);
    return sw_btree_add(btree, &path, behind, start, 1);
}

static uint64_t spare_nodes(const sw_nodes *nodes) {
    uint64_t fresh = (uint64_t)(nodes->bump_end - nodes->bump) / nodes->node_bytes;
    return nodes->waiting_count + fresh;
}

/* The last node of level 0 and the root above it are full: one more hole takes a node of each level
 * and a new root, three in all. With two there is an error, and nothing has changed. */
static void a_split_reserves_a_node_a_level(void) {
    sw_btree btree;
    uint64_t start = 0;
    make_wide(&btree);
    for (; btree.height < 1 || btree.root->count < SW_BTREE_ENTRIES ||
           btree.root->child[SW_BTREE_ENTRIES - 1]->count < SW_BTREE_ENTRIES;
         start += 2)
        CHECK(add_wide(&btree, start));
    uint64_t count = btree.count;
    memory.refuses = 1;
    while (spare_nodes(&btree.nodes) > 2) (void)sw_nodes_take(&btree.nodes);
    CHECK(!add_wide(&btree, start));
    CHECK_EQ(btree.count, count);
    CHECK_STR(sw_btree_verify(&btree) ? sw_btree_verify(&btree) : "", "");
    memory.refuses = 0;
    uint64_t fresh_nodes = (btree.nodes.next_bytes - SW_CACHE_LINE) / sizeof(sw_btree_node);
    CHECK(add_wide(&btree, start));
    CHECK_EQ(spare_nodes(&btree.nodes), 2 + fresh_nodes - 3);
    CHECK_EQ(btree.height, 2);
    CHECK(sw_btree_verify(&btree) == NULL);
    sw_nodes_destroy(&btree.nodes);
    CHECK_EQ(memory.held_bytes, 0);
}

/* Every fiftieth of 2,000 holes stays: the 125 nodes of before, each with one hole or none, would
 * be 40 at least. Nodes that join have more than 12 holes each on average. */
static void nodes_with_few_holes_join(void) {
    sw_btree btree;
    sw_btree_path path;
    make_wide(&btree);
    for (uint64_t i = 0; i < 2000; i++) CHECK(add_wide(&btree, 2 * i));
    for (uint64_t i = 0; i < 2000; i++) {
        if (i % 50 == 0) continue;
        CHECK(sw_btree_before(&btree, 2 * i, &path));
        CHECK_EQ(sw_btree_start(&path), 2 * i);
        sw_btree_remove(&btree, &path);
    }
    CHECK_EQ(btree.count, 40);
    CHECK(sw_btree_verify(&btree) == NULL);
    uint64_t all = 0;
    for (uint64_t held = btree.nodes.held_bytes, bytes = SW_NODES_CHUNK_MIN; held > 0; bytes *= 2) {
        all += (bytes - SW_CACHE_LINE) / sizeof(sw_btree_node);
        held -= bytes;
    }
    CHECK(all - spare_nodes(&btree.nodes) <= 12);
    sw_nodes_destroy(&btree.nodes);
}

int main(void) {
    sizes_above_32_bits();
    trees_stay_flat();
    a_split_reserves_a_node_a_level();
    nodes_with_few_holes_join();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Defects of an earlier library of range allocators, as cases with the numbers that they had there,
 * and the two trees of holes alone: their depth, and the requirements of a split or merge of
 * B+-tree nodes. */
#include "base/attributes.h"
#include "range/btree.h"
#include "range/treap.h"
#include "range_cases.h"
#include "range_memory.h"

/* 1: requests were refused while a hole was large enough. The sequence of the finding. */
static void defect_1_refused_with_room(uint32_t backend) {
    enum { LIVE = 512 };
    static uint64_t offsets[LIVE], sizes[LIVE];
    memset(sizes, 0, sizeof sizes);
    sw_range *range = make(backend, 1 << 20, 0);
    uint64_t seed = 1, wrong = 0, refused = 0, steps = 100000 / check_share();
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t slot = check_random(&seed) % LIVE, size = 1 + check_random(&seed) % 4096;
        if (sizes[slot] != 0) CHECK_EQ(sw_range_free(range, offsets[slot], sizes[slot]), SW_OK);
        uint64_t largest = sw_range_largest_hole(range);
        offsets[slot] = sw_range_alloc(range, size);
        sizes[slot] = offsets[slot] == SW_RANGE_NONE ? 0 : size;
        refused += sizes[slot] == 0;
        wrong += (sizes[slot] == 0) != (largest < size);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(stats_of(range).refused, refused);
    end(range);
}

/* 5: what was freed twice was handed out twice. */
static void defect_5_double_free(uint32_t backend) {
    sw_range *range = make(backend, 4096, 64);
    CHECK_EQ(sw_range_alloc(range, 64), 0);
    CHECK_EQ(sw_range_alloc(range, 64), 64);
    CHECK_EQ(sw_range_free(range, 0, 64), SW_OK);
    CHECK_EQ(sw_range_free(range, 0, 64), SW_OVERLAP);
    CHECK_EQ(sw_last_error()->status, SW_OVERLAP);
    CHECK_EQ(sw_range_free(range, 2048, 64), SW_OVERLAP);
    CHECK_EQ(sw_range_free_size(range), 4096 - 64);
    CHECK_EQ(sw_range_free(range, 64, 64), SW_OK);
    CHECK_EQ(sw_range_free(range, 64, 64), SW_OVERLAP);
    CHECK_EQ(sw_range_free_size(range), 4096);
    if (backend != SW_RANGE_BUDDY) {
        CHECK_EQ(sw_range_alloc(range, 100), 0);
        CHECK_EQ(sw_range_free(range, 50, 100), SW_OVERLAP); /* half of it is free */
        CHECK_EQ(sw_range_free_size(range), 3996);
    }
    end(range);
}

/* 6: a request below the unit never returned; sizes between units overlapped. */
static void defect_6_below_the_unit(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 64 * 1024, 1024);
    CHECK_EQ(sw_range_alloc(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_range_alloc(range, 1), 0);
    CHECK_EQ(sw_range_alloc(range, 1500), 2048);
    CHECK_EQ(sw_range_alloc(range, 1500), 4096);
    end(range);
}

/* 8: the free of an address inside a block freed the block; one of another size did too. */
static void defect_8_interior_free(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 64 * 1024, 1024);
    CHECK_EQ(sw_range_alloc(range, 4096), 0);
    CHECK_EQ(sw_range_free(range, 1024, 1024), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 2048, 2048), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 10, 4096), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 0, 4095), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 0, 8192), SW_INVALID);
    CHECK_EQ(sw_range_free_size(range), 60 * 1024);
    CHECK_EQ(sw_range_free(range, 0, 4096), SW_OK);
    end(range);
}

/* 9: sizes of a buddy were rounded up in 32 bits. */
static void defect_9_sizes_above_32_bits(void) {
    sw_range *range = make(SW_RANGE_BUDDY, UINT64_C(64) << 32, UINT64_C(1) << 30);
    CHECK_EQ(sw_range_alloc(range, (UINT64_C(5) << 32) + 1), 0); /* 8 << 32 of 64 */
    CHECK_EQ(sw_range_free_size(range), UINT64_C(56) << 32);
    CHECK_EQ(sw_range_alloc(range, UINT64_C(33) << 32), SW_RANGE_NONE); /* rounded up to 64 << 32 */
    CHECK_EQ(sw_range_alloc(range, UINT64_C(32) << 32), UINT64_C(32) << 32);
    CHECK_EQ(sw_range_free(range, 0, (UINT64_C(5) << 32) + 1), SW_OK);
    CHECK_EQ(sw_range_free_size(range), UINT64_C(32) << 32);
    end(range);
}

/* 10: which tree ran was decided by the build, whatever a benchmark was called, and most asked a
 * pool with one hole, where no tree is searched. With holes of 20, 12 and 100 each back end puts a
 * request of 11 where its own rule says. */
static void defect_10_back_ends_side_by_side(void) {
    static const uint64_t placed[] = {10, 10, 40};
    sw_range *ranges[SW_RANGE_BUDDY];
    for (uint32_t backend = 0; backend < SW_RANGE_BUDDY; backend++) {
        sw_range *range = ranges[backend] = make(backend, 160, 1);
        CHECK_EQ(sw_range_alloc(range, 60), 0);
        CHECK_EQ(sw_range_free(range, 10, 20), SW_OK);
        CHECK_EQ(sw_range_free(range, 40, 12), SW_OK);
        CHECK_STR(holes_of(range), "10+20 40+12 60+100");
    }
    for (uint32_t backend = 0; backend < SW_RANGE_BUDDY; backend++) {
        CHECK_EQ(sw_range_find(ranges[backend], 11), placed[backend]);
        CHECK_EQ(sw_range_alloc(ranges[backend], 11), placed[backend]);
    }
    for (uint32_t backend = 0; backend < SW_RANGE_BUDDY; backend++) end(ranges[backend]);
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
static void defect_9_trees_stay_flat(void) {
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
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        defect_5_double_free(backend);
        if (backend == SW_RANGE_BUDDY) continue;
        defect_1_refused_with_room(backend);
    }
    defect_6_below_the_unit();
    defect_8_interior_free();
    defect_9_sizes_above_32_bits();
    defect_9_trees_stay_flat();
    defect_10_back_ends_side_by_side();
    a_split_reserves_a_node_a_level();
    nodes_with_few_holes_join();
    return check_result();
}

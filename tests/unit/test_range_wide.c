/* SPDX-License-Identifier: Apache-2.0 */
/* The B+-tree of holes by itself: what it reserves before it splits, and that nodes with few holes join.
 * What it answers is in test_range_model.c. */
#include "range/wide.h"

#include "base/attributes.h"
#include "check.h"
#include "range_memory.h"

static counted_memory memory;

static void make(sw_wide *wide) {
    sw_allocator allocator = counted_allocator(&memory);
    CHECK(sw_wide_init(wide, &allocator));
}

static bool add(sw_wide *wide, uint64_t start) {
    sw_wide_path path;
    bool behind = sw_wide_before(wide, start, &path);
    return sw_wide_add(wide, &path, behind, start, 1);
}

static uint64_t spare_nodes(const sw_nodes *nodes) {
    uint64_t fresh = (uint64_t)(nodes->bump_end - nodes->bump) / nodes->node_bytes;
    return nodes->waiting_count + fresh;
}

/* The last node of level 0 and the root above it are full: one more hole takes a node of each level and a
 * new root, three in all. With two there is an error, and nothing has changed. */
static void a_split_reserves_a_node_a_level(void) {
    sw_wide wide;
    uint64_t start = 0;
    make(&wide);
    for (; wide.height < 1 || wide.root->count < SW_WIDE_ENTRIES ||
           wide.root->child[SW_WIDE_ENTRIES - 1]->count < SW_WIDE_ENTRIES;
         start += 2)
        CHECK(add(&wide, start));
    uint64_t count = wide.count;
    memory.refuses = 1;
    while (spare_nodes(&wide.nodes) > 2) (void)sw_nodes_take(&wide.nodes);
    CHECK(!add(&wide, start));
    CHECK_EQ(wide.count, count);
    CHECK_STR(sw_wide_verify(&wide) ? sw_wide_verify(&wide) : "", "");
    memory.refuses = 0;
    uint64_t fresh_nodes = (wide.nodes.next_bytes - SW_CACHE_LINE) / sizeof(sw_wide_node);
    CHECK(add(&wide, start));
    CHECK_EQ(spare_nodes(&wide.nodes), 2 + fresh_nodes - 3);
    CHECK_EQ(wide.height, 2);
    CHECK(sw_wide_verify(&wide) == NULL);
    sw_nodes_destroy(&wide.nodes);
    CHECK_EQ(memory.held_bytes, 0);
}

/* 2,000 holes, of which every fiftieth stays: the 125 nodes of before, each with one hole or none, would
 * be 40 at least. Nodes that join have more than 12 holes each on average. */
static void nodes_with_few_holes_join(void) {
    sw_wide wide;
    sw_wide_path path;
    make(&wide);
    for (uint64_t i = 0; i < 2000; i++) CHECK(add(&wide, 2 * i));
    for (uint64_t i = 0; i < 2000; i++) {
        if (i % 50 == 0) continue;
        CHECK(sw_wide_before(&wide, 2 * i, &path));
        CHECK_EQ(sw_wide_start(&path), 2 * i);
        sw_wide_remove(&wide, &path);
    }
    CHECK_EQ(wide.count, 40);
    CHECK(sw_wide_verify(&wide) == NULL);
    uint64_t all = 0;
    for (uint64_t held = wide.nodes.held_bytes, bytes = SW_NODES_CHUNK_MIN; held > 0; bytes *= 2) {
        all += (bytes - SW_CACHE_LINE) / sizeof(sw_wide_node);
        held -= bytes;
    }
    CHECK(all - spare_nodes(&wide.nodes) <= 12);
    sw_nodes_destroy(&wide.nodes);
}

int main(void) {
    a_split_reserves_a_node_a_level();
    nodes_with_few_holes_join();
    return check_result();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Searches in the B+-tree of holes (btree.h), and changes of a single entry. */
#include "range/btree.h"

#include "base/assert.h"
#include "base/bits.h"
#include "range/btree_node.h"

bool sw_btree_init(sw_btree *btree, const sw_allocator *memory) {
    *btree = (sw_btree){.height = 0};
    sw_nodes_init(&btree->nodes, memory, sizeof(sw_btree_node));
    if (!sw_nodes_reserve(&btree->nodes, 1)) return false;
    btree->root = sw_nodes_take(&btree->nodes);
    btree->root->count = 0;
    return true;
}

/* --- searches --------------------------------------------------------------------------------- */

/* Returns the first entry from `index` on whose hole, or largest hole below, has at least `size`.
 * node->count: none. */
static sw_always_inline uint32_t first_entry(const sw_btree_node *node, uint32_t index,
                                             uint64_t size) {
    while (index < node->count && node->largest[index] < size) index++;
    return index;
}

/* Returns the number of entries that start at `offset` or earlier. A binary search without branches
 * on the comparison, which could be mispredicted. */
static sw_always_inline uint32_t entries_before(const sw_btree_node *node, uint64_t offset) {
    uint32_t low = 0, count = (uint32_t)node->count;
    while (count > 0) {
        uint32_t half = (count + 1) / 2;
        low += node->low[low + half - 1] <= offset ? half : 0;
        count -= half;
    }
    return low;
}

/* Descends from an entry on `level` to the first hole below it of at least `size`. */
static sw_always_inline void descend(sw_btree_path *path, uint32_t level, uint64_t size) {
    while (level > 0) {
        sw_btree_node *node = path->at[level].node->child[path->at[level].index];
        level--;
        path->at[level].node = node;
        path->at[level].index = first_entry(node, 0, size);
    }
}

void sw_btree_first(const sw_btree *btree, uint64_t size, sw_btree_path *path) {
    path->at[btree->height].node = btree->root;
    path->at[btree->height].index = first_entry(btree->root, 0, size);
    descend(path, btree->height, size);
}

bool sw_btree_before(const sw_btree *btree, uint64_t offset, sw_btree_path *path) {
    sw_btree_node *node = btree->root;
    uint32_t index = 0, level = btree->height;
    bool is_before = true;
    for (;; level--) {
        uint32_t before = entries_before(node, offset);
        is_before = before > 0;
        index = is_before ? before - 1 : 0;
        path->at[level].node = node;
        path->at[level].index = index;
        if (level == 0) return is_before;
        node = node->child[index];
    }
}

/* Finds the next hole of at least `size` after that of a path: ascends to the lowest level on which
 * a later entry has such a hole below it, and descends from there. */
static sw_always_inline bool next_with(const sw_btree *btree, uint64_t size,
                                       const sw_btree_path *path, sw_btree_path *next) {
    for (uint32_t level = 0; level <= btree->height; level++) {
        sw_btree_node *node = path->at[level].node;
        uint32_t index = first_entry(node, path->at[level].index + 1, size);
        if (index >= node->count) continue;
        for (uint32_t above = level + 1; above <= btree->height; above++)
            next->at[above] = path->at[above];
        next->at[level].node = node;
        next->at[level].index = index;
        descend(next, level, size);
        return true;
    }
    return false;
}

bool sw_btree_next(const sw_btree *btree, const sw_btree_path *path, sw_btree_path *next) {
    return next_with(btree, 1, path, next);
}

bool sw_btree_first_from(const sw_btree *btree, uint64_t size, uint64_t from, sw_btree_path *path) {
    if (btree->count == 0) return false;
    bool is_before = from > 0 && sw_btree_before(btree, from - 1, path);
    if (is_before) return next_with(btree, size, path, path);
    if (btree->largest < size) return false;
    sw_btree_first(btree, size, path);
    return true;
}

/* --- changes of one entry --------------------------------------------------------------------- */

/* Sets the borders of a hole, and updates the entries above it: their start if the hole is the
 * first below them, their size if it is, or was, the largest below them. */
void sw_btree_resize(sw_btree *btree, const sw_btree_path *path, uint64_t start, uint64_t size) {
    sw_btree_node *node = path->at[0].node;
    uint32_t index = path->at[0].index, level = 0;
    uint64_t old = node->largest[index];
    bool is_first = node->low[index] != start;
    node->low[index] = start;
    node->largest[index] = size;
    for (; level < btree->height; level++) {
        is_first = is_first && index == 0;
        const sw_btree_node *below = node;
        node = path->at[level + 1].node;
        index = path->at[level + 1].index;
        bool changes = size > node->largest[index] || old == node->largest[index];
        if (!is_first && !changes) return;
        if (is_first) node->low[index] = start;
        if (changes) node->largest[index] = sw_btree_node_largest(below);
    }
    if (size > btree->largest || old == btree->largest)
        btree->largest = sw_btree_node_largest(node);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Searches in the B+-tree of holes (wide.h), and changes of a single entry. */
#include "range/wide.h"

#include "base/assert.h"
#include "base/bits.h"
#include "range/wide_node.h"

bool sw_wide_init(sw_wide *wide, const sw_allocator *memory) {
    *wide = (sw_wide){.height = 0};
    sw_nodes_init(&wide->nodes, memory, sizeof(sw_wide_node));
    if (!sw_nodes_reserve(&wide->nodes, 1)) return false;
    wide->root = sw_nodes_take(&wide->nodes);
    wide->root->count = 0;
    return true;
}

/* --- searches --------------------------------------------------------------------------------- */

/* Returns the first entry from `index` on whose hole, or largest hole below, has at least `size`.
 * node->count: none. */
static sw_always_inline uint32_t first_entry(const sw_wide_node *node, uint32_t index,
                                             uint64_t size) {
    while (index < node->count && node->wide[index] < size) index++;
    return index;
}

/* Returns the number of entries that start at `offset` or earlier. A binary search without branches
 * on the comparison, which could be mispredicted. */
static sw_always_inline uint32_t entries_before(const sw_wide_node *node, uint64_t offset) {
    uint32_t low = 0, count = (uint32_t)node->count;
    while (count > 0) {
        uint32_t half = (count + 1) / 2;
        low += node->low[low + half - 1] <= offset ? half : 0;
        count -= half;
    }
    return low;
}

/* Descends from an entry on `level` to the first hole below it of at least `size`. */
static sw_always_inline void descend(sw_wide_path *path, uint32_t level, uint64_t size) {
    while (level > 0) {
        sw_wide_node *node = path->at[level].node->child[path->at[level].index];
        level--;
        path->at[level].node = node;
        path->at[level].index = first_entry(node, 0, size);
    }
}

void sw_wide_first(const sw_wide *wide, uint64_t size, sw_wide_path *path) {
    path->at[wide->height].node = wide->root;
    path->at[wide->height].index = first_entry(wide->root, 0, size);
    descend(path, wide->height, size);
}

bool sw_wide_before(const sw_wide *wide, uint64_t offset, sw_wide_path *path) {
    sw_wide_node *node = wide->root;
    uint32_t index = 0, level = wide->height;
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
static sw_always_inline bool next_with(const sw_wide *wide, uint64_t size, const sw_wide_path *path,
                                       sw_wide_path *next) {
    for (uint32_t level = 0; level <= wide->height; level++) {
        sw_wide_node *node = path->at[level].node;
        uint32_t index = first_entry(node, path->at[level].index + 1, size);
        if (index >= node->count) continue;
        for (uint32_t above = level + 1; above <= wide->height; above++)
            next->at[above] = path->at[above];
        next->at[level].node = node;
        next->at[level].index = index;
        descend(next, level, size);
        return true;
    }
    return false;
}

bool sw_wide_next(const sw_wide *wide, const sw_wide_path *path, sw_wide_path *next) {
    return next_with(wide, 1, path, next);
}

bool sw_wide_first_from(const sw_wide *wide, uint64_t size, uint64_t from, sw_wide_path *path) {
    if (wide->count == 0) return false;
    bool is_before = from > 0 && sw_wide_before(wide, from - 1, path);
    if (is_before) return next_with(wide, size, path, path);
    if (wide->largest < size) return false;
    sw_wide_first(wide, size, path);
    return true;
}

/* --- changes of one entry --------------------------------------------------------------------- */

/* Sets the borders of a hole, and updates the entries above it: their start if the hole is the
 * first below them, their size if it is, or was, the largest below them. */
void sw_wide_resize(sw_wide *wide, const sw_wide_path *path, uint64_t start, uint64_t size) {
    sw_wide_node *node = path->at[0].node;
    uint32_t index = path->at[0].index, level = 0;
    uint64_t old = node->wide[index];
    bool is_first = node->low[index] != start;
    node->low[index] = start;
    node->wide[index] = size;
    for (; level < wide->height; level++) {
        is_first = is_first && index == 0;
        const sw_wide_node *below = node;
        node = path->at[level + 1].node;
        index = path->at[level + 1].index;
        bool changes = size > node->wide[index] || old == node->wide[index];
        if (!is_first && !changes) return;
        if (is_first) node->low[index] = start;
        if (changes) node->wide[index] = sw_wide_node_largest(below);
    }
    if (size > wide->largest || old == wide->largest) wide->largest = sw_wide_node_largest(node);
}

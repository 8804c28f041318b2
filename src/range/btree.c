/* SPDX-License-Identifier: Apache-2.0 */
/* Searches in the B+-tree of holes (btree.h), and changes of a single entry. */
#include "range/btree.h"

#include <string.h>

#include "base/base.h"

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

/* --- searches --------------------------------------------------------------------------------- */

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

/* --- changes ---------------------------------------------------------------------------------- */

typedef struct entry {
    uint64_t low;
    uint64_t largest;
    sw_btree_node *child; /* NULL on level 0 */
} entry;

/* Moves `count` entries to another node, or within one node. */
static void move(sw_btree_node *to, uint64_t to_index, const sw_btree_node *from,
                 uint64_t from_index, uint64_t count, uint32_t level) {
    memmove(&to->low[to_index], &from->low[from_index], count * sizeof *to->low);
    memmove(&to->largest[to_index], &from->largest[from_index], count * sizeof *to->largest);
    if (level > 0)
        memmove(&to->child[to_index], &from->child[from_index], count * sizeof(sw_btree_node *));
}

/* --- adding ----------------------------------------------------------------------------------- */

static void put(sw_btree_node *node, uint32_t index, const entry *fresh, uint32_t level) {
    move(node, index + 1, node, index, node->count - index, level);
    node->low[index] = fresh->low;
    node->largest[index] = fresh->largest;
    if (level > 0) node->child[index] = fresh->child;
    node->count++;
}

/* Moves the upper half of a full node to a new one, and inserts the entry into the half where it
 * belongs. Returns the new node. */
static sw_btree_node *split(sw_btree *btree, sw_btree_node *node, uint32_t index,
                            const entry *fresh, uint32_t level) {
    sw_btree_node *right = sw_nodes_take(&btree->nodes);
    uint32_t half = SW_BTREE_ENTRIES / 2;
    right->count = SW_BTREE_ENTRIES - half;
    move(right, 0, node, half, right->count, level);
    node->count = half;
    if (index > half) {
        put(right, index - half, fresh, level);
    } else {
        put(node, index, fresh, level);
    }
    return right;
}

static entry entry_of(sw_btree_node *child) {
    return (entry){child->low[0], sw_btree_node_largest(child), child};
}

static void raise_root(sw_btree *btree, const entry *right) {
    sw_btree_node *root = sw_nodes_take(&btree->nodes);
    entry left = entry_of(btree->root);
    btree->height++;
    sw_assert1(btree->height < SW_BTREE_HEIGHT_MAX);
    root->count = 0;
    put(root, 0, &left, btree->height);
    put(root, 1, right, btree->height);
    btree->root = root;
}

/* Reserves a new node for each full node on the path, from level 0 up to the first that is not
 * full, and one more for a new root if all are full. */
static bool reserve_splits(sw_btree *btree, const sw_btree_path *path) {
    uint32_t level = 0;
    while (level <= btree->height && path->at[level].node->count == SW_BTREE_ENTRIES) level++;
    return sw_nodes_reserve(&btree->nodes, level + (level > btree->height));
}

bool sw_btree_add(sw_btree *btree, sw_btree_path *path, bool after, uint64_t start, uint64_t size) {
    sw_check2(sw_btree_check(btree) ?: sw_btree_node_check(path->at[0].node));
    if (!reserve_splits(btree, path)) return false;
    entry fresh = {start, size, NULL};
    uint32_t level = 0, index = path->at[0].index + after;
    btree->count++;
    while (path->at[level].node->count == SW_BTREE_ENTRIES) {
        sw_btree_node *right = split(btree, path->at[level].node, index, &fresh, level);
        fresh = entry_of(right);
        if (level == btree->height) {
            raise_root(btree, &fresh);
            btree->largest = sw_btree_node_largest(btree->root);
            return true;
        }
        level++;
        index = path->at[level].index + 1;
        (void)sw_btree_renew(path->at[level].node, path->at[level].index);
    }
    put(path->at[level].node, index, &fresh, level);
    sw_btree_settle(btree, path, level);
    return true;
}

/* --- removing --------------------------------------------------------------------------------- */

static void take_out(sw_btree_node *node, uint32_t index, uint32_t level) {
    move(node, index, node, index + 1, node->count - index - 1, level);
    node->count--;
}

/* Moves the entries of a node to its left neighbour, if the two have few together, and removes the
 * node. */
static bool join(sw_btree *btree, sw_btree_node *parent, uint32_t left_index, uint32_t level) {
    sw_btree_node *left = parent->child[left_index], *right = parent->child[left_index + 1];
    if (left->count + right->count > SW_BTREE_JOINED_MAX) return false;
    move(left, left->count, right, 0, right->count, level);
    left->count += right->count;
    sw_nodes_give(&btree->nodes, right);
    take_out(parent, left_index + 1, level + 1);
    (void)sw_btree_renew(parent, left_index);
    return true;
}

/* Called for a node on `level` that has lost an entry. An empty node is removed, and one with few
 * entries is merged with a neighbour. True: its parent has lost an entry, too. */
static bool shrink_node(sw_btree *btree, const sw_btree_path *path, uint32_t level) {
    sw_btree_node *node = path->at[level].node, *parent = path->at[level + 1].node;
    uint32_t index = path->at[level + 1].index;
    if (node->count == 0) {
        sw_nodes_give(&btree->nodes, node);
        take_out(parent, index, level + 1);
        return true;
    }
    (void)sw_btree_renew(parent, index);
    if (node->count >= SW_BTREE_FEW) return false;
    return (index > 0 && join(btree, parent, index - 1, level)) ||
           (index + 1 < parent->count && join(btree, parent, index, level));
}

/* While the root has one entry, makes its child the root. */
static void lower_root(sw_btree *btree) {
    while (btree->height > 0 && btree->root->count == 1) {
        sw_btree_node *child = btree->root->child[0];
        sw_nodes_give(&btree->nodes, btree->root);
        btree->root = child;
        btree->height--;
    }
}

void sw_btree_remove(sw_btree *btree, sw_btree_path *path) {
    sw_check2(sw_btree_check(btree) ?: sw_btree_node_check(path->at[0].node));
    uint32_t level = 0;
    take_out(path->at[0].node, path->at[0].index, 0);
    btree->count--;
    while (level < btree->height && shrink_node(btree, path, level)) level++;
    if (level < btree->height) sw_btree_settle(btree, path, level + 1);
    lower_root(btree);
    btree->largest = sw_btree_node_largest(btree->root);
}

/* --- rules ------------------------------------------------------------------------------------ */

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

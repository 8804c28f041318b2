/* SPDX-License-Identifier: Apache-2.0 */
/* Adds and removes entries of the B+-tree, and splits and merges nodes (wide.h). */
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "range/wide.h"
#include "range/wide_node.h"

typedef struct entry {
    uint64_t low;
    uint64_t wide;
    sw_wide_node *child; /* NULL on level 0 */
} entry;

/* Moves `count` entries to another node, or within one node. */
static void move(sw_wide_node *to, uint64_t to_index, const sw_wide_node *from, uint64_t from_index,
                 uint64_t count, uint32_t level) {
    memmove(&to->low[to_index], &from->low[from_index], count * sizeof *to->low);
    memmove(&to->wide[to_index], &from->wide[from_index], count * sizeof *to->wide);
    if (level > 0)
        memmove(&to->child[to_index], &from->child[from_index], count * sizeof(sw_wide_node *));
}

/* --- adding ----------------------------------------------------------------------------------- */

static void put(sw_wide_node *node, uint32_t index, const entry *fresh, uint32_t level) {
    move(node, index + 1, node, index, node->count - index, level);
    node->low[index] = fresh->low;
    node->wide[index] = fresh->wide;
    if (level > 0) node->child[index] = fresh->child;
    node->count++;
}

/* Moves the upper half of a full node to a new one, and inserts the entry into the half where it
 * belongs. Returns the new node. */
static sw_wide_node *split(sw_wide *wide, sw_wide_node *node, uint32_t index, const entry *fresh,
                           uint32_t level) {
    sw_wide_node *right = sw_nodes_take(&wide->nodes);
    uint32_t half = SW_WIDE_ENTRIES / 2;
    right->count = SW_WIDE_ENTRIES - half;
    move(right, 0, node, half, right->count, level);
    node->count = half;
    if (index > half) {
        put(right, index - half, fresh, level);
    } else {
        put(node, index, fresh, level);
    }
    return right;
}

static entry entry_of(sw_wide_node *child) {
    return (entry){child->low[0], sw_wide_node_largest(child), child};
}

static void raise_root(sw_wide *wide, const entry *right) {
    sw_wide_node *root = sw_nodes_take(&wide->nodes);
    entry left = entry_of(wide->root);
    wide->height++;
    sw_assert1(wide->height < SW_WIDE_HEIGHT_MAX);
    root->count = 0;
    put(root, 0, &left, wide->height);
    put(root, 1, right, wide->height);
    wide->root = root;
}

/* Reserves a new node for each full node on the path, from level 0 up to the first that is not
 * full, and one more for a new root if all are full. */
static bool reserve_splits(sw_wide *wide, const sw_wide_path *path) {
    uint32_t level = 0;
    while (level <= wide->height && path->at[level].node->count == SW_WIDE_ENTRIES) level++;
    return sw_nodes_reserve(&wide->nodes, level + (level > wide->height));
}

bool sw_wide_add(sw_wide *wide, sw_wide_path *path, bool behind, uint64_t start, uint64_t size) {
    sw_check2(sw_wide_check(wide) ?: sw_wide_node_check(path->at[0].node));
    if (!reserve_splits(wide, path)) return false;
    entry fresh = {start, size, NULL};
    uint32_t level = 0, index = path->at[0].index + behind;
    wide->count++;
    while (path->at[level].node->count == SW_WIDE_ENTRIES) {
        sw_wide_node *right = split(wide, path->at[level].node, index, &fresh, level);
        fresh = entry_of(right);
        if (level == wide->height) {
            raise_root(wide, &fresh);
            wide->largest = sw_wide_node_largest(wide->root);
            return true;
        }
        level++;
        index = path->at[level].index + 1;
        (void)sw_wide_renew(path->at[level].node, path->at[level].index);
    }
    put(path->at[level].node, index, &fresh, level);
    sw_wide_settle(wide, path, level);
    return true;
}

/* --- removing --------------------------------------------------------------------------------- */

static void take_out(sw_wide_node *node, uint32_t index, uint32_t level) {
    move(node, index, node, index + 1, node->count - index - 1, level);
    node->count--;
}

/* Moves the entries of a node to its left neighbour, if the two have few together, and removes the
 * node. */
static bool join(sw_wide *wide, sw_wide_node *parent, uint32_t left_index, uint32_t level) {
    sw_wide_node *left = parent->child[left_index], *right = parent->child[left_index + 1];
    if (left->count + right->count > SW_WIDE_JOINED_MAX) return false;
    move(left, left->count, right, 0, right->count, level);
    left->count += right->count;
    sw_nodes_give(&wide->nodes, right);
    take_out(parent, left_index + 1, level + 1);
    (void)sw_wide_renew(parent, left_index);
    return true;
}

/* Called for a node on `level` that has lost an entry. An empty node is removed, and one with few
 * entries is merged with a neighbour. True: its parent has lost an entry, too. */
static bool shrink_node(sw_wide *wide, const sw_wide_path *path, uint32_t level) {
    sw_wide_node *node = path->at[level].node, *parent = path->at[level + 1].node;
    uint32_t index = path->at[level + 1].index;
    if (node->count == 0) {
        sw_nodes_give(&wide->nodes, node);
        take_out(parent, index, level + 1);
        return true;
    }
    (void)sw_wide_renew(parent, index);
    if (node->count >= SW_WIDE_FEW) return false;
    return (index > 0 && join(wide, parent, index - 1, level)) ||
           (index + 1 < parent->count && join(wide, parent, index, level));
}

/* While the root has one entry, makes its child the root. */
static void lower_root(sw_wide *wide) {
    while (wide->height > 0 && wide->root->count == 1) {
        sw_wide_node *child = wide->root->child[0];
        sw_nodes_give(&wide->nodes, wide->root);
        wide->root = child;
        wide->height--;
    }
}

void sw_wide_remove(sw_wide *wide, sw_wide_path *path) {
    sw_check2(sw_wide_check(wide) ?: sw_wide_node_check(path->at[0].node));
    uint32_t level = 0;
    take_out(path->at[0].node, path->at[0].index, 0);
    wide->count--;
    while (level < wide->height && shrink_node(wide, path, level)) level++;
    if (level < wide->height) sw_wide_settle(wide, path, level + 1);
    lower_root(wide);
    wide->largest = sw_wide_node_largest(wide->root);
}

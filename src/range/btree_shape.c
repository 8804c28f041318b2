/* SPDX-License-Identifier: Apache-2.0 */
/* Adds and removes entries of the B+-tree, and splits and merges nodes (btree.h). */
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "range/btree.h"
#include "range/btree_node.h"

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

bool sw_btree_add(sw_btree *btree, sw_btree_path *path, bool behind, uint64_t start,
                  uint64_t size) {
    sw_check2(sw_btree_check(btree) ?: sw_btree_node_check(path->at[0].node));
    if (!reserve_splits(btree, path)) return false;
    entry fresh = {start, size, NULL};
    uint32_t level = 0, index = path->at[0].index + behind;
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

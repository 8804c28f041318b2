/* SPDX-License-Identifier: Apache-2.0 */
/* Treaps of holes by start and by size (treap.h). */
#include "range/treap.h"

#include "base/assert.h"
#include "base/bits.h"

void sw_treap_init(sw_treap *tree, const sw_allocator *memory, bool by_size) {
    *tree = (sw_treap){.seed = UINT64_C(0x9E3779B97F4A7C15), .by_size = by_size};
    sw_nodes_init(&tree->nodes, memory, sizeof(sw_treap_node));
}

/* --- searches --------------------------------------------------------------------------------- */

static uint64_t largest_of(const sw_treap_node *node) { return node == NULL ? 0 : node->largest; }

static sw_treap_node *first_below(sw_treap_node *node, uint64_t size) {
    while (largest_of(node) >= size) {
        sw_treap_node *left = node->link[SW_TREAP_START].child[0];
        if (largest_of(left) >= size) {
            node = left;
        } else if (node->size >= size) {
            return node;
        } else {
            node = node->link[SW_TREAP_START].child[1];
        }
    }
    return NULL;
}

sw_treap_node *sw_treap_first(const sw_treap *tree, uint64_t size) {
    return first_below(tree->root[SW_TREAP_START], size);
}

/* Descends towards `from`, and remembers each node that starts at `from` or later and that fits, or
 * whose right subtree has a hole that fits. The last such node is the nearest: the result is that
 * node, or the first hole that fits in its right subtree. */
sw_treap_node *sw_treap_first_from(const sw_treap *tree, uint64_t size, uint64_t from) {
    sw_treap_node *best = NULL;
    for (sw_treap_node *node = tree->root[SW_TREAP_START]; largest_of(node) >= size;) {
        const sw_treap_link *link = &node->link[SW_TREAP_START];
        bool behind = node->start >= from;
        if (behind && (node->size >= size || largest_of(link->child[1]) >= size)) best = node;
        node = link->child[!behind];
    }
    if (best == NULL || best->size >= size) return best;
    return first_below(best->link[SW_TREAP_START].child[1], size);
}

sw_treap_node *sw_treap_best(const sw_treap *tree, uint64_t size) {
    sw_treap_node *best = NULL;
    for (sw_treap_node *node = tree->root[SW_TREAP_SIZE]; node != NULL;) {
        bool fits = node->size >= size;
        if (fits) best = node;
        node = node->link[SW_TREAP_SIZE].child[!fits];
    }
    return best;
}

/* --- shape ------------------------------------------------------------------------------------ */

static uint64_t sum_up(const sw_treap_node *node) {
    const sw_treap_link *link = &node->link[SW_TREAP_START];
    uint64_t below = sw_max_u64(largest_of(link->child[0]), largest_of(link->child[1]));
    return sw_max_u64(node->size, below);
}

/* Updates `largest` from a node upwards, until a value does not change. */
static void sum_upwards(sw_treap_node *node) {
    for (; node != NULL; node = node->link[SW_TREAP_START].parent) {
        uint64_t largest = sum_up(node);
        if (largest == node->largest) return;
        node->largest = largest;
    }
}

/* Replaces `node` under its parent by `fresh`, which may be NULL. */
static sw_always_inline void replace_child(sw_treap *tree, sw_treap_node *node,
                                           sw_treap_node *fresh, int order) {
    sw_treap_node *parent = node->link[order].parent;
    if (fresh != NULL) fresh->link[order].parent = parent;
    if (parent == NULL) {
        tree->root[order] = fresh;
    } else {
        parent->link[order].child[parent->link[order].child[1] == node] = fresh;
    }
}

static sw_always_inline void rotate_up(sw_treap *tree, sw_treap_node *node, int order) {
    sw_treap_node *parent = node->link[order].parent;
    int side = parent->link[order].child[1] == node;
    sw_treap_node *between = node->link[order].child[!side];
    replace_child(tree, parent, node, order);
    node->link[order].child[!side] = parent;
    parent->link[order].parent = node;
    parent->link[order].child[side] = between;
    if (between != NULL) between->link[order].parent = parent;
    if (order == SW_TREAP_START) {
        node->largest = parent->largest;
        parent->largest = sum_up(parent);
    }
}

static sw_always_inline bool is_before(const sw_treap_node *a, const sw_treap_node *b, int order) {
    if (order == SW_TREAP_SIZE && a->size != b->size) return a->size < b->size;
    return a->start < b->start;
}

static sw_always_inline void link_in(sw_treap *tree, sw_treap_node *node, int order) {
    sw_treap_node *parent = NULL, **place = &tree->root[order];
    while (*place != NULL) {
        parent = *place;
        place = &parent->link[order].child[is_before(parent, node, order)];
    }
    *place = node;
    node->link[order] = (sw_treap_link){.parent = parent};
    if (order == SW_TREAP_START) sum_upwards(parent);
    while (node->link[order].parent != NULL && node->link[order].parent->priority < node->priority)
        rotate_up(tree, node, order);
}

static sw_always_inline void link_out(sw_treap *tree, sw_treap_node *node, int order) {
    sw_treap_link *link = &node->link[order];
    while (link->child[0] != NULL && link->child[1] != NULL)
        rotate_up(tree, link->child[link->child[1]->priority > link->child[0]->priority], order);
    replace_child(tree, node, link->child[0] != NULL ? link->child[0] : link->child[1], order);
    if (order == SW_TREAP_START) sum_upwards(link->parent);
}

/* --- changes ---------------------------------------------------------------------------------- */

static uint64_t next_priority(sw_treap *tree) { /* xorshift64 (Marsaglia 2003) */
    tree->seed ^= tree->seed << 13;
    tree->seed ^= tree->seed >> 7;
    tree->seed ^= tree->seed << 17;
    return tree->seed;
}

void sw_treap_add(sw_treap *tree, uint64_t start, uint64_t size) {
    sw_check2(sw_treap_check(tree));
    sw_treap_node *node = sw_nodes_take(&tree->nodes);
    *node = (sw_treap_node){.start = start, .size = size, .largest = size};
    node->priority = next_priority(tree);
    link_in(tree, node, SW_TREAP_START);
    if (tree->by_size) link_in(tree, node, SW_TREAP_SIZE);
    tree->count++;
}

void sw_treap_remove(sw_treap *tree, sw_treap_node *node) {
    sw_check2(sw_treap_check(tree) ?: sw_treap_node_check(node));
    link_out(tree, node, SW_TREAP_START);
    if (tree->by_size) link_out(tree, node, SW_TREAP_SIZE);
    tree->count--;
    sw_nodes_give(&tree->nodes, node);
}

/* Returns the neighbour of a node in an order: the node before (side 0) or after it (side 1); NULL:
 * none. */
static sw_treap_node *neighbour(sw_treap_node *node, int order, int side) {
    sw_treap_node *at = node->link[order].child[side];
    if (at != NULL) {
        while (at->link[order].child[!side] != NULL) at = at->link[order].child[!side];
        return at;
    }
    for (at = node; (node = at->link[order].parent) != NULL; at = node)
        if (node->link[order].child[!side] == at) return node;
    return NULL;
}

/* Returns whether a node that has changed is still between its neighbours in the order by size. */
static bool is_in_place(sw_treap_node *node) {
    sw_treap_node *before = neighbour(node, SW_TREAP_SIZE, 0);
    if (before != NULL && !is_before(before, node, SW_TREAP_SIZE)) return false;
    sw_treap_node *after = neighbour(node, SW_TREAP_SIZE, 1);
    return after == NULL || is_before(node, after, SW_TREAP_SIZE);
}

void sw_treap_resize(sw_treap *tree, sw_treap_node *node, uint64_t start, uint64_t size) {
    node->start = start;
    node->size = size;
    sum_upwards(node);
    if (!tree->by_size || is_in_place(node)) return;
    link_out(tree, node, SW_TREAP_SIZE);
    link_in(tree, node, SW_TREAP_SIZE);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The holes of a range in treaps (Aragon and Seidel, "Randomized search trees", 1989): binary search
 * trees whose shape is that of random insertions, because each node carries a random priority and no
 * child has a higher one than its parent. Expected depth is O(log n), whatever the order of calls.
 *
 * Every tree orders its holes by start, and each node knows the largest hole below it, so the first
 * hole in address order that is large enough is found on one way down. A tree with `by_size` orders
 * them by (size, start) as well, through a second set of links of the same nodes: best fit.
 * Callers: back_tree.c. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_TREE_H
#define SW_RANGE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "range/nodes.h"

typedef struct sw_tree_node sw_tree_node;

typedef struct sw_tree_link {
    sw_tree_node *child[2]; /* 0: what comes before, 1: what comes after */
    sw_tree_node *parent;
} sw_tree_link;

enum { SW_TREE_START = 0, SW_TREE_SIZE = 1, SW_TREE_ORDERS = 2 };

/* One hole, [start, start + size).
 *   size >= 1
 *   largest == the maximum of size and of largest of both children, by start
 *   priority >= that of each child, in both orders */
struct sw_tree_node {
    uint64_t start;
    uint64_t size;
    uint64_t largest;
    uint64_t priority;
    sw_tree_link link[SW_TREE_ORDERS];
};

/*   (count == 0) == (root[SW_TREE_START] == NULL);  a root has no parent
 *   root[SW_TREE_SIZE] is NULL unless by_size;  seed != 0 */
typedef struct sw_tree {
    sw_tree_node *root[SW_TREE_ORDERS];
    uint64_t count;
    uint64_t seed; /* of the next priority */
    bool by_size;
    sw_nodes nodes;
} sw_tree;

/* An empty tree. */
void sw_tree_init(sw_tree *tree, const sw_allocator *memory, bool by_size);

/* The first hole by address of at least `size`; NULL: there is none. */
sw_tree_node *sw_tree_first(const sw_tree *tree, uint64_t size);
/* The same among the holes that start at `from` or behind it. */
sw_tree_node *sw_tree_first_from(const sw_tree *tree, uint64_t size, uint64_t from);
/* The smallest hole of at least `size`, of several the first by address. The tree is by_size. */
sw_tree_node *sw_tree_best(const sw_tree *tree, uint64_t size);
/* The last hole that starts at `offset` or before it, and the first that starts behind it. */
static inline void sw_tree_around(const sw_tree *tree, uint64_t offset, sw_tree_node **before,
                                  sw_tree_node **after) {
    *before = *after = NULL;
    for (sw_tree_node *node = tree->root[SW_TREE_START]; node != NULL;) {
        bool is_before = node->start <= offset;
        *(is_before ? before : after) = node;
        node = node->link[SW_TREE_START].child[is_before];
    }
}

static inline uint64_t sw_tree_end(const sw_tree_node *node) { return node->start + node->size; }

/* Adds a hole that touches no other one. A node was reserved before (sw_nodes_reserve). */
void sw_tree_add(sw_tree *tree, uint64_t start, uint64_t size);
void sw_tree_remove(sw_tree *tree, sw_tree_node *node);
/* Gives a hole other borders, between those of its neighbours. */
void sw_tree_resize(sw_tree *tree, sw_tree_node *node, uint64_t start, uint64_t size);

static inline uint64_t sw_tree_largest(const sw_tree *tree) {
    return tree->count == 0 ? 0 : tree->root[SW_TREE_START]->largest;
}

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_tree_check(const sw_tree *tree);
const char *sw_tree_node_check(const sw_tree_node *node);
/* The same for every node and both orders; takes time in proportion to the holes. */
const char *sw_tree_verify(const sw_tree *tree);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The holes of a range in treaps (Aragon and Seidel, "Randomized search trees", 1989): binary
 * search trees in which each node has a random priority, and no child has a higher one than its
 * parent. So their shape is that of random insertions, and the expected depth is O(log n) for any
 * order of calls.
 *
 * Every tree orders its holes by start, and each node has the size of the largest hole in its
 * subtree. So the first hole by address that is large enough is found in one descent. A tree with
 * `by_size` also orders the same nodes by (size, start), with a second set of links, for best fit.
 * Callers: back_tree.c. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_TREE_H
#define SW_RANGE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "range/nodes.h"

typedef struct sw_tree_node sw_tree_node;

typedef struct sw_tree_link {
    sw_tree_node *child[2]; /* [0]: the holes before, [1]: the holes after */
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

void sw_tree_init(sw_tree *tree, const sw_allocator *memory, bool by_size);

/* Returns the first hole by address of at least `size`; NULL: none. */
sw_tree_node *sw_tree_first(const sw_tree *tree, uint64_t size);
/* As sw_tree_first, among the holes that start at `from` or later. */
sw_tree_node *sw_tree_first_from(const sw_tree *tree, uint64_t size, uint64_t from);
/* Returns the smallest hole of at least `size`; ties: the first by address. The tree must be
 * by_size. */
sw_tree_node *sw_tree_best(const sw_tree *tree, uint64_t size);
/* *before: the last hole that starts at `offset` or earlier; *after: the first one that starts
 * later; NULL: none. */
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

/* Adds a hole that touches no other. A node must have been reserved (sw_nodes_reserve). */
void sw_tree_add(sw_tree *tree, uint64_t start, uint64_t size);
void sw_tree_remove(sw_tree *tree, sw_tree_node *node);
/* Sets the borders of a hole, between those of its neighbours. */
void sw_tree_resize(sw_tree *tree, sw_tree_node *node, uint64_t start, uint64_t size);

static inline uint64_t sw_tree_largest(const sw_tree *tree) {
    return tree->count == 0 ? 0 : tree->root[SW_TREE_START]->largest;
}

const char *sw_tree_check(const sw_tree *tree);
const char *sw_tree_node_check(const sw_tree_node *node);
/* As sw_tree_check, and the rules of every node in both orders. */
const char *sw_tree_verify(const sw_tree *tree);

#endif

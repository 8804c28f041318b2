/* SPDX-License-Identifier: Apache-2.0 */
/* The holes of a range in treaps (Aragon and Seidel, "Randomized search trees", 1989): binary
 * search trees in which each node has a random priority, and no child has a higher one than its
 * parent. So their shape is that of random insertions, and the expected depth is O(log n) for any
 * order of calls.
 *
 * Every tree orders its holes by start, and each node has the size of the largest hole in its
 * subtree. So the first hole by address that is large enough is found in one descent. A tree with
 * `by_size` also orders the same nodes by (size, start), with a second set of links, for best fit.
 * Design: docs/design/range.md.
 */
#ifndef SW_RANGE_TREAP_H
#define SW_RANGE_TREAP_H

#include <stdbool.h>
#include <stdint.h>

#include "range/nodes.h"

typedef struct sw_treap_node sw_treap_node;

typedef struct sw_treap_link {
    sw_treap_node *child[2]; /* [0]: the holes before, [1]: the holes after */
    sw_treap_node *parent;
} sw_treap_link;

enum { SW_TREAP_START = 0, SW_TREAP_SIZE = 1, SW_TREAP_ORDERS = 2 };

/* One hole, [start, start + size).
 *   size >= 1
 *   largest == the maximum of size and of largest of both children, by start
 *   priority >= that of each child, in both orders */
struct sw_treap_node {
    uint64_t start;
    uint64_t size;
    uint64_t largest;
    uint64_t priority;
    sw_treap_link link[SW_TREAP_ORDERS];
};

/*   (count == 0) == (root[SW_TREAP_START] == NULL);  a root has no parent
 *   root[SW_TREAP_SIZE] is NULL unless by_size;  seed != 0 */
typedef struct sw_treap {
    sw_treap_node *root[SW_TREAP_ORDERS];
    uint64_t count;
    uint64_t seed; /* of the next priority */
    bool by_size;
    sw_nodes nodes;
} sw_treap;

/* Returns the first hole by address of at least `size`; NULL: none. */
sw_treap_node *sw_treap_first(const sw_treap *tree, uint64_t size);
/* *before: the last hole that starts at `offset` or earlier; *after: the first one that starts
 * later; NULL: none. */
static inline void sw_treap_around(const sw_treap *tree, uint64_t offset, sw_treap_node **before,
                                   sw_treap_node **after) {
    *before = *after = NULL;
    for (sw_treap_node *node = tree->root[SW_TREAP_START]; node != NULL;) {
        bool is_before = node->start <= offset;
        *(is_before ? before : after) = node;
        node = node->link[SW_TREAP_START].child[is_before];
    }
}

static inline uint64_t sw_treap_end(const sw_treap_node *node) { return node->start + node->size; }

static inline uint64_t sw_treap_largest(const sw_treap *tree) {
    return tree->count == 0 ? 0 : tree->root[SW_TREAP_START]->largest;
}

const char *sw_treap_check(const sw_treap *tree);
const char *sw_treap_node_check(const sw_treap_node *node);

#endif

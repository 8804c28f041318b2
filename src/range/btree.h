/* SPDX-License-Identifier: Apache-2.0 */
/* The holes of a range in a B+-tree by start (Comer, "The Ubiquitous B-Tree", 1979) in which each
 * entry has the size of the largest hole below it. A node has up to 32 entries, so the tree is
 * three nodes deep with 10,000 holes, and a search reads few cache lines of each. The first hole
 * that is large enough is found in one descent. The size of the largest hole of all is in sw_btree.
 *
 *        largest                          low[]   where the first hole below an entry starts
 *           |                             largest[] the largest hole below it
 *     [ 0:900 | 7000:400 ]                a node without children holds the holes themselves:
 *        |          |                     start and size
 *     [0:20|90:900] [7000:400|8000:8]
 *
 * Callers: back_btree.c. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_BTREE_H
#define SW_RANGE_BTREE_H

#include <stdbool.h>
#include <stdint.h>

#include "range/nodes.h"

enum {
    SW_BTREE_ENTRIES = 32,
    SW_BTREE_FEW = 8,         /* a node with fewer entries is merged with a neighbour if possible */
    SW_BTREE_JOINED_MAX = 24, /* maximum entries of two nodes together for a merge */
    SW_BTREE_HEIGHT_MAX =
        16, /* a split leaves 16 entries in each half: 16^16 holes are more than there can be */
};

typedef struct sw_btree_node sw_btree_node;

/* The first `count` entries are in use.
 *   1 <= count <= SW_BTREE_ENTRIES; a root may have count 0
 *   low is ascending; entries of a node without children are holes that do not touch */
struct sw_btree_node {
    uint64_t count;
    uint64_t low[SW_BTREE_ENTRIES];
    uint64_t largest[SW_BTREE_ENTRIES];
    sw_btree_node *child[SW_BTREE_ENTRIES]; /* unused in nodes of level 0 */
};

/*   height < SW_BTREE_HEIGHT_MAX: the level of the root; holes are on level 0
 *   largest == the maximum of the root's largest, 0 without holes;  (count == 0) == (largest == 0) */
typedef struct sw_btree {
    sw_btree_node *root;
    uint64_t largest;
    uint64_t count; /* number of holes */
    uint32_t height;
    sw_nodes nodes;
} sw_btree;

/* The path to an entry, or to the place for one: on each level up to the root, the node and the
 * index of the entry in it. */
typedef struct sw_btree_path {
    struct {
        sw_btree_node *node;
        uint32_t index;
    } at[SW_BTREE_HEIGHT_MAX];
} sw_btree_path;

/* Makes a tree without holes. False: no memory. */
bool sw_btree_init(sw_btree *btree, const sw_allocator *memory);

/* Finds the first hole by address of at least `size`. There must be one (largest >= size). */
void sw_btree_first(const sw_btree *btree, uint64_t size, sw_btree_path *path);
/* As sw_btree_first, among the holes that start at `from` or later. False: none. */
bool sw_btree_first_from(const sw_btree *btree, uint64_t size, uint64_t from, sw_btree_path *path);
/* Finds the last hole that starts at `offset` or earlier. False: there is none, and the path leads
 * to the first hole, or to the place for one. */
bool sw_btree_before(const sw_btree *btree, uint64_t offset, sw_btree_path *path);
/* Finds the hole after that of a path. False: there is none. */
bool sw_btree_next(const sw_btree *btree, const sw_btree_path *path, sw_btree_path *next);

static inline uint64_t sw_btree_start(const sw_btree_path *path) {
    return path->at[0].node->low[path->at[0].index];
}
static inline uint64_t sw_btree_size(const sw_btree_path *path) {
    return path->at[0].node->largest[path->at[0].index];
}

/* Sets the borders of a path's hole, between those of its neighbours. */
void sw_btree_resize(sw_btree *btree, const sw_btree_path *path, uint64_t start, uint64_t size);
/* Removes a path's hole; the path is not valid after that. */
void sw_btree_remove(sw_btree *btree, sw_btree_path *path);
/* Adds a hole that touches no other. after: after the path's hole; otherwise before all holes, for
 * a path of which sw_btree_before returned false. False: no memory, and nothing has changed. */
bool sw_btree_add(sw_btree *btree, sw_btree_path *path, bool after, uint64_t start, uint64_t size);

const char *sw_btree_check(const sw_btree *btree);
const char *sw_btree_node_check(const sw_btree_node *node);
/* As sw_btree_check, and the rules of every node and of its entry in the parent. */
const char *sw_btree_verify(const sw_btree *btree);

#endif

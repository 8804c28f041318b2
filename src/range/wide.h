/* SPDX-License-Identifier: Apache-2.0 */
/* The holes of a range in a B+-tree by start (Comer, "The Ubiquitous B-Tree", 1979) that knows the
 * largest hole below each entry. Up to 32 holes lie side by side in a node, so 10,000 of them are three
 * nodes deep, and a search reads few cache lines of each. The first hole that is large enough is found
 * on one way down; the largest hole of all stands at the top.
 *
 *        largest                          low[]   where the first hole below an entry starts
 *           |                             wide[]  the largest hole below it
 *     [ 0:900 | 7000:400 ]                a node without children holds the holes themselves:
 *        |          |                     start and size
 *     [0:20|90:900] [7000:400|8000:8]
 *
 * Callers: back_wide.c. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_WIDE_H
#define SW_RANGE_WIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "range/nodes.h"

enum {
    SW_WIDE_ENTRIES = 32,
    SW_WIDE_FEW = 8,         /* with fewer entries a node asks whether it can join its neighbour */
    SW_WIDE_JOINED_MAX = 24, /* what two nodes may have together when they become one */
    SW_WIDE_HEIGHT_MAX =
        16, /* a split leaves 16 entries: 16^16 holes are more than there are starts */
};

typedef struct sw_wide_node sw_wide_node;

/* The first `count` entries are in use.
 *   1 <= count <= SW_WIDE_ENTRIES, but for a root without holes
 *   low is ascending; entries of a node without children are holes that do not touch */
struct sw_wide_node {
    uint64_t count;
    uint64_t low[SW_WIDE_ENTRIES];
    uint64_t wide[SW_WIDE_ENTRIES];
    sw_wide_node *child[SW_WIDE_ENTRIES]; /* unused in nodes of level 0 */
};

/*   height < SW_WIDE_HEIGHT_MAX: the level of the root; holes are on level 0
 *   largest == the maximum of the root's wide, 0 without holes;  (count == 0) == (largest == 0) */
typedef struct sw_wide {
    sw_wide_node *root;
    uint64_t largest;
    uint64_t count; /* holes */
    uint32_t height;
    sw_nodes nodes;
} sw_wide;

/* Where an entry is, or would be: the node and the entry in it on every level up to the root. */
typedef struct sw_wide_path {
    struct {
        sw_wide_node *node;
        uint32_t index;
    } at[SW_WIDE_HEIGHT_MAX];
} sw_wide_path;

/* A tree without holes. False when there is no memory. */
bool sw_wide_init(sw_wide *wide, const sw_allocator *memory);

/* The path to the first hole of at least `size` by address. There is one (largest >= size). */
void sw_wide_first(const sw_wide *wide, uint64_t size, sw_wide_path *path);
/* The same among the holes that start at `from` or behind it. False: there is none. */
bool sw_wide_first_from(const sw_wide *wide, uint64_t size, uint64_t from, sw_wide_path *path);
/* The path to the last hole that starts at `offset` or before it. False: there is none; then the path
 * leads to the first hole, or to where it would be. */
bool sw_wide_before(const sw_wide *wide, uint64_t offset, sw_wide_path *path);
/* Whether a hole lies behind that of a path; `next` leads to it then. */
bool sw_wide_next(const sw_wide *wide, const sw_wide_path *path, sw_wide_path *next);

static inline uint64_t sw_wide_start(const sw_wide_path *path) {
    return path->at[0].node->low[path->at[0].index];
}
static inline uint64_t sw_wide_size(const sw_wide_path *path) {
    return path->at[0].node->wide[path->at[0].index];
}

/* Gives the hole of a path other borders, between those of its neighbours. */
void sw_wide_resize(sw_wide *wide, const sw_wide_path *path, uint64_t start, uint64_t size);
/* Takes the hole of a path out. The path is used up. */
void sw_wide_remove(sw_wide *wide, sw_wide_path *path);
/* Adds a hole that touches no other one behind the hole of a path, or before all others where
 * sw_wide_before found none. False, and nothing has changed: there is no memory. */
bool sw_wide_add(sw_wide *wide, sw_wide_path *path, bool behind, uint64_t start, uint64_t size);

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_wide_check(const sw_wide *wide);
const char *sw_wide_node_check(const sw_wide_node *node);
/* The same for every node and what ties it to its parent. */
const char *sw_wide_verify(const sw_wide *wide);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The back ends `single` and `two`: holes in a treap by start, and in `two` also in one by size
 * (tree.h). */
#include "base/attributes.h"
#include "range/range.h"

/* --- life ------------------------------------------------------------------------------------- */

static sw_status reset(sw_range *range) {
    sw_tree *tree = &range->as.tree;
    if (tree->count == 0 && !sw_nodes_reserve(&tree->nodes, 1)) return SW_NOMEM;
    while (tree->count > 0) sw_tree_remove(tree, tree->root[SW_TREE_START]);
    sw_tree_add(tree, 0, range->size);
    range->free_size = range->size;
    return SW_OK;
}

static sw_status open_single(sw_range *range, const sw_range_options *options) {
    (void)options;
    sw_tree_init(&range->as.tree, &range->memory, false);
    return reset(range);
}

static sw_status open_two(sw_range *range, const sw_range_options *options) {
    (void)options;
    sw_tree_init(&range->as.tree, &range->memory, true);
    return reset(range);
}

static void close_tree(sw_range *range) { sw_nodes_destroy(&range->as.tree.nodes); }

/* --- taking ----------------------------------------------------------------------------------- */

static sw_tree_node *next_fit(const sw_range *range, uint64_t size) {
    sw_tree_node *node = sw_tree_first_from(&range->as.tree, size, range->rover);
    return node != NULL ? node : sw_tree_first(&range->as.tree, size);
}

static sw_always_inline sw_tree_node *choose(const sw_range *range, uint64_t size) {
    const sw_tree *tree = &range->as.tree;
    if (size > sw_tree_largest(tree)) return NULL;
    if (range->placement == SW_RANGE_FIT_FIRST) return sw_tree_first(tree, size);
    if (range->placement == SW_RANGE_FIT_BEST) return sw_tree_best(tree, size);
    if (range->placement == SW_RANGE_FIT_NEXT) return next_fit(range, size);
    return sw_tree_first(tree, sw_tree_largest(tree)); /* worst fit */
}

static uint64_t tree_find(sw_range *range, uint64_t size) {
    const sw_tree_node *node = choose(range, size);
    return node == NULL ? SW_RANGE_NONE : node->start;
}

static uint64_t tree_alloc(sw_range *range, uint64_t size) {
    sw_tree_node *node = choose(range, size);
    if (sw_unlikely(node == NULL)) return SW_RANGE_NONE;
    uint64_t offset = node->start;
    range->free_size -= size;
    if (node->size == size) {
        sw_tree_remove(&range->as.tree, node);
    } else {
        sw_tree_resize(&range->as.tree, node, offset + size, node->size - size);
    }
    return offset;
}

/* --- giving ----------------------------------------------------------------------------------- */

static sw_range_hole hole_of(const sw_tree_node *node) {
    return node == NULL ? (sw_range_hole){0, 0} : (sw_range_hole){node->start, node->size};
}

static sw_status tree_free(sw_range *range, uint64_t offset, uint64_t size, sw_range_grown *grown) {
    sw_tree *tree = &range->as.tree;
    sw_tree_node *before, *after;
    sw_tree_around(tree, offset, &before, &after);
    if (before != NULL && sw_tree_end(before) > offset) return SW_OVERLAP;
    if (after != NULL && after->start < offset + size) return SW_OVERLAP;
    *grown = sw_range_join(range, (sw_range_hole){offset, size}, hole_of(before), hole_of(after));
    bool joins_before = grown->hole.start != offset;
    bool joins_after = sw_range_end(grown->hole) != offset + size;
    if (joins_before && joins_after) sw_tree_remove(tree, after);
    if (joins_before || joins_after) {
        sw_tree_resize(tree, joins_before ? before : after, grown->hole.start, grown->hole.size);
    } else {
        if (!sw_nodes_reserve(&tree->nodes, 1)) return SW_NOMEM;
        sw_tree_add(tree, offset, size);
    }
    range->free_size += size;
    return SW_OK;
}

/* --- queries ---------------------------------------------------------------------------------- */

static uint64_t tree_largest(sw_range *range) { return sw_tree_largest(&range->as.tree); }

static bool tree_hole(sw_range *range, uint64_t from, sw_range_hole *out) {
    sw_tree_node *before, *after;
    sw_tree_around(&range->as.tree, from, &before, &after);
    const sw_tree_node *node = before != NULL && sw_tree_end(before) > from ? before : after;
    *out = hole_of(node);
    return node != NULL;
}

static void tree_stats(sw_range *range, sw_range_stats *out) {
    out->holes = range->as.tree.count;
    out->held_bytes = range->as.tree.nodes.held_bytes;
}

static const char *tree_verify(const sw_range *range) { return sw_tree_verify(&range->as.tree); }

static bool tree_only(const sw_range *range, sw_range_hole *out) {
    const sw_tree_node *root = range->as.tree.root[SW_TREE_START];
    if (range->as.tree.count != 1) return false;
    *out = hole_of(root);
    return true;
}

static void tree_set_only(sw_range *range, sw_range_hole hole) {
    sw_tree_node *root = range->as.tree.root[SW_TREE_START];
    root->start = hole.start;
    root->size = root->largest = hole.size;
}

static void tree_set_grown(sw_range *range, sw_range_hole hole) {
    sw_tree_node *node, *after;
    sw_tree_around(&range->as.tree, hole.start + hole.size - 1, &node, &after);
    sw_tree_resize(&range->as.tree, node, hole.start, hole.size);
}

#define PLACEMENTS (1u << SW_RANGE_FIT_FIRST | 1u << SW_RANGE_FIT_NEXT | 1u << SW_RANGE_FIT_WORST)

#define TREE_OPS(NAME, PLACED, USUAL, OPEN)                                                        \
    {.name = (NAME),                                                                               \
     .placements = (PLACED),                                                                       \
     .usual = (USUAL),                                                                             \
     .open = (OPEN),                                                                               \
     .close = close_tree,                                                                          \
     .reset = reset,                                                                               \
     .alloc = tree_alloc,                                                                          \
     .find = tree_find,                                                                            \
     .free = tree_free,                                                                            \
     .largest = tree_largest,                                                                      \
     .hole = tree_hole,                                                                            \
     .stats = tree_stats,                                                                          \
     .verify = tree_verify,                                                                        \
     .only = tree_only,                                                                            \
     .set_only = tree_set_only,                                                                    \
     .set_grown = tree_set_grown}

const sw_range_ops sw_range_single_ops =
    TREE_OPS("single", PLACEMENTS, SW_RANGE_FIT_FIRST, open_single);

const sw_range_ops sw_range_two_ops =
    TREE_OPS("two", PLACEMENTS | 1u << SW_RANGE_FIT_BEST, SW_RANGE_FIT_BEST, open_two);

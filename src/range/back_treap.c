/* SPDX-License-Identifier: Apache-2.0 */
/* The back ends `treap` and `two-treaps`: holes in a treap by start, and in the second also in one
 * by size (treap.h). */
#include "base/attributes.h"
#include "range/range.h"

/* --- life ------------------------------------------------------------------------------------- */

static sw_status reset(sw_range *range) {
    sw_treap *tree = &range->as.treap;
    if (tree->count == 0 && !sw_nodes_reserve(&tree->nodes, 1)) return SW_NOMEM;
    while (tree->count > 0) sw_treap_remove(tree, tree->root[SW_TREAP_START]);
    sw_treap_add(tree, 0, range->size);
    range->free_size = range->size;
    return SW_OK;
}

static sw_status open_one(sw_range *range, const sw_range_options *options) {
    (void)options;
    sw_treap_init(&range->as.treap, &range->memory, false);
    return reset(range);
}

static sw_status open_two(sw_range *range, const sw_range_options *options) {
    (void)options;
    sw_treap_init(&range->as.treap, &range->memory, true);
    return reset(range);
}

static void close_treap(sw_range *range) { sw_nodes_destroy(&range->as.treap.nodes); }

/* --- taking ----------------------------------------------------------------------------------- */

static sw_treap_node *next_fit(const sw_range *range, uint64_t size) {
    sw_treap_node *node = sw_treap_first_from(&range->as.treap, size, range->rover);
    return node != NULL ? node : sw_treap_first(&range->as.treap, size);
}

static sw_always_inline sw_treap_node *choose(const sw_range *range, uint64_t size) {
    const sw_treap *tree = &range->as.treap;
    if (size > sw_treap_largest(tree)) return NULL;
    if (range->placement == SW_RANGE_FIT_FIRST) return sw_treap_first(tree, size);
    if (range->placement == SW_RANGE_FIT_BEST) return sw_treap_best(tree, size);
    if (range->placement == SW_RANGE_FIT_NEXT) return next_fit(range, size);
    return sw_treap_first(tree, sw_treap_largest(tree)); /* worst fit */
}

static uint64_t treap_find(sw_range *range, uint64_t size) {
    const sw_treap_node *node = choose(range, size);
    return node == NULL ? SW_RANGE_NONE : node->start;
}

static uint64_t treap_alloc(sw_range *range, uint64_t size) {
    sw_treap_node *node = choose(range, size);
    if (sw_unlikely(node == NULL)) return SW_RANGE_NONE;
    uint64_t offset = node->start;
    range->free_size -= size;
    if (node->size == size) {
        sw_treap_remove(&range->as.treap, node);
    } else {
        sw_treap_resize(&range->as.treap, node, offset + size, node->size - size);
    }
    return offset;
}

/* --- giving ----------------------------------------------------------------------------------- */

static sw_range_hole hole_of(const sw_treap_node *node) {
    return node == NULL ? (sw_range_hole){0, 0} : (sw_range_hole){node->start, node->size};
}

static sw_status treap_free(sw_range *range, uint64_t offset, uint64_t size,
                            sw_range_grown *grown) {
    sw_treap *tree = &range->as.treap;
    sw_treap_node *before, *after;
    sw_treap_around(tree, offset, &before, &after);
    if (before != NULL && sw_treap_end(before) > offset) return SW_OVERLAP;
    if (after != NULL && after->start < offset + size) return SW_OVERLAP;
    *grown = sw_range_join(range, (sw_range_hole){offset, size}, hole_of(before), hole_of(after));
    bool joins_before = grown->hole.start != offset;
    bool joins_after = sw_range_end(grown->hole) != offset + size;
    if (joins_before && joins_after) sw_treap_remove(tree, after);
    if (joins_before || joins_after) {
        sw_treap_resize(tree, joins_before ? before : after, grown->hole.start, grown->hole.size);
    } else {
        if (!sw_nodes_reserve(&tree->nodes, 1)) return SW_NOMEM;
        sw_treap_add(tree, offset, size);
    }
    range->free_size += size;
    return SW_OK;
}

/* --- queries ---------------------------------------------------------------------------------- */

static uint64_t treap_largest(sw_range *range) { return sw_treap_largest(&range->as.treap); }

static bool treap_hole(sw_range *range, uint64_t from, sw_range_hole *out) {
    sw_treap_node *before, *after;
    sw_treap_around(&range->as.treap, from, &before, &after);
    const sw_treap_node *node = before != NULL && sw_treap_end(before) > from ? before : after;
    *out = hole_of(node);
    return node != NULL;
}

static void treap_stats(sw_range *range, sw_range_stats *out) {
    out->holes = range->as.treap.count;
    out->held_bytes = range->as.treap.nodes.held_bytes;
}

static const char *treap_verify(const sw_range *range) { return sw_treap_verify(&range->as.treap); }

static bool treap_only(const sw_range *range, sw_range_hole *out) {
    const sw_treap_node *root = range->as.treap.root[SW_TREAP_START];
    if (range->as.treap.count != 1) return false;
    *out = hole_of(root);
    return true;
}

static void treap_set_only(sw_range *range, sw_range_hole hole) {
    sw_treap_node *root = range->as.treap.root[SW_TREAP_START];
    root->start = hole.start;
    root->size = root->largest = hole.size;
}

static void treap_set_grown(sw_range *range, sw_range_hole hole) {
    sw_treap_node *node, *after;
    sw_treap_around(&range->as.treap, hole.start + hole.size - 1, &node, &after);
    sw_treap_resize(&range->as.treap, node, hole.start, hole.size);
}

#define PLACEMENTS (1u << SW_RANGE_FIT_FIRST | 1u << SW_RANGE_FIT_NEXT | 1u << SW_RANGE_FIT_WORST)

#define TREAP_OPS(NAME, PLACED, USUAL, OPEN)                                                       \
    {.name = (NAME),                                                                               \
     .placements = (PLACED),                                                                       \
     .usual = (USUAL),                                                                             \
     .open = (OPEN),                                                                               \
     .close = close_treap,                                                                         \
     .reset = reset,                                                                               \
     .alloc = treap_alloc,                                                                         \
     .find = treap_find,                                                                           \
     .free = treap_free,                                                                           \
     .largest = treap_largest,                                                                     \
     .hole = treap_hole,                                                                           \
     .stats = treap_stats,                                                                         \
     .verify = treap_verify,                                                                       \
     .only = treap_only,                                                                           \
     .set_only = treap_set_only,                                                                   \
     .set_grown = treap_set_grown}

const sw_range_ops sw_range_treap_ops =
    TREAP_OPS("treap", PLACEMENTS, SW_RANGE_FIT_FIRST, open_one);

const sw_range_ops sw_range_two_treaps_ops =
    TREAP_OPS("two-treaps", PLACEMENTS | 1u << SW_RANGE_FIT_BEST, SW_RANGE_FIT_BEST, open_two);

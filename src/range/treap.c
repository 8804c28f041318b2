/* SPDX-License-Identifier: Apache-2.0 */
/* Treaps of holes by start and by size (treap.h). */
#include "range/treap.h"

#include "base/base.h"
#include "range/range.h"

/* --- treaps ----------------------------------------------------------------------------------- */

static void sw_treap_init(sw_treap *tree, const sw_allocator *memory, bool by_size) {
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

/* As sw_treap_first, among the holes that start at `from` or later. Descends towards `from`, and
 * remembers each node that starts at `from` or later and that fits, or whose right subtree has a
 * hole that fits. The last such node is the nearest: the result is that node, or the first hole
 * that fits in its right subtree. */
static sw_treap_node *sw_treap_first_from(const sw_treap *tree, uint64_t size, uint64_t from) {
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

/* Returns the smallest hole of at least `size`; ties: the first by address. The tree must be
 * by_size. */
static sw_treap_node *sw_treap_best(const sw_treap *tree, uint64_t size) {
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

/* Adds a hole that touches no other. A node must have been reserved (sw_nodes_reserve). */
static void sw_treap_add(sw_treap *tree, uint64_t start, uint64_t size) {
    sw_check2(sw_treap_check(tree));
    sw_treap_node *node = sw_nodes_take(&tree->nodes);
    *node = (sw_treap_node){.start = start, .size = size, .largest = size};
    node->priority = next_priority(tree);
    link_in(tree, node, SW_TREAP_START);
    if (tree->by_size) link_in(tree, node, SW_TREAP_SIZE);
    tree->count++;
}

static void sw_treap_remove(sw_treap *tree, sw_treap_node *node) {
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

/* Sets the borders of a hole, between those of its neighbours. */
static void sw_treap_resize(sw_treap *tree, sw_treap_node *node, uint64_t start, uint64_t size) {
    node->start = start;
    node->size = size;
    sum_upwards(node);
    if (!tree->by_size || is_in_place(node)) return;
    link_out(tree, node, SW_TREAP_SIZE);
    link_in(tree, node, SW_TREAP_SIZE);
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_treap_check(const sw_treap *tree) {
    const sw_treap_node *root = tree->root[SW_TREAP_START];
    return SW_RULE((tree->count == 0) == (root == NULL))
               ?: SW_RULE(root == NULL || root->link[SW_TREAP_START].parent == NULL)
               ?: SW_RULE(tree->by_size ? (tree->count == 0) == (tree->root[SW_TREAP_SIZE] == NULL)
                                        : tree->root[SW_TREAP_SIZE] == NULL)
               ?: SW_RULE(tree->seed != 0)
               ?: sw_nodes_check(&tree->nodes);
}

const char *sw_treap_node_check(const sw_treap_node *node) {
    uint64_t largest = node->size;
    for (int side = 0; side < 2; side++) {
        const sw_treap_node *child = node->link[SW_TREAP_START].child[side];
        if (child == NULL) continue;
        largest = sw_max_u64(largest, child->largest);
        const char *broken = SW_RULE(child->link[SW_TREAP_START].parent == node)
                                 ?: SW_RULE(child->priority <= node->priority)
                                 ?: SW_RULE((child->start > node->start) == (side == 1));
        if (broken != NULL) return broken;
    }
    return SW_RULE(node->size >= 1) ?: SW_RULE(node->largest == largest);
}

/* Returns the node after this one in an order; for NULL, the first node. NULL: none. */
static const sw_treap_node *step(const sw_treap *tree, const sw_treap_node *node, int order) {
    const sw_treap_node *at = node == NULL ? tree->root[order] : node->link[order].child[1];
    if (at != NULL) {
        while (at->link[order].child[0] != NULL) at = at->link[order].child[0];
        return at;
    }
    if (node == NULL) return NULL;
    for (at = node->link[order].parent; at != NULL && at->link[order].child[1] == node;
         at = at->link[order].parent)
        node = at;
    return at;
}

/* As sw_treap_check, and the rules of every node in both orders. */
static const char *sw_treap_verify(const sw_treap *tree) {
    const char *broken = sw_treap_check(tree);
    uint64_t end = 0, nodes = 0, sized = 0;
    const sw_treap_node *last = NULL;
    for (const sw_treap_node *node = step(tree, NULL, SW_TREAP_START); node != NULL && !broken;
         node = step(tree, node, SW_TREAP_START)) {
        broken = sw_treap_node_check(node) ?: SW_RULE(nodes == 0 || node->start > end);
        end = node->start + node->size;
        nodes++;
    }
    for (const sw_treap_node *node = step(tree, NULL, SW_TREAP_SIZE); node != NULL && !broken;
         node = step(tree, node, SW_TREAP_SIZE)) {
        const sw_treap_node *parent = node->link[SW_TREAP_SIZE].parent;
        broken = SW_RULE(parent == NULL || parent->priority >= node->priority)
                     ?: SW_RULE(last == NULL || last->size < node->size ||
                                (last->size == node->size && last->start < node->start));
        last = node;
        sized++;
    }
    return broken ?: SW_RULE(nodes == tree->count) ?: SW_RULE(sized == (tree->by_size ? nodes : 0));
}

/* --- the back ends ---------------------------------------------------------------------------- */

/* The back ends `treap` and `two-treaps`: holes in a treap by start, and in the second also in one
 * by size. */

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
    bool joins_before = before != NULL && grown->hole.start != offset;
    bool joins_after = after != NULL && sw_range_end(grown->hole) != offset + size;
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
    if (node != NULL) sw_treap_resize(&range->as.treap, node, hole.start, hole.size);
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

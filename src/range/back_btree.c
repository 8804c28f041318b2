/* SPDX-License-Identifier: Apache-2.0 */
/* The back end `btree`: holes in one B+-tree by start (btree.h). */
#include "base/base.h"
#include "range/range.h"

/* --- life ------------------------------------------------------------------------------------- */

static sw_status reset(sw_range *range) {
    sw_btree fresh; /* the old tree is destroyed only after this one exists */
    sw_btree_path path;
    if (!sw_btree_init(&fresh, &range->memory)) return SW_NOMEM;
    sw_nodes_destroy(&range->as.btree.nodes);
    range->as.btree = fresh;
    (void)sw_btree_before(&fresh, 0, &path);
    (void)sw_btree_add(&range->as.btree, &path, false, 0,
                       range->size); /* succeeds, because the root
                                                                       * has room */
    range->free_size = range->size;
    return SW_OK;
}

static sw_status open_btree(sw_range *range, const sw_range_options *options) {
    (void)options;
    return reset(range);
}

static void close_btree(sw_range *range) { sw_nodes_destroy(&range->as.btree.nodes); }

/* --- taking ----------------------------------------------------------------------------------- */

static sw_always_inline bool choose(const sw_range *range, uint64_t size, sw_btree_path *path) {
    const sw_btree *btree = &range->as.btree;
    if (size > btree->largest) return false;
    if (sw_unlikely(range->placement == SW_RANGE_FIT_NEXT) &&
        sw_btree_first_from(btree, size, range->rover, path))
        return true;
    sw_btree_first(btree, range->placement == SW_RANGE_FIT_WORST ? btree->largest : size, path);
    return true;
}

static uint64_t btree_find(sw_range *range, uint64_t size) {
    sw_btree_path path;
    return choose(range, size, &path) ? sw_btree_start(&path) : SW_RANGE_NONE;
}

static uint64_t btree_alloc(sw_range *range, uint64_t size) {
    sw_btree_path path;
    if (sw_unlikely(!choose(range, size, &path))) return SW_RANGE_NONE;
    uint64_t offset = sw_btree_start(&path), hole = sw_btree_size(&path);
    range->free_size -= size;
    if (hole == size) {
        sw_btree_remove(&range->as.btree, &path);
    } else {
        sw_btree_resize(&range->as.btree, &path, offset + size, hole - size);
    }
    return offset;
}

/* --- giving ----------------------------------------------------------------------------------- */

/* Extends the hole before the freed part over that part, and over the hole after it if they
 * touch. */
static void join_before(sw_btree *btree, sw_btree_path *before, sw_btree_path *after,
                        bool joins_after, sw_range_hole hole) {
    if (joins_after) {
        sw_btree_remove(btree, after);
        (void)sw_btree_before(btree, hole.start, before); /* the removal may have joined nodes */
    }
    sw_btree_resize(btree, before, hole.start, hole.size);
}

static sw_range_hole hole_of(const sw_btree_path *path) {
    return (sw_range_hole){sw_btree_start(path), sw_btree_size(path)};
}

static sw_status btree_free(sw_range *range, uint64_t offset, uint64_t size,
                            sw_range_grown *grown) {
    sw_btree *btree = &range->as.btree;
    sw_btree_path before, after;
    sw_range_hole left = {0, 0}, right = {0, 0};
    bool has_before = sw_btree_before(btree, offset, &before);
    bool has_after = has_before ? sw_btree_next(btree, &before, &after) : btree->count > 0;
    if (!has_before) after = before;
    if (has_before) left = hole_of(&before);
    if (has_after) right = hole_of(&after);
    if (sw_range_end(left) > offset) return SW_OVERLAP;
    if (has_after && right.start < offset + size) return SW_OVERLAP;
    *grown = sw_range_join(range, (sw_range_hole){offset, size}, left, right);
    bool joins_after = sw_range_end(grown->hole) != offset + size;
    if (grown->hole.start != offset) {
        join_before(btree, &before, &after, joins_after, grown->hole);
    } else if (joins_after) {
        sw_btree_resize(btree, &after, grown->hole.start, grown->hole.size);
    } else if (!sw_btree_add(btree, &before, has_before, offset, size)) {
        return SW_NOMEM;
    }
    range->free_size += size;
    return SW_OK;
}

/* --- queries ---------------------------------------------------------------------------------- */

static uint64_t btree_largest(sw_range *range) { return range->as.btree.largest; }

static bool btree_hole(sw_range *range, uint64_t from, sw_range_hole *out) {
    const sw_btree *btree = &range->as.btree;
    sw_btree_path path;
    if (btree->count == 0) return false;
    bool is_before = sw_btree_before(btree, from, &path);
    if (is_before && sw_btree_start(&path) + sw_btree_size(&path) <= from &&
        !sw_btree_next(btree, &path, &path))
        return false;
    *out = hole_of(&path);
    return true;
}

static void btree_stats(sw_range *range, sw_range_stats *out) {
    out->holes = range->as.btree.count;
    out->held_bytes = range->as.btree.nodes.held_bytes;
}

static const char *btree_verify(const sw_range *range) { return sw_btree_verify(&range->as.btree); }

static bool btree_only(const sw_range *range, sw_range_hole *out) {
    const sw_btree_node *root = range->as.btree.root;
    if (range->as.btree.count != 1) return false;
    *out = (sw_range_hole){root->low[0], root->largest[0]};
    return true;
}

static void btree_set_only(sw_range *range, sw_range_hole hole) {
    sw_btree_node *root = range->as.btree.root;
    root->low[0] = hole.start;
    root->largest[0] = range->as.btree.largest = hole.size;
}

static void btree_set_grown(sw_range *range, sw_range_hole hole) {
    sw_btree_path path;
    (void)sw_btree_before(&range->as.btree, hole.start + hole.size - 1, &path);
    sw_btree_resize(&range->as.btree, &path, hole.start, hole.size);
}

const sw_range_ops sw_range_btree_ops = {
    .name = "btree",
    .placements = 1u << SW_RANGE_FIT_FIRST | 1u << SW_RANGE_FIT_NEXT | 1u << SW_RANGE_FIT_WORST,
    .usual = SW_RANGE_FIT_FIRST,
    .open = open_btree,
    .close = close_btree,
    .reset = reset,
    .alloc = btree_alloc,
    .find = btree_find,
    .free = btree_free,
    .largest = btree_largest,
    .hole = btree_hole,
    .stats = btree_stats,
    .verify = btree_verify,
    .only = btree_only,
    .set_only = btree_set_only,
    .set_grown = btree_set_grown,
};

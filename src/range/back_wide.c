/* SPDX-License-Identifier: Apache-2.0 */
/* The back end `wide`: holes in one B+-tree by start (wide.h). */
#include "base/attributes.h"
#include "range/range.h"

/* --- life ------------------------------------------------------------------------------------- */

static sw_status reset(sw_range *range) {
    sw_wide fresh; /* the old tree is destroyed only after this one exists */
    sw_wide_path path;
    if (!sw_wide_init(&fresh, &range->memory)) return SW_NOMEM;
    sw_nodes_destroy(&range->as.wide.nodes);
    range->as.wide = fresh;
    (void)sw_wide_before(&fresh, 0, &path);
    (void)sw_wide_add(&range->as.wide, &path, false, 0, range->size); /* succeeds, because the root
                                                                       * has room */
    range->free_size = range->size;
    return SW_OK;
}

static sw_status open_wide(sw_range *range, const sw_range_options *options) {
    (void)options;
    return reset(range);
}

static void close_wide(sw_range *range) { sw_nodes_destroy(&range->as.wide.nodes); }

/* --- taking ----------------------------------------------------------------------------------- */

static sw_always_inline bool choose(const sw_range *range, uint64_t size, sw_wide_path *path) {
    const sw_wide *wide = &range->as.wide;
    if (size > wide->largest) return false;
    if (sw_unlikely(range->placement == SW_RANGE_FIT_NEXT) &&
        sw_wide_first_from(wide, size, range->rover, path))
        return true;
    sw_wide_first(wide, range->placement == SW_RANGE_FIT_WORST ? wide->largest : size, path);
    return true;
}

static uint64_t wide_find(sw_range *range, uint64_t size) {
    sw_wide_path path;
    return choose(range, size, &path) ? sw_wide_start(&path) : SW_RANGE_NONE;
}

static uint64_t wide_alloc(sw_range *range, uint64_t size) {
    sw_wide_path path;
    if (sw_unlikely(!choose(range, size, &path))) return SW_RANGE_NONE;
    uint64_t offset = sw_wide_start(&path), hole = sw_wide_size(&path);
    range->free_size -= size;
    if (hole == size) {
        sw_wide_remove(&range->as.wide, &path);
    } else {
        sw_wide_resize(&range->as.wide, &path, offset + size, hole - size);
    }
    return offset;
}

/* --- giving ----------------------------------------------------------------------------------- */

/* Extends the hole before the freed part over that part, and over the hole after it if they
 * touch. */
static void join_before(sw_wide *wide, sw_wide_path *before, sw_wide_path *after, bool joins_after,
                        sw_range_hole hole) {
    if (joins_after) {
        sw_wide_remove(wide, after);
        (void)sw_wide_before(wide, hole.start, before); /* the removal may have joined nodes */
    }
    sw_wide_resize(wide, before, hole.start, hole.size);
}

static sw_range_hole hole_of(const sw_wide_path *path) {
    return (sw_range_hole){sw_wide_start(path), sw_wide_size(path)};
}

static sw_status wide_free(sw_range *range, uint64_t offset, uint64_t size, sw_range_grown *grown) {
    sw_wide *wide = &range->as.wide;
    sw_wide_path before, after;
    sw_range_hole left = {0, 0}, right = {0, 0};
    bool has_before = sw_wide_before(wide, offset, &before);
    bool has_after = has_before ? sw_wide_next(wide, &before, &after) : wide->count > 0;
    if (!has_before) after = before;
    if (has_before) left = hole_of(&before);
    if (has_after) right = hole_of(&after);
    if (sw_range_end(left) > offset) return SW_OVERLAP;
    if (has_after && right.start < offset + size) return SW_OVERLAP;
    *grown = sw_range_join(range, (sw_range_hole){offset, size}, left, right);
    bool joins_after = sw_range_end(grown->hole) != offset + size;
    if (grown->hole.start != offset) {
        join_before(wide, &before, &after, joins_after, grown->hole);
    } else if (joins_after) {
        sw_wide_resize(wide, &after, grown->hole.start, grown->hole.size);
    } else if (!sw_wide_add(wide, &before, has_before, offset, size)) {
        return SW_NOMEM;
    }
    range->free_size += size;
    return SW_OK;
}

/* --- queries ---------------------------------------------------------------------------------- */

static uint64_t wide_largest(sw_range *range) { return range->as.wide.largest; }

static bool wide_hole(sw_range *range, uint64_t from, sw_range_hole *out) {
    const sw_wide *wide = &range->as.wide;
    sw_wide_path path;
    if (wide->count == 0) return false;
    bool is_before = sw_wide_before(wide, from, &path);
    if (is_before && sw_wide_start(&path) + sw_wide_size(&path) <= from &&
        !sw_wide_next(wide, &path, &path))
        return false;
    *out = hole_of(&path);
    return true;
}

static void wide_stats(sw_range *range, sw_range_stats *out) {
    out->holes = range->as.wide.count;
    out->held_bytes = range->as.wide.nodes.held_bytes;
}

static const char *wide_verify(const sw_range *range) { return sw_wide_verify(&range->as.wide); }

static bool wide_only(const sw_range *range, sw_range_hole *out) {
    const sw_wide_node *root = range->as.wide.root;
    if (range->as.wide.count != 1) return false;
    *out = (sw_range_hole){root->low[0], root->wide[0]};
    return true;
}

static void wide_set_only(sw_range *range, sw_range_hole hole) {
    sw_wide_node *root = range->as.wide.root;
    root->low[0] = hole.start;
    root->wide[0] = range->as.wide.largest = hole.size;
}

static void wide_set_grown(sw_range *range, sw_range_hole hole) {
    sw_wide_path path;
    (void)sw_wide_before(&range->as.wide, hole.start + hole.size - 1, &path);
    sw_wide_resize(&range->as.wide, &path, hole.start, hole.size);
}

const sw_range_ops sw_range_wide_ops = {
    .name = "wide",
    .placements = 1u << SW_RANGE_FIT_FIRST | 1u << SW_RANGE_FIT_NEXT | 1u << SW_RANGE_FIT_WORST,
    .usual = SW_RANGE_FIT_FIRST,
    .open = open_wide,
    .close = close_wide,
    .reset = reset,
    .alloc = wide_alloc,
    .find = wide_find,
    .free = wide_free,
    .largest = wide_largest,
    .hole = wide_hole,
    .stats = wide_stats,
    .verify = wide_verify,
    .only = wide_only,
    .set_only = wide_set_only,
    .set_grown = wide_set_grown,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The reference with one tree (reference.h). */
#include <stdlib.h>

#include "reference.h"

typedef struct hole {
    uint64_t start, end;
    struct hole *parent, *left, *right;
} hole;

typedef struct single {
    hole *root;
    hole *spare; /* linked by parent */
} single;

static single *of(const sw_range *range) { return range->as.foreign; }
static uint64_t size_of(const hole *at) { return at->end - at->start; }

static hole *new_hole(single *tree, uint64_t start, uint64_t end) {
    hole *fresh = tree->spare;
    if (fresh != NULL) {
        tree->spare = fresh->parent;
    } else {
        fresh = malloc(sizeof *fresh);
        if (fresh == NULL) abort();
    }
    *fresh = (hole){.start = start, .end = end};
    return fresh;
}

static void drop(single *tree, hole *at) {
    *at = (hole){.parent = tree->spare};
    tree->spare = at;
}

/* Puts `child` where `at` hung. */
static void hang(single *tree, hole *parent, hole *child, const hole *at) {
    child->parent = parent;
    if (parent == NULL) {
        tree->root = child;
    } else if (parent->left == at) {
        parent->left = child;
    } else {
        parent->right = child;
    }
}

static void rotate_left(single *tree, hole *at) {
    hole *parent = at->parent, *up = at->right, *between = up->left;
    up->left = at;
    at->parent = up;
    at->right = between;
    if (between != NULL) between->parent = at;
    hang(tree, parent, up, at);
}

static void rotate_right(single *tree, hole *at) {
    hole *parent = at->parent, *up = at->left, *between = up->right;
    up->right = at;
    at->parent = up;
    at->left = between;
    if (between != NULL) between->parent = at;
    hang(tree, parent, up, at);
}

/* Puts a hole in below `at`, and returns what hangs there then. */
static hole *put_below(single *tree, hole *at, hole *fresh) {
    if (at == NULL) return fresh;
    if (fresh->start < at->start) {
        at->left = put_below(tree, at->left, fresh);
        at->left->parent = at;
    } else {
        at->right = put_below(tree, at->right, fresh);
        at->right->parent = at;
    }
    if (size_of(fresh) >= size_of(at)) return at;
    if (at->left == fresh) {
        rotate_right(tree, at);
        return fresh;
    }
    if (at->right == fresh) {
        rotate_left(tree, at);
        return fresh;
    }
    return at;
}

static void put(single *tree, hole *fresh) { tree->root = put_below(tree, tree->root, fresh); }

static void take_out(single *tree, hole *at) {
    while (at->left != NULL || at->right != NULL) {
        if (at->right == NULL || (at->left != NULL && size_of(at->left) > size_of(at->right))) {
            rotate_right(tree, at);
        } else {
            rotate_left(tree, at);
        }
    }
    if (at->parent == NULL) {
        tree->root = NULL;
    } else if (at->parent->left == at) {
        at->parent->left = NULL;
    } else {
        at->parent->right = NULL;
    }
    at->parent = NULL;
}

static hole *find_below(hole *at, uint64_t size) {
    if (at == NULL) return NULL;
    if (size_of(at) < size) return find_below(at->right, size);
    if (size_of(at) == size) return at;
    hole *left = find_below(at->left, size);
    return left != NULL ? left : at;
}

static uint64_t find(sw_range *range, uint64_t size) {
    const hole *at = find_below(of(range)->root, size);
    return at == NULL ? SW_RANGE_NONE : at->start;
}

static uint64_t alloc(sw_range *range, uint64_t size) {
    single *tree = of(range);
    hole *at = find_below(tree->root, size);
    if (at == NULL) return SW_RANGE_NONE;
    uint64_t offset = at->start;
    take_out(tree, at);
    if (size_of(at) == size) {
        drop(tree, at);
    } else {
        at->start += size;
        put(tree, at);
    }
    return offset;
}

static hole *ending_at(hole *at, uint64_t offset) {
    while (at != NULL && at->end != offset) at = at->end < offset ? at->right : at->left;
    return at;
}

static hole *starting_at(hole *at, uint64_t offset) {
    while (at != NULL && at->start != offset) at = at->start > offset ? at->left : at->right;
    return at;
}

static sw_status give(sw_range *range, uint64_t offset, uint64_t size) {
    single *tree = of(range);
    hole *left = ending_at(tree->root, offset), *right = starting_at(tree->root, offset + size);
    if (right != NULL) take_out(tree, right);
    if (left != NULL) {
        take_out(tree, left);
        left->end = right != NULL ? right->end : offset + size;
        put(tree, left);
        if (right != NULL) drop(tree, right);
    } else if (right != NULL) {
        right->start = offset;
        put(tree, right);
    } else {
        put(tree, new_hole(tree, offset, offset + size));
    }
    return SW_OK;
}

static sw_status open_single(sw_range *range, const sw_range_options *options) {
    (void)options;
    single *tree = calloc(1, sizeof *tree);
    if (tree == NULL) return SW_NOMEM;
    range->as.foreign = tree;
    tree->root = new_hole(tree, 0, range->size);
    return SW_OK;
}

static void close_below(hole *at) {
    if (at == NULL) return;
    close_below(at->left);
    close_below(at->right);
    free(at);
}

static void close_single(sw_range *range) {
    single *tree = of(range);
    close_below(tree->root);
    for (hole *next, *at = tree->spare; at != NULL; at = next) {
        next = at->parent;
        free(at);
    }
    free(tree);
}

const sw_range_ops reference_single_ops = {
    .name = "reference_single",
    .placements = 1u << SW_RANGE_FIT_FIRST,
    .usual = SW_RANGE_FIT_FIRST,
    .open = open_single,
    .close = close_single,
    .alloc = alloc,
    .find = find,
    .free = give,
};

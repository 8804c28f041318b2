/* SPDX-License-Identifier: Apache-2.0 */
/* The reference with one tree (reference.h). */
#include "reference.h"

#include <stdlib.h>

typedef reference_hole hole;
typedef reference_single single;

static inline uint64_t size_of(const hole *at) { return at->end - at->start; }

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
    at->parent = tree->spare;
    tree->spare = at;
}

/* --- the tree --------------------------------------------------------------------------------- */

/* Replace `at` by `child` below the parent of `at`. */
static inline void hang(single *tree, hole *child, const hole *at) {
    hole *parent = at->parent;
    if (child != NULL) child->parent = parent;
    if (parent == NULL) {
        tree->root = child;
    } else if (parent->left == at) {
        parent->left = child;
    } else {
        parent->right = child;
    }
}

static void rotate_left(single *tree, hole *at) {
    hole *up = at->right, *between = up->left;
    hang(tree, up, at);
    up->left = at;
    at->parent = up;
    at->right = between;
    if (between != NULL) between->parent = at;
}

static void rotate_right(single *tree, hole *at) {
    hole *up = at->left, *between = up->right;
    hang(tree, up, at);
    up->right = at;
    at->parent = up;
    at->left = between;
    if (between != NULL) between->parent = at;
}

/* Insert a hole as a leaf, then rotate it above each larger parent. */
static void put(single *tree, hole *fresh) {
    hole *parent = NULL, **place = &tree->root;
    while (*place != NULL) {
        parent = *place;
        place = fresh->start < parent->start ? &parent->left : &parent->right;
    }
    *place = fresh;
    fresh->parent = parent;
    fresh->left = fresh->right = NULL;
    uint64_t size = size_of(fresh);
    while (fresh->parent != NULL && size < size_of(fresh->parent)) {
        if (fresh->parent->left == fresh) {
            rotate_right(tree, fresh->parent);
        } else {
            rotate_left(tree, fresh->parent);
        }
    }
}

/* Rotate a hole down until it is a leaf, then remove it. */
static void take_out(single *tree, hole *at) {
    while (at->left != NULL || at->right != NULL) {
        if (at->right == NULL || (at->left != NULL && size_of(at->left) > size_of(at->right))) {
            rotate_right(tree, at);
        } else {
            rotate_left(tree, at);
        }
    }
    hang(tree, NULL, at);
}

/* --- allocating and freeing ------------------------------------------------------------------- */

uint64_t reference_single_alloc(single *tree, uint64_t size) {
    hole *at = reference_single_choose(tree, size);
    if (at == NULL) return REFERENCE_NONE;
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

void reference_single_free(single *tree, uint64_t offset, uint64_t size) {
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
}

static uint64_t size_below(const hole *at) {
    return at == NULL ? 0 : size_of(at) + size_below(at->left) + size_below(at->right);
}

uint64_t reference_single_free_size(const single *tree) { return size_below(tree->root); }

/* --- creation and destruction ----------------------------------------------------------------- */

void reference_single_begin(single *tree, uint64_t size) {
    *tree = (single){NULL, NULL};
    tree->root = new_hole(tree, 0, size);
}

static void end_below(hole *at) {
    if (at == NULL) return;
    end_below(at->left);
    end_below(at->right);
    free(at);
}

void reference_single_end(single *tree) {
    end_below(tree->root);
    for (hole *next, *at = tree->spare; at != NULL; at = next) {
        next = at->parent;
        free(at);
    }
}

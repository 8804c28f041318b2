/* SPDX-License-Identifier: Apache-2.0 */
/* The reference with two AVL trees (reference.h). */
#include "reference.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef reference_twin hole;
typedef reference_two two;

enum { BY_SIZE = REFERENCE_BY_SIZE, BY_START = REFERENCE_BY_START };

static inline uint64_t size_of(const hole *at) { return at->end - at->start; }

static hole *new_hole(two *trees, uint64_t start, uint64_t end) {
    hole *fresh = trees->spare;
    if (fresh != NULL) {
        trees->spare = fresh->in[0].left;
    } else {
        fresh = malloc(sizeof *fresh);
        if (fresh == NULL) abort();
    }
    memset(fresh, 0, sizeof *fresh);
    fresh->start = start;
    fresh->end = end;
    return fresh;
}

static void drop(two *trees, hole *at) {
    at->in[0].left = trees->spare;
    trees->spare = at;
}

static inline bool is_before(const hole *a, const hole *b, int by) {
    if (by == BY_SIZE && size_of(a) != size_of(b)) return size_of(a) < size_of(b);
    return a->start < b->start;
}

static inline int height(const hole *at, int by) { return at == NULL ? 0 : at->in[by].height; }
static inline int lean(const hole *at, int by) {
    return height(at->in[by].left, by) - height(at->in[by].right, by);
}
static inline void measure(hole *at, int by) {
    int left = height(at->in[by].left, by), right = height(at->in[by].right, by);
    at->in[by].height = 1 + (left > right ? left : right);
}

static hole *rotate_left(hole *at, int by) {
    hole *up = at->in[by].right;
    at->in[by].right = up->in[by].left;
    up->in[by].left = at;
    measure(at, by);
    measure(up, by);
    return up;
}

static hole *rotate_right(hole *at, int by) {
    hole *up = at->in[by].left;
    at->in[by].left = up->in[by].right;
    up->in[by].right = at;
    measure(at, by);
    measure(up, by);
    return up;
}

static hole *balance(hole *at, int by) {
    measure(at, by);
    int leans = lean(at, by);
    if (leans > 1) {
        if (lean(at->in[by].left, by) < 0) at->in[by].left = rotate_left(at->in[by].left, by);
        return rotate_right(at, by);
    }
    if (leans < -1) {
        if (lean(at->in[by].right, by) > 0) at->in[by].right = rotate_right(at->in[by].right, by);
        return rotate_left(at, by);
    }
    return at;
}

static hole *put(hole *at, hole *fresh, int by) {
    if (at == NULL) {
        fresh->in[by].left = fresh->in[by].right = NULL;
        fresh->in[by].height = 1;
        return fresh;
    }
    if (is_before(fresh, at, by)) {
        at->in[by].left = put(at->in[by].left, fresh, by);
    } else {
        at->in[by].right = put(at->in[by].right, fresh, by);
    }
    return balance(at, by);
}

static hole *take_out(hole *at, hole *gone, int by) {
    if (at == NULL) return NULL;
    if (at != gone) {
        if (is_before(gone, at, by)) {
            at->in[by].left = take_out(at->in[by].left, gone, by);
        } else {
            at->in[by].right = take_out(at->in[by].right, gone, by);
        }
        return balance(at, by);
    }
    if (at->in[by].left == NULL) return at->in[by].right;
    if (at->in[by].right == NULL) return at->in[by].left;
    hole *next = at->in[by].right;
    while (next->in[by].left != NULL) next = next->in[by].left;
    next->in[by].right = take_out(at->in[by].right, next, by);
    next->in[by].left = at->in[by].left;
    return balance(next, by);
}

static void add(two *trees, hole *fresh, int by) {
    trees->root[by] = put(trees->root[by], fresh, by);
}
static void take(two *trees, hole *gone, int by) {
    trees->root[by] = take_out(trees->root[by], gone, by);
}

uint64_t reference_two_alloc(two *trees, uint64_t size) {
    hole *at = reference_two_choose(trees, size);
    if (at == NULL) return REFERENCE_NONE;
    uint64_t offset = at->start;
    take(trees, at, BY_SIZE);
    take(trees, at, BY_START);
    if (offset + size < at->end) {
        at->start = offset + size;
        add(trees, at, BY_SIZE);
        add(trees, at, BY_START);
    } else {
        drop(trees, at);
    }
    return offset;
}

static hole *ending_at(hole *at, uint64_t offset) {
    while (at != NULL && at->end != offset)
        at = at->end > offset ? at->in[BY_START].left : at->in[BY_START].right;
    return at;
}

static hole *starting_at(hole *at, uint64_t offset) {
    while (at != NULL && at->start != offset)
        at = at->start < offset ? at->in[BY_START].right : at->in[BY_START].left;
    return at;
}

void reference_two_free(two *trees, uint64_t offset, uint64_t size) {
    hole *left = ending_at(trees->root[BY_START], offset);
    hole *right = starting_at(trees->root[BY_START], offset + size);
    if (right != NULL) {
        take(trees, right, BY_START);
        take(trees, right, BY_SIZE);
    }
    if (left != NULL) {
        take(trees, left, BY_SIZE);
        left->end = right != NULL ? right->end : offset + size;
        add(trees, left, BY_SIZE);
        if (right != NULL) drop(trees, right);
        return;
    }
    if (right == NULL) right = new_hole(trees, offset, offset + size);
    right->start = offset;
    add(trees, right, BY_SIZE);
    add(trees, right, BY_START);
}

void reference_two_begin(two *trees, uint64_t size) {
    *trees = (two){{NULL, NULL}, NULL};
    hole *all = new_hole(trees, 0, size);
    add(trees, all, BY_SIZE);
    add(trees, all, BY_START);
}

static void end_below(hole *at) {
    if (at == NULL) return;
    end_below(at->in[BY_START].left);
    end_below(at->in[BY_START].right);
    free(at);
}

void reference_two_end(two *trees) {
    end_below(trees->root[BY_START]);
    for (hole *next, *at = trees->spare; at != NULL; at = next) {
        next = at->in[0].left;
        free(at);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reference range allocators in C, with the algorithms and interface of GoMem (a Go library under
 * the MIT licence, version a4f78d9): plain functions, with an inline find. They do not check
 * handles, threads or overlapping frees. Like GoMem's, the single tree refuses some requests that
 * fit.
 *
 *   single  a binary tree by start, rotated so that parents are smaller holes; a hole that changes
 *           is removed and inserted again
 *   two     two AVL trees over the same nodes, by size and by start; best fit
 *   buddy   a complete binary tree of the longest free run below each node */
#ifndef BENCH_RANGES_REFERENCE_H
#define BENCH_RANGES_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#define REFERENCE_NONE UINT64_MAX

/* --- one tree --------------------------------------------------------------------------------- */

typedef struct reference_hole {
    uint64_t start, end;
    struct reference_hole *parent, *left, *right;
} reference_hole;

typedef struct reference_single {
    reference_hole *root;
    reference_hole *spare; /* linked by parent */
} reference_single;

void reference_single_begin(reference_single *tree, uint64_t size);
void reference_single_end(reference_single *tree);
uint64_t reference_single_alloc(reference_single *tree, uint64_t size);
void reference_single_free(reference_single *tree, uint64_t offset, uint64_t size);
/* Sum of the holes, by a tree walk. */
uint64_t reference_single_free_size(const reference_single *tree);

/* Below a hole that is too small, search only the right child; an exact fit ends the search. */
static inline reference_hole *reference_single_choose(const reference_single *tree, uint64_t size) {
    reference_hole *found = NULL;
    for (reference_hole *at = tree->root; at != NULL;) {
        uint64_t hole = at->end - at->start;
        if (hole == size) return at;
        if (hole > size) found = at;
        at = hole > size ? at->left : at->right;
    }
    return found;
}

static inline uint64_t reference_single_find(const reference_single *tree, uint64_t size) {
    const reference_hole *at = reference_single_choose(tree, size);
    return at == NULL ? REFERENCE_NONE : at->start;
}

/* --- two trees -------------------------------------------------------------------------------- */

enum { REFERENCE_BY_SIZE, REFERENCE_BY_START };

typedef struct reference_twin {
    uint64_t start, end;
    struct {
        struct reference_twin *left, *right;
        int height;
    } in[2];
} reference_twin;

typedef struct reference_two {
    reference_twin *root[2];
    reference_twin *spare; /* linked by in[0].left */
} reference_two;

void reference_two_begin(reference_two *trees, uint64_t size);
void reference_two_end(reference_two *trees);
uint64_t reference_two_alloc(reference_two *trees, uint64_t size);
void reference_two_free(reference_two *trees, uint64_t offset, uint64_t size);

static inline reference_twin *reference_two_choose(const reference_two *trees, uint64_t size) {
    reference_twin *found = NULL;
    for (reference_twin *at = trees->root[REFERENCE_BY_SIZE]; at != NULL;) {
        uint64_t hole = at->end - at->start;
        if (hole == size) return at;
        if (size < hole) {
            found = at;
            at = at->in[REFERENCE_BY_SIZE].left;
        } else {
            at = at->in[REFERENCE_BY_SIZE].right;
        }
    }
    return found;
}

static inline uint64_t reference_two_find(const reference_two *trees, uint64_t size) {
    const reference_twin *at = reference_two_choose(trees, size);
    return at == NULL ? REFERENCE_NONE : at->start;
}

/* --- buddy ------------------------------------------------------------------------------------ */

typedef struct reference_buddy reference_buddy;

/* bytes: 1 KiB times a power of two. */
reference_buddy *reference_buddy_begin(uint64_t bytes);
void reference_buddy_end(reference_buddy *tree);
uint64_t reference_buddy_alloc(reference_buddy *tree, uint64_t bytes);
void reference_buddy_free(reference_buddy *tree, uint64_t offset);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The reference buddy allocator (reference.h). Node i has the children 2i + 1 and 2i + 2. Sizes are
 * powers of two of units of 1 KiB. */
#include "reference.h"

#include <stdlib.h>

#include "base/base.h"

typedef struct reference_buddy {
    uint64_t units;
    int64_t longest[]; /* 2 * units - 1 */
} buddy;

enum { UNIT_SHIFT = 10 };

/* The empty asm statements keep the compiler from replacing branches by conditional moves. Branches
 * are predicted, so loads do not wait for the previous store. */
static int64_t longer(const buddy *tree, uint64_t node) {
    int64_t left = tree->longest[2 * node + 1], right = tree->longest[2 * node + 2];
    if (left >= right) return left;
    __asm__("" ::: "memory");
    return right;
}

uint64_t reference_buddy_alloc(buddy *tree, uint64_t bytes) {
    int64_t size = (int64_t)(UINT64_C(1) << sw_log2_ceil(((bytes - 1) >> UNIT_SHIFT) + 1));
    if (size > tree->longest[0]) return REFERENCE_NONE;
    uint64_t node = 0;
    for (int64_t below = (int64_t)tree->units; below != size; below /= 2) {
        node = 2 * node + 1;
        if (tree->longest[node] >= size) continue;
        __asm__("" ::: "memory");
        node++;
    }
    tree->longest[node] = 0;
    uint64_t offset = (node + 1) * (uint64_t)size - tree->units;
    while (node != 0) {
        node = (node + 1) / 2 - 1;
        tree->longest[node] = longer(tree, node);
    }
    return offset << UNIT_SHIFT;
}

void reference_buddy_free(buddy *tree, uint64_t offset) {
    uint64_t node = (offset >> UNIT_SHIFT) + tree->units - 1;
    int64_t size = 1;
    for (; tree->longest[node] != 0; node = (node + 1) / 2 - 1) {
        if (node == 0) return;
        size *= 2;
    }
    tree->longest[node] = size;
    while (node != 0) {
        node = (node + 1) / 2 - 1;
        size *= 2;
        int64_t both = tree->longest[2 * node + 1] + tree->longest[2 * node + 2];
        if (both == size) {
            __asm__("" ::: "memory");
            tree->longest[node] = size;
        } else {
            tree->longest[node] = longer(tree, node);
        }
    }
}

buddy *reference_buddy_begin(uint64_t bytes) {
    uint64_t units = bytes >> UNIT_SHIFT, nodes = 2 * units - 1;
    buddy *tree = malloc(sizeof *tree + nodes * sizeof *tree->longest);
    if (tree == NULL) abort();
    tree->units = units;
    int64_t size = 2 * (int64_t)units;
    for (uint64_t i = 0; i < nodes; i++) {
        if (sw_is_pow2(i + 1)) size /= 2;
        tree->longest[i] = size;
    }
    return tree;
}

void reference_buddy_end(buddy *tree) { free(tree); }

/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of the rows. */
#ifndef SPANWISE_BENCH_COLLECTOR_SHAPES_H
#define SPANWISE_BENCH_COLLECTOR_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct node {
    struct node *to[4];
    uint64_t rest[4];
} node;

/* The first 16 bytes of a BRANCH (16 bytes) or a LONG_BRANCH (32 bytes). */
typedef struct branch {
    struct branch *left, *right;
} branch;

/* TREE_NODE: a branch and two numbers of 32 bits, as in GCBench. */
enum { NODE, LONG_BRANCH, BRANCH, PAIR, TREE_NODE, KINDS };

static const size_t bytes_of[KINDS] = {64, 32, 16, 16, 24};

#endif

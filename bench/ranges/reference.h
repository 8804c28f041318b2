/* SPDX-License-Identifier: Apache-2.0 */
/* Plain range allocators in C, to compare with: the algorithms of GoMem (a Go library under the MIT licence,
 * version a4f78d9) behind the same interface as our back ends, without what ours add. They do not look for
 * overlapping frees, and the single tree refuses some requests that a hole would serve, as GoMem's does.
 *
 *   single  a binary tree by start, rotated so that parents are the smaller holes; a hole that changes is
 *           taken out and put in again
 *   two     two AVL trees in each node, by size and by start; the smallest hole that fits
 *   buddy   a complete binary tree of "longest free run below", walked from its root and back
 */
#ifndef BENCH_RANGES_REFERENCE_H
#define BENCH_RANGES_REFERENCE_H

#include "range/range.h"

extern const sw_range_ops reference_single_ops;
extern const sw_range_ops reference_two_ops;
extern const sw_range_ops reference_buddy_ops;

#endif

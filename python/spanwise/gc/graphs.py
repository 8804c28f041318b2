# SPDX-License-Identifier: Apache-2.0
"""Edges of graphs, as `CollectedHeap.build` takes them.

edges[i, e] is the target of edge e of node i, or `NO_EDGE`. Nodes are allocated in the order of
their numbers.
"""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors

NO_EDGE = 2**32 - 1
NODES_MAX = NO_EDGE - 1


def random_graph(
    nodes: SupportsIndex, degree: SupportsIndex, *, seed: int = 0
) -> NDArray[np.uint32]:
    """Return a graph whose edges go to uniformly distributed random nodes.

    Args:
        nodes: number of nodes.
        degree: edges per node.
        seed: of the random numbers; the same seed gives the same graph.
    """
    count = _lib.as_index(nodes, "nodes", NODES_MAX)
    out = _lib.as_index(degree, "degree")
    if count == 0:
        return np.empty((0, out), np.uint32)
    return np.random.default_rng(seed).integers(0, count, (count, out), dtype=np.uint32)


def binary_tree(depth: SupportsIndex) -> NDArray[np.uint32]:
    """Return a complete binary tree: node i has the children 2 i + 1 and 2 i + 2.

    Args:
        depth: levels below the root (node 0), 0 to 30: 2**(depth + 1) - 1 nodes.
    """
    levels = _lib.as_index(depth, "depth", 30)
    nodes = 2 ** (levels + 1) - 1
    children = 2 * np.arange(nodes, dtype=np.int64)[:, None] + np.array([1, 2])
    return np.where(children < nodes, children, NO_EDGE).astype(np.uint32)


def linked_list(
    nodes: SupportsIndex, *, order: str = "allocation", seed: int = 0
) -> NDArray[np.uint32]:
    """Return a linked list that begins at node 0 and visits every node.

    Args:
        nodes: number of nodes.
        order: "allocation": node i points to node i + 1; "random": the nodes after the first are
            in random order, so each step jumps to another place in memory.
        seed: of the random order.

    Raises:
        InvalidError: there is no such order.
    """
    count = _lib.as_index(nodes, "nodes", NODES_MAX)
    _lib.as_choice(order, "order", ("allocation", "random"))
    path = np.arange(count, dtype=np.uint32)
    if order == "random" and count > 1:
        path[1:] = 1 + np.random.default_rng(seed).permutation(count - 1).astype(np.uint32)
    edges = np.full((count, 1), NO_EDGE, np.uint32)
    edges[path[:-1], 0] = path[1:]
    return edges


def as_edges(edges: object) -> NDArray[np.uint32]:
    """Return a contiguous copy of edges, of shape (nodes, degree).

    Raises:
        TypeError: the edges are not integers.
        InvalidError: the shape is not two-dimensional, or a number is negative or too large.
    """
    given = np.asarray(edges)
    if given.dtype.kind not in "iu" and given.size != 0:
        raise TypeError(f"edges must be integers, not {given.dtype}")
    if given.ndim != 2:
        raise errors.InvalidError(
            f"edges have shape {given.shape}; give (nodes, degree), as spanwise.random_graph makes"
        )
    if given.size != 0 and given.dtype != np.uint32:
        low, high = int(given.min()), int(given.max())
        if low < 0 or high > NO_EDGE:
            raise errors.InvalidError(f"edge {low if low < 0 else high} is not a node's number")
    return np.array(given, np.uint32, order="C")  # a copy: no thread changes it during the call

# SPDX-License-Identifier: Apache-2.0
"""Trees, graphs with cycles, and text: CPython objects as in ordinary programs.

Usage: objects.py SIZE (rounds). Prints counts and sums that do not depend on addresses.
"""

from __future__ import annotations

import gc
import random
import sys
from dataclasses import dataclass, field

SEED = 20261120


class Tree:
    """A binary tree."""

    __slots__ = ("left", "right")

    def __init__(self, depth: int) -> None:
        self.left = Tree(depth - 1) if depth else None
        self.right = Tree(depth - 1) if depth else None

    def count(self) -> int:
        """Return the number of nodes."""
        below = (self.left, self.right)
        return 1 + sum(tree.count() for tree in below if tree is not None)


@dataclass
class Node:
    """A node of a graph, whose cycles only the garbage collector frees."""

    name: str
    edges: list[Node] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)


def graph(source: random.Random, count: int) -> int:
    """Build a graph; return the number of nodes reachable from the first one."""
    nodes = [Node(f"node {i}") for i in range(count)]
    for node in nodes:
        node.edges = source.sample(nodes, 3)
        node.facts = {f"k{source.randrange(40)}": i for i in range(source.randrange(6))}
    seen = {nodes[0].name}
    pending = [nodes[0]]
    while pending:
        for follower in pending.pop().edges:
            if follower.name not in seen:
                seen.add(follower.name)
                pending.append(follower)
    return len(seen)


def words(source: random.Random, count: int) -> int:
    """Split, join and count text; return the number of different words."""
    text = " ".join(f"w{int(source.expovariate(0.001))}" for _ in range(count))
    totals: dict[str, int] = {}
    for word in text.split():
        totals[word.upper()] = totals.get(word.upper(), 0) + 1
    lines = [text[i : i + 70] for i in range(0, len(text), 70)]
    assert "".join(lines) == text
    return len(totals)


def main() -> None:
    """Grow a long-lived table while creating and dropping short-lived structures."""
    source = random.Random(SEED)
    kept: dict[int, tuple[str, list[int]]] = {}
    for number in range(int(sys.argv[1])):
        trees = Tree(11).count()
        reached = graph(source, 3000)
        different = words(source, 12000)
        for _ in range(4000):
            key = source.randrange(60000)
            kept[key] = (f"value {key} of {number}", list(range(source.randrange(12))))
        print(number, trees, reached, different, len(kept))
    print(sum(len(numbers) for _, numbers in kept.values()), gc.collect() >= 0)


if __name__ == "__main__":
    main()

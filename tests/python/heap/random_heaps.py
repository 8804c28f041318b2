# SPDX-License-Identifier: Apache-2.0
"""Plays random arrays of operations in heaps of every combination of options: PART of PARTS.

A separate program, because the bugs that it looks for end the process. It prints the options of
each heap before it runs operations there, and "done" at the end.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import spanwise as sw
from numpy.typing import NDArray

# The first ones are usual, the others rare.
KINDS = ([0, 0, 1, 2, 3, 255], 4)
OBJECTS = ([0, 1, 2, 3, 4, 5, 17, 63, 64, 4095, 4096, 1 << 20, (1 << 32) - 1], 9)
SIZES = (
    [
        *(0, 1, 4, 7, 8, 12, 15, 16, 17, 33, 512, 1024, 4000, 32768, 32769, 70000),
        *(1 << 20, 1 << 48, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
    ],
    16,
)
THREADS = ([0, 0, 0, 1, 2, 3, 99, (1 << 20) - 1, 1 << 20, (1 << 32) - 1], 6)
ALIGNS = ([0, 0, 0, 0, 3, 4, 5, 12, 13, 21, 47, 48, 255], 8)
FLAGS = ([0, 1, 2, 3, 4, 65535], 4)
TIMES = ([0, 10**6, 10**9, 10**12, 1 << 63, (1 << 64) - 1], 4)
OPTIONS: dict[str, Sequence[Any]] = {
    "table": ("go", "c16"),
    "dry": (False, True),
    "tiny": (False, True),
    "tracked": (False, True),
    "placement": ("lifo", "address", "fullest"),
    "limit_bytes": (None, 1 << 20),
    "decay_ms": (None, 0, math.inf),
    "batch_spans": (0, 3),
    "manual_clock": (False, True),
}
OF_OPTIONS = ("placement", "limit_bytes", "decay_ms", "batch_spans")


def column(
    rng: np.random.Generator, choice: tuple[list[int], int], count: int
) -> NDArray[np.uint64]:
    """Return mostly usual values, and one in a hundred from the whole list."""
    values, usual = choice
    odd = rng.random(count) < 0.01
    place = np.where(odd, rng.integers(0, len(values), count), rng.integers(0, usual, count))
    return np.array(values, np.uint64)[place]


def random_array(rng: np.random.Generator) -> NDArray[np.void]:
    """Return operations that need not be a valid history."""
    count = int(rng.integers(0, 400))
    ops = np.zeros(count, sw.OPS_DTYPE)
    for name, choice in {
        "kind": KINDS,
        "object": OBJECTS,
        "size": SIZES,
        "thread": THREADS,
        "align_log2": ALIGNS,
        "flags": FLAGS,
        "time_ns": TIMES,
    }.items():
        ops[name] = column(rng, choice, count)
    return ops


def random_blocks(rng: np.random.Generator, heap: sw.Heap, kept: list[sw.Block]) -> None:
    """More blocks than the workload's objects; some are freed, some twice."""
    for _ in range(5):
        with suppress(sw.SpanwiseError):
            block = heap.alloc(
                int(rng.choice(SIZES[0][:16])),
                zero=bool(rng.integers(2)),
                scan=bool(rng.integers(2)),
                align=(None, 1, 8, 64, 8192)[rng.integers(5)],
            )
            kept.append(block)
            kept[rng.integers(len(kept))].free()


def play(rng: np.random.Generator, heap: sw.Heap) -> None:
    """Run four arrays with blocks between them, and call every query of a heap."""
    kept: list[sw.Block] = []
    for _ in range(4):
        with suppress(sw.SpanwiseError):
            heap.run(random_array(rng), touch=("none", "ends")[rng.integers(2)])
        random_blocks(rng, heap, kept)
        if rng.integers(2):
            heap.drain()
        for ask in (heap.ledger, heap.stats, heap.spans, heap.verify, heap.trim):
            ask()


def main(part: int, parts: int) -> None:
    """Run every `parts`-th combination of options, beginning with `part`."""
    for number, values in enumerate(itertools.product(*OPTIONS.values())):
        if number % parts != part:
            continue
        given = dict(zip(OPTIONS, values, strict=True))
        print(number, given, flush=True)
        options = sw.HeapOptions(**{name: given.pop(name) for name in OF_OPTIONS})
        with sw.Heap(**given, options=options) as heap:
            play(np.random.default_rng(number), heap)
    print("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

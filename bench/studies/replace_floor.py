# SPDX-License-Identifier: Apache-2.0
"""The least that the row "random replace, peak RSS" can cost where a slot keeps its class.

The row holds 100,000 objects of 8..1024 B and replaces each of them twenty times, on average.
Memory that objects of one class leave cannot serve another class before a whole span is free, so
the peak is at least the sum of the most that each class ever holds. Printed: that
sum, in slots, in touched pages
and in whole spans, over what the table costs at its worst moment (`rss_over_table` of the row).

Example: ./dev study replace-floor
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from spanwise import SizeClassTable

LIVE = 100_000
ROUNDS = 20
SMALLEST, LARGEST = 8, 1024
PAGE = 4096

Counts = npt.NDArray[np.int64]


def peak_counts(sizes: Counts, seed: int) -> tuple[Counts, int]:
    """Replaces objects as the row does.

    Args:
        sizes: bytes of a slot of each class, ascending.
        seed: of the random numbers.

    Returns:
        The most objects that each class held at once, and the most bytes that the slots of all live
        objects had at the start of a round.
    """
    random = np.random.default_rng(seed)
    classes = np.searchsorted(sizes, random.integers(SMALLEST, LARGEST + 1, LIVE))
    live = np.bincount(classes, minlength=len(sizes))
    most = live.copy()
    table_bytes = 0
    for _ in range(ROUNDS):
        table_bytes = max(table_bytes, int((live * sizes).sum()))
        places = random.integers(0, LIVE, LIVE)
        fresh = np.searchsorted(sizes, random.integers(SMALLEST, LARGEST + 1, LIVE))
        for place, new in zip(places.tolist(), fresh.tolist(), strict=True):
            live[classes[place]] -= 1
            classes[place] = new
            live[new] += 1
            most[new] = max(most[new], live[new])
    return most, table_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints three ratios for the default table."""
    parser = argparse.ArgumentParser(
        prog="./dev study replace-floor",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default 1)")
    seed = parser.parse_args(arguments).seed
    table = SizeClassTable.default()
    sizes = table.classes["size_bytes"].astype(np.int64)
    spans = table.classes["span_bytes"].astype(np.int64)
    most, table_bytes = peak_counts(sizes, seed)
    used = most > 0
    bytes_of = most * sizes
    slots = bytes_of.sum() / table_bytes
    pages = (-(-bytes_of // PAGE) * PAGE).sum() / table_bytes
    whole = (-(-bytes_of[used] // spans[used]) * spans[used]).sum() / table_bytes
    print(f"{table.name}: slots {slots:.3f}, touched pages {pages:.3f}, whole spans {whole:.3f}")
    return 0

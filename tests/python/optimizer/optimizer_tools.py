# SPDX-License-Identifier: Apache-2.0
"""Recordings that ask for given sizes, and tables that are proposed by arithmetic alone."""

from __future__ import annotations

from typing import Any

import spanwise as sw
from spanwise.recordings.recording_set import Recordings

from tests.python.helpers import ALLOC, FREE, make_ops


def wanting(*sizes: int) -> sw.Recording:
    """A recording that asks for these sizes and keeps them."""
    return sw.Recording.from_ops(make_ops(*((ALLOC, i, size) for i, size in enumerate(sizes))))


def churned(*sizes: int, live: int = 4000) -> sw.Recording:
    """`live` objects of 512 bytes, which are the peak; then 5,000 of each size come and go."""
    rows = [(ALLOC, i, 512) for i in range(live)] + [(FREE, i, 0) for i in range(64)]
    for number, size in enumerate(size for size in sizes for _ in range(5_000)):
        rows += [(ALLOC, live + number, size), (FREE, live + number, 0)]
    return sw.Recording.from_ops(make_ops(*rows), name="churned")


def by_peak(
    recordings: Recordings, classes: int = 24, objective: str = "peak", **options: Any
) -> sw.OptimizeResult:
    """What the arithmetic of the peak proposes, without a search, a bound on waste and a prior."""
    return sw.optimize(
        recordings, classes, objective, **{"waste_percent": 100, "prior": 0, **options}
    )

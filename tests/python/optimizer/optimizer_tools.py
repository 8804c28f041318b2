# SPDX-License-Identifier: Apache-2.0
"""Recordings that request given sizes, and tables proposed without a search."""

from __future__ import annotations

from typing import Any

import spanwise as sw
from spanwise.recordings.recording_set import Recordings

from tests.python.helpers import ALLOC, FREE, make_ops


def wanting(*sizes: int) -> sw.Recording:
    """Return a recording that requests these sizes and keeps the objects."""
    return sw.Recording.from_ops(make_ops(*((ALLOC, i, size) for i, size in enumerate(sizes))))


def churned(*sizes: int, live: int = 4000) -> sw.Recording:
    """Return a recording whose peak is `live` objects of 512 bytes; 5,000 of each size follow."""
    rows = [(ALLOC, i, 512) for i in range(live)] + [(FREE, i, 0) for i in range(64)]
    for number, size in enumerate(size for size in sizes for _ in range(5_000)):
        rows += [(ALLOC, live + number, size), (FREE, live + number, 0)]
    return sw.Recording.from_ops(make_ops(*rows), name="churned")


def by_peak(
    recordings: Recordings, classes: int = 24, objective: str = "peak", **options: Any
) -> sw.OptimizeResult:
    """Return the proposal for the peak, without a search, a bound on waste and a prior."""
    return sw.optimize(
        recordings, classes, objective, **{"waste_percent": 100, "prior": 0, **options}
    )

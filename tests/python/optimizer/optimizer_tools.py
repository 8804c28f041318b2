# SPDX-License-Identifier: Apache-2.0
"""Recordings that ask for given sizes."""

from __future__ import annotations

import spanwise as sw

from tests.python.helpers import ALLOC, FREE, make_ops


def wanting(*sizes: int) -> sw.Recording:
    """A recording that asks for these sizes and keeps them."""
    return sw.Recording.from_ops(make_ops(*((ALLOC, i, size) for i, size in enumerate(sizes))))


def churned(*sizes: int, live: int = 4000) -> sw.Recording:
    """`live` objects of 512 bytes, which are the peak; then 20,000 of each size come and go."""
    rows = [(ALLOC, i, 512) for i in range(live)] + [(FREE, i, 0) for i in range(64)]
    for number, size in enumerate(size for size in sizes for _ in range(20_000)):
        rows += [(ALLOC, live + number, size), (FREE, live + number, 0)]
    return sw.Recording.from_ops(make_ops(*rows), name="churned")

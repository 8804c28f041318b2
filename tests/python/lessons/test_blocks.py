# SPDX-License-Identifier: Apache-2.0
"""Blocks of a few requests: by hand, and the counts that Go's own benchmarks print."""

from __future__ import annotations

import pytest
import spanwise as sw
from spanwise.lessons.blocks import Blocks, blocks, books

GO = sw.SizeClassTable.go()


def test_by_hand() -> None:
    """33 takes 48; 66 takes 80; 32769 takes five pages of 8 KiB."""
    assert blocks([33, 33, 66], GO) == Blocks(176, 3, 44)
    assert blocks([32769], GO) == Blocks(40960, 1, 8191)
    assert blocks([], GO) == Blocks(0, 0, 0)


@pytest.mark.parametrize(
    ("count", "together", "apart"),
    [
        (100, (4992, 2), (5696, 101)),
        (820, (47744, 2), (46144, 821)),
        (853, (47872, 2), (47856, 854)),
    ],
)
def test_books(count: int, together: tuple[int, int], apart: tuple[int, int]) -> None:
    assert books(count, GO, together=True)[:2] == together
    assert books(count, GO, together=False)[:2] == apart


def test_bad_sizes() -> None:
    with pytest.raises(sw.InvalidError):
        blocks([-1], GO)
    with pytest.raises(TypeError):
        blocks([1.5], GO)  # type: ignore[list-item]

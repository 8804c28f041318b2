# SPDX-License-Identifier: Apache-2.0
"""The heat map of lifetimes: its cells are the rows' bytes, in the right places."""

from __future__ import annotations

import numpy as np
import pytest
import spanwise as sw
from spanwise.recordings.lifetimes import LIFETIMES_DTYPE
from spanwise.results.rows import as_rows


def rows(*given: tuple[int, int, bool, int]) -> sw.Rows:
    """Rows of size, lifetime, freed, bytes."""
    return as_rows(
        np.array([(0, 0, s, life, freed, 1, n) for s, life, freed, n in given], LIFETIMES_DTYPE)
    )


def cells(ax: object) -> np.ndarray:
    """The numbers behind the colours, 0 where a cell is empty."""
    mesh = ax.collections[0]  # type: ignore[attr-defined]
    return np.ma.filled(mesh.get_array(), 0)


def test_cells_by_hand() -> None:
    """16 and 64 B are rows 0 and 2; 1024 and 4096 ns columns 0 and 2; column 4 lives on."""
    given = rows((16, 1024, True, 160), (64, 4096, True, 640), (16, 1 << 20, False, 48))
    grid = cells(sw.plots.lifetimes(given))
    assert grid.shape == (3, 5)
    assert grid.tolist() == [[160, 0, 0, 0, 48], [0] * 5, [0, 0, 640, 0, 0]]


def test_rows_of_one_cell_add_up() -> None:
    grid = cells(sw.plots.lifetimes(rows((16, 8, True, 100), (16, 8, True, 20))))
    assert grid.sum() == 120 and np.count_nonzero(grid) == 1


def test_all_bytes_of_a_recording_are_drawn() -> None:
    recording = sw.synthesize({8: 1, 100: 1, 0: 1}, [1, 50, 5000], seed=2, count=3000)
    told = recording.lifetimes(by="size")
    ax = sw.plots.lifetimes(told, title="mine")
    assert cells(ax).sum() == told["total_bytes"].sum()
    assert ax.get_title(loc="left") == "mine" or ax.get_title() == "mine"
    assert ax.get_xticklabels()[-1].get_text() == "not freed"
    assert ax.get_ylabel() and ax.get_xlabel()


def test_an_age_of_what_lives_on_makes_no_column() -> None:
    grid = cells(sw.plots.lifetimes(rows((16, 1024, True, 16), (16, 1, False, 32))))
    assert grid.tolist() == [[16, 0, 32]]


def test_nothing_is_ever_freed() -> None:
    grid = cells(sw.plots.lifetimes(rows((32, 64, False, 320))))
    assert grid[0, -1] == grid.sum() == 320


def test_times_and_sizes_are_round_in_their_units() -> None:
    """Ten columns of 2**10 to 2**19 ns, an empty one, and "not freed": a label at each second."""
    ax = sw.plots.lifetimes(rows((8192, 1 << 10, True, 1), (8192, 1 << 19, True, 1)))
    names = [mark.get_text() for mark in ax.get_xticklabels()]
    assert names == ["1 µs", "4 µs", "16 µs", "66 µs", "262 µs", "not freed"]
    ax = sw.plots.lifetimes(rows((8192, 1 << 20, True, 1)))
    assert ax.get_xticklabels()[0].get_text() == "1 ms"
    assert [mark.get_text() for mark in ax.get_yticklabels()] == ["8 KiB"]


def test_no_object() -> None:
    with pytest.raises(sw.InvalidError, match="no object"):
        sw.plots.lifetimes(rows())

# SPDX-License-Identifier: Apache-2.0
"""The Pareto front: its points are ledgers, its minima and its caches, by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.optimizer.pareto import AS_RECORDED, PARETO_DTYPE, _row, _SpreadSource
from spanwise.recordings.sources import Batch
from spanwise.results.rows import as_rows

from tests.python.helpers import ALLOC, FREE, by_peak, make_ops


def point(classes: int, scale: int, caches: int, resident: int) -> tuple[int, ...]:
    """A point of the front; held bytes fall as resident bytes rise, but do not matter."""
    return (classes, scale, caches, 1, 2, 3, 4, 5, 6, 7, 1000 - resident, resident)


POINTS = [
    point(40, 1, 0, 300),
    point(10, 1, 0, 250),
    point(20, 1, 0, 200),
    point(30, 1, 0, 200),
    point(20, 2, 0, 150),
    point(30, 1, 4, 100),
    point(10, 1, 4, 120),
]
FRONT = sw.ParetoFront(as_rows(np.array(POINTS, PARETO_DTYPE)))


def test_the_lowest_point_of_each_curve() -> None:
    """Of equal points, the one with the fewest classes is lowest."""
    assert FRONT.curves() == [(1, 0), (1, 4), (2, 0)]
    assert FRONT.curve()["classes"].tolist() == [10, 20, 30, 40]
    assert FRONT.curve()["resident_bytes"].tolist() == [250, 200, 200, 300]
    assert int(FRONT.best()["classes"]) == 20
    figures = ("span_scale", "caches", "classes", "resident_bytes", "held_bytes")
    assert [tuple(m[figure] for figure in figures) for m in FRONT.to_dict()["minima"]] == [
        (1, 0, 20, 200, 800),
        (1, 4, 30, 100, 900),
        (2, 0, 20, 150, 850),
    ]


def test_a_row_names_the_terms_of_its_ledger() -> None:
    ops = make_ops(*((ALLOC, i, 33) for i in range(5)), (ALLOC, 5, 40_000), (ALLOC, 6, 2 << 20))
    ledger = sw.Recording.from_ops(np.concatenate([ops, _free_last()])).ledger("go", "end")
    made = np.array([_row(ledger, 67, 3, 2)], PARETO_DTYPE)[0]
    terms = {name: int(made[name]) for name in PARETO_DTYPE.names or ()}
    held = terms.pop("held_bytes")
    metadata = terms.pop("metadata_bytes")
    # Of the small span the first system page was written, of the large ones everything.
    assert ledger.resident is not None
    touched_metadata = ledger.resident.metadata_bytes
    assert terms.pop("resident_bytes") == 4096 + 40_960 + (2 << 20) + touched_metadata
    assert touched_metadata < metadata
    # 33 bytes take slots of 48 in a span of 8 KiB: 170 of them, 32 bytes of tail; 40,000 bytes
    # take five pages; the 2 MiB that were freed are free pages.
    assert terms == {
        **{"classes": 67, "span_scale": 3, "caches": 2},
        **{"requested_bytes": 5 * 33 + 40_000, "roundup_bytes": 5 * 15, "tail_bytes": 32},
        **{"free_slot_bytes": 0, "cached_bytes": 165 * 48},
        "other_bytes": 40_960 - 40_000 + (2 << 20),
    }
    assert held == 8192 + 40_960 + (2 << 20) + metadata


def _free_last() -> NDArray[np.void]:
    last = make_ops((FREE, 6, 0))
    last["time_ns"] = 10_000
    return last


class OneBatch:
    """Operations of objects 0, 1, 2, 7 by thread 9."""

    def __init__(self) -> None:
        self.ops = make_ops(
            (ALLOC, 0, 1), (ALLOC, 1, 1), (ALLOC, 2, 1), (ALLOC, 7, 1), (FREE, 1, 0)
        )
        self.ops["thread"] = 9

    def batches(self) -> Iterator[Batch]:
        """All of them at once."""
        yield Batch(_lib.pointer(self.ops, "const sw_op *"), len(self.ops))


@pytest.mark.parametrize(("caches", "threads"), [(1, [0] * 5), (3, [0, 1, 2, 1, 1])])
def test_objects_are_spread_over_caches(caches: int, threads: list[int]) -> None:
    source = OneBatch()
    batches = _SpreadSource(source, caches).batches()  # type: ignore[arg-type]
    spread = next(batches).array()  # valid until the next batch
    assert spread["thread"].tolist() == threads
    assert source.ops["thread"].tolist() == [9] * 5  # which stays as it was
    for name in ("time_ns", "kind", "object", "size"):
        assert (spread[name] == source.ops[name]).all(), name


# --- of a search ----------------------------------------------------------------------------------


def test_pareto_rows_are_ledgers(program: sw.Recording) -> None:
    best = by_peak(program, classes=24, partial=0)
    pareto = best.make_pareto(counts=(4, 64), caches=(AS_RECORDED, 1, 4), scales=(1, 2))
    assert pareto.curves() == [(1, 0), (1, 1), (1, 4), (2, 0)]
    assert pareto.curve()["classes"].tolist() == [4, 24, 64]
    parts = ("requested", "roundup", "tail", "free_slot", "cached", "metadata", "other")
    for row in pareto.array:
        assert sum(int(row[f"{name}_bytes"]) for name in parts) == row["held_bytes"]
    ledger = program.ledger(best.proposal, "peak")
    row = pareto.curve()[1]
    assert (row["held_bytes"], row["cached_bytes"]) == (ledger.held_bytes, ledger.cached_bytes)
    assert row["resident_bytes"] == ledger.resident_bytes
    assert pareto.best()["resident_bytes"] == pareto.curve()["resident_bytes"].min()
    one, four = pareto.curve(caches=1), pareto.curve(caches=4)
    assert (four["cached_bytes"] > one["cached_bytes"]).all()
    assert str(pareto).count("least") == 4
    assert len(pareto.to_dict()["minima"]) == 4
    assert best.plot_waste().get_title() == f"round-up of each size under c16, {best.table.name}"
    assert "best-24-peak" in best._repr_html_()

# SPDX-License-Identifier: Apache-2.0
"""How much each size weighs: by allocations, by time, at the peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.optimizer.profile import profile_of

from tests.python.helpers import (
    ALLOC,
    FREE,
    REALLOC,
    make_ops,
)


def test_profiles_are_plain_counts(program: sw.Recording) -> None:
    weights = profile_of(program, "allocs").weights
    histogram = program.histogram()
    expected = np.zeros(len(weights))
    expected[histogram["size_bytes"]] = histogram["count"]
    assert (weights == expected).all()
    live: dict[int, int] = {}
    for op in program.ops[: program.summary.peak_op]:
        live[int(op["object"])] = int(op["size"])
        if op["kind"] == FREE:
            del live[int(op["object"])]
    peak = np.bincount(list(live.values()), minlength=len(weights))
    assert (profile_of(program, "peak").weights == peak).all()


def test_time_is_object_seconds() -> None:
    ops = make_ops((ALLOC, 0, 100), (REALLOC, 0, 300), (ALLOC, 1, 7), (FREE, 0, 0))
    weights = profile_of(sw.Recording.from_ops(ops), "time").weights
    assert weights[100] == pytest.approx(1e-6)
    assert weights[300] == pytest.approx(2e-6)
    assert weights[7] == pytest.approx(1e-6)


def test_a_file_has_the_profile_of_its_operations(program: sw.Recording, tmp_path: Path) -> None:
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    for objective in ("allocs", "time", "peak"):
        kept, plain = profile_of(stored, objective), profile_of(program, objective)
        assert np.allclose(kept.weights, plain.weights)
        assert kept.large_bytes == pytest.approx(plain.large_bytes)


@pytest.mark.parametrize("name", ["go", "c16", "jemalloc", "mimalloc", "pow2"])
def test_waste_is_the_tables_own_arithmetic(program: sw.Recording, name: str) -> None:
    table = sw.SizeClassTable.named(name)
    waste = profile_of(program, "peak").waste(table)
    ledger = program.ledger(table)
    assert waste.requested == ledger.requested_bytes
    # Requests with an alignment may get a larger class, so the ledger can only have more.
    assert waste.roundup <= ledger.roundup_bytes
    weights = profile_of(program, "peak").weights
    sizes = np.flatnonzero(weights)
    rounded = table.round_up(np.maximum(sizes, 1)) - sizes
    assert waste.roundup + waste.large_rounding == pytest.approx(float(weights[sizes] @ rounded))

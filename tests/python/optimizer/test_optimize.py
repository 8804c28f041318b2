# SPDX-License-Identifier: Apache-2.0
"""The table that the optimiser proposes: its rules, its file, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.optimizer.pareto import peak_ledger
from spanwise.optimizer.profile import profile_of

from tests.python.helpers import (
    ROOT,
)
from tests.python.optimizer.optimizer_tools import by_peak, wanting

# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("align", [8, 16])
@pytest.mark.parametrize("objective", ["peak", "held", "resident"])
def test_rules_are_kept(program: sw.Recording, objective: str, align: int) -> None:
    rules: dict[str, Any] = {"align": align, "largest_bytes": 16384, "candidates": 30}
    best = by_peak(program, 20, objective, **rules)
    sizes = best.proposal.classes["size_bytes"]
    assert len(best.proposal) <= 20
    assert sizes[-1] == 16384
    assert (sizes[sizes >= align] % align == 0).all()
    if objective not in ("held", "resident"):
        assert (best.proposal.classes["span_bytes"] <= 10 * 8192).all()
    waste = best.arithmetic
    assert waste.total == pytest.approx(waste.roundup + waste.tail + waste.large_rounding)


def test_held_holds_least(program: sw.Recording) -> None:
    held = peak_ledger([program], by_peak(program, 32, "held").proposal).held_bytes
    assert held <= peak_ledger([program], by_peak(program, 32, "peak").proposal).held_bytes


def test_several_recordings(program: sw.Recording, other: sw.Recording) -> None:
    both = by_peak([program, other], classes=16)
    assert both.arithmetic.requested == (
        program.summary.peak_requested_bytes + other.summary.peak_requested_bytes
    )
    only = by_peak([program, other], classes=16, weights=[1, 0])
    alone = by_peak(program, classes=16, partial=only.rules.partial).proposal
    waste = profile_of(program).waste(only.proposal)
    assert only.proposal == alone or only.arithmetic.share == pytest.approx(waste.share)
    half = by_peak([program, other], classes=16, weights=[1, 1])
    assert half.arithmetic.requested == pytest.approx(both.arithmetic.requested)


def test_constraints_say_what_a_rule_costs(program: sw.Recording) -> None:
    best = by_peak(program, classes=24, partial=0)
    saved = {one.rule: one.saved for one in best.constraints}
    assert saved["align 8 instead of 16"] >= 0
    assert saved["spans of up to 40 pages"] >= 0
    assert saved["twice as many classes"] >= 0
    assert saved["only spans that Go's 32-bit division can index"] <= 1e-6
    assert saved["the fewest pages for the largest class"] <= 1e-6


def test_a_rule_that_no_table_meets_costs_nothing(program: sw.Recording) -> None:
    best = by_peak(program, classes=8, align=8, largest_bytes=1000, page_bytes=4096)
    rules = [one.rule for one in best.constraints]
    assert "align 16 instead of 8" not in rules  # 1000 B is no multiple of 16
    assert "largest class 65536 B" in rules
    assert "align 16" not in str(best)


# --- files ----------------------------------------------------------------------------------------


def test_table_file_serves_the_generator(program: sw.Recording, tmp_path: Path) -> None:
    best = by_peak(program, classes=24)
    path = tmp_path / "best.json"
    best.proposal.to_json(path)
    assert sw.SizeClassTable.from_json(path) == best.table
    file = json.loads(path.read_text())
    assert file["parameters"]["classes"] == 24
    assert file["provenance"] == "spanwise optimize, objective peak, of program"
    script = ROOT / "scripts/sizeclasses.py"
    words = [sys.executable, str(script), "--table", str(path), "-o", str(tmp_path / "gen")]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(made.name for made in (tmp_path / "gen").iterdir()) == [
        "default.h",
        "fast.h",
        "paths_best_24_peak.c",
        "paths_best_24_peak.h",
        "table_best_24_peak.c",
    ]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes 0: must be 1 to 255"),
        ({"classes": 256}, "classes 256: must be 1 to 255"),
        ({"align": 12}, "align 12: must be 8 or 16"),
        (
            {"largest_bytes": 24},
            "max_bytes 24: no class; must be a multiple of align 16 up to 262144",
        ),
        (
            {"pages": 3},
            "pages_max 3: a class of 32768 bytes needs 4 pages of 8192 bytes; allow so many",
        ),
        ({"page_bytes": 5000}, "page_bytes 5000: must be a power of two from 4096 to 65536"),
        (
            {"objective": "speed"},
            "objective 'speed': must be one of resident, held, peak",
        ),
        ({"name": "go"}, "name 'go' belongs to a built-in table; choose another"),
        (
            {"name": "my table"},
            "name 'my table': must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter",
        ),
        ({"prior": 1.0}, "prior 1.0: must be at least 0 and below 1"),
        ({"prior": -0.01}, "prior -0.01: must be at least 0 and below 1"),
        ({"prior": float("nan")}, "prior nan: must be at least 0 and below 1"),
        ({"partial": -0.5}, "span_charge -0.5: must be 0 or more"),
        (
            {"weights": [1, 2]},
            "weights [1.0, 2.0]: give one number of 0 or more for each of 1 recordings, not all 0",
        ),
    ],
)
def test_impossible_rules(program: sw.Recording, options: dict[str, Any], message: str) -> None:
    with pytest.raises(sw.InvalidError) as caught:
        by_peak(program, **options)
    assert str(caught.value) == message


def test_nothing_to_fit() -> None:
    with pytest.raises(sw.InvalidError) as caught:
        by_peak(sw.Recording.from_ops(np.zeros(0, sw.OPS_DTYPE), name="empty"))
    assert str(caught.value) == "empty: holds no allocation; record a program that makes some"
    with pytest.raises(sw.InvalidError) as caught:
        by_peak(wanting(100_000, 200_000))
    assert str(caught.value) == (
        "no request of at most 32768 bytes: there is nothing to fit classes to"
    )
    with pytest.raises(sw.InvalidError, match="no recording to fit a table to"):
        by_peak([])
    with pytest.raises(TypeError, match="recordings must be Recording objects, not int"):
        by_peak([3])  # type: ignore[list-item]

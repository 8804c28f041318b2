# SPDX-License-Identifier: Apache-2.0
"""Cross-validation: parts and savings by hand, the sentence, the command, wrong input."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.optimizer import local_search, search
from spanwise.optimizer.evaluation import FOLD_DTYPE, describe_folds, grouped
from spanwise.results.rows import as_rows

from tests.python.helpers import ALLOC, FREE, make_ops
from tests.python.optimizer.optimizer_tools import wanting

LOOSE: dict[str, Any] = {"waste_percent": 100, "prior": 0, "candidates": 16}
"""No bound on waste, no other sizes, and a short search."""


def folds(recordings: Any, classes: int, **options: Any) -> sw.Rows:
    """Return the folds of a cross-validation with a search like the whole one in each."""
    found = sw.optimize(recordings, classes, **{**LOOSE, "folds": 5, **options}).folds
    assert found is not None
    return found


def stages(*sizes: int, count: int = 600) -> sw.Recording:
    """Return stages: each allocates objects of one size and frees those of the previous stage."""
    rows = []
    for stage, size in enumerate(sizes):
        for i in range(count):
            rows.append((ALLOC, stage * count + i, size))
            if stage:
                rows.append((FREE, (stage - 1) * count + i, 0))
    return sw.Recording.from_ops(make_ops(*rows), name="stages")


def test_parts_that_ask_for_the_same_save_the_same() -> None:
    """Objects of 1,040 bytes, for which c16 has no class: each part learns that from the others."""
    same = [wanting(*[1040] * 500) for _ in range(4)]
    rows = folds(same, 8)
    assert rows.dtype == FOLD_DTYPE and rows["fold"].tolist() == [0, 1, 2, 3]
    assert rows["events"].tolist() == [500] * 4
    assert not rows["stock_chosen"].any()
    best = sw.optimize(same[1:], 8, **LOOSE)
    for row in rows:
        stock, chosen = (
            same[0].ledger(table, "peak-resident").peak_resident_bytes
            for table in (best.stock, best.table)
        )
        assert (row["stock_bytes"], row["chosen_bytes"]) == (stock, chosen)
        assert row["saved_bytes"] == int(row["stock_bytes"]) - int(row["chosen_bytes"]) > 0
        assert row["saved_percent"] == pytest.approx(100 * row["saved_bytes"] / row["stock_bytes"])


def test_a_part_is_judged_by_what_it_did_not_choose() -> None:
    """Of two classes fitted to 1,040 bytes the larger wastes a third of each object of 5,400."""
    three = [wanting(*[1040] * 500), wanting(*[1040] * 500), wanting(*[5400] * 500)]
    rows = folds(three, 2, largest_bytes=8192)
    assert rows["saved_bytes"][2] < 0 and rows["stock_chosen"].tolist() == [True, True, False]


def test_a_single_recording_is_cut() -> None:
    """Objects live at a cut are allocated at the beginning of the next part."""
    whole = stages(1040, 1040, 1040, 1040)
    rows = folds(whole, 8, folds=3)
    edges = [len(whole) * i // 3 for i in range(4)]
    parts = [whole[first:last] for first, last in itertools.pairwise(edges)]
    assert rows["events"].tolist() == [len(part) for part in parts]
    assert sum(rows["events"].tolist()) > len(whole)
    assert (rows["saved_bytes"] > 0).all()


def folds_of(*saved: float, kept: int = 0) -> sw.Rows:
    rows = np.zeros(len(saved), FOLD_DTYPE)
    rows["saved_percent"] = saved
    rows["stock_chosen"][:kept] = True
    return as_rows(rows)


def test_the_sentence() -> None:
    """By hand: of five values the middle one; 1 - 2 / 2^5 is 94 %."""
    said = describe_folds(folds_of(0.5, -1.25, 3.0, 2.0, 0.0, kept=1))
    assert said == (
        "cross-validation over 5 parts: the chosen table saves 0.5 % of the resident bytes of a"
        " held-out part (median; -1.2 to 3.0 %, the 94 % interval); 1 of the choices kept the stock"
        " table"
    )
    assert describe_folds(folds_of(1.0, 2.0)).endswith("(median; 1.0 to 2.0 %, the 50 % interval)")


# --- within optimize ------------------------------------------------------------------------------


def test_several_recordings_are_cross_validated_by_default() -> None:
    """As by a number of folds with short searches: 16 // (2 * 3) tables, but at least 8."""
    sizes = ([1040] * 500, [1040] * 400, [1040] * 700)
    three = [wanting(*one) for one in sizes]
    best = sw.optimize(three, 8, **LOOSE)
    rows = folds(three, 8, candidates=8)
    assert best.folds is not None and best.folds.to_dicts() == rows.to_dicts()
    assert best.holds and (rows["saved_bytes"] > 0).all()
    assert best.verdict().endswith(f"on the 3 recordings it was fitted to; {describe_folds(rows)}.")
    assert best.to_dict()["folds"] == rows.to_dicts()


def test_when_cross_validation_is_not_the_default() -> None:
    two = [wanting(*[1040] * 300), wanting(*[1040] * 200)]
    others: list[dict[str, Any]] = [
        {"folds": 0},
        {"mixed": True},
        {"weights": [1, 2]},
        {"objective": "peak"},
        {"holdout": wanting(*[1040] * 100)},
    ]
    for options in others:
        best = sw.optimize(two, 8, **{**LOOSE, "candidates": 2, **options})
        assert best.folds is None and best.to_dict()["folds"] is None
        assert "cross-validation" not in best.verdict() and not best.stopped
    alone = sw.optimize(two[0], 8, **LOOSE)
    assert alone.folds is None
    assert "no held-out data: measured on the recording it was fitted to" in alone.verdict()


def test_a_choice_that_loses_on_held_out_parts_does_not_hold() -> None:
    """By hand: three classes serve both sizes, but each size alone is no guide to the other.

    Fitted to 1,040 bytes, 5,400 take two pages of a slot of 8 KiB; fitted to 5,400 bytes, 1,040
    take a page at least.
    """
    two = [wanting(*[1040] * 500), wanting(*[5400] * 500)]
    rules: dict[str, Any] = {**LOOSE, "largest_bytes": 8192}
    best = sw.optimize(two, 3, **rules)
    assert best.folds is not None and (best.folds["saved_bytes"] < 0).all()
    assert best.beats_stock and not best.holds
    said = "no table beats c16 in cross-validation: "
    assert best.verdict().startswith(said) and best.table.to_dict()["parameters"]["condemned"]
    assert sw.optimize(two, 3, folds=0, **rules).holds
    # The choice on both is not cross-validated in its turn, by which it would not hold.
    rows = folds([*two, wanting(*[1040] * 400)], 3, largest_bytes=8192)
    assert not rows["stock_chosen"][2] and rows["saved_bytes"][2] > 0


def test_parts_of_a_single_recording_do_not_decide() -> None:
    """The same sizes one after the other: each half loses with the other half's choice."""
    whole = stages(1040, 1040, 5400, 5400, count=300)
    best = sw.optimize(whole, 3, **LOOSE, largest_bytes=8192, folds=2)
    assert best.folds is not None and best.holds == best.beats_stock
    assert "; cross-validation over 2 parts: the chosen table saves " in best.verdict()


def test_others_that_no_table_can_be_fitted_to_leave_the_stock_table() -> None:
    """Without the first recording, only large objects remain."""
    best = sw.optimize([wanting(*[1040] * 500), wanting(*[100_000] * 20)], 8, **LOOSE)
    assert best.folds is not None and best.folds["stock_chosen"].tolist()[0] is True


def test_many_recordings_share_five_parts() -> None:
    seven = [wanting(8)] * 7
    assert [len(part) for part in grouped(seven)] == [2, 2, 1, 1, 1]
    assert [len(part) for part in grouped(seven[:2])] == [1, 1]


def test_short_searches() -> None:
    """160 // (2 * 3), at least 8, at most `candidates`; whole searches for a number of folds."""
    three = [wanting(8)] * 3
    for folds, most, fewer in ((None, 160, 26), (None, 48, 8), (None, 4, 4), (3, 160, 160)):
        options: Any = SimpleNamespace(
            **{"folds": folds, "mixed": False, "held_out": None, "weights": None},
            **{"objective": "resident", "candidates_for": lambda _, most=most: most},
        )
        assert search.CrossValidation.of(three, options).candidates == fewer


def test_ctrl_c_ends_the_cross_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the search of the first part: the table that was found is kept."""
    real = local_search.search
    searches: list[Any] = []

    def interrupted(*given: Any) -> Any:
        searches.append(given)
        found = real(*given)
        return found._replace(stopped=len(searches) == 2)

    monkeypatch.setattr(local_search, "search", interrupted)
    best = sw.optimize([wanting(*[1040] * 300), wanting(*[1040] * 200)], 8, **LOOSE)
    assert len(searches) == 2 and best.folds is None and best.stopped and best.holds
    assert best.verdict().endswith("; the search was ended early.")


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        ("1", "folds 1: must be at least 2"),
        ("-3", "folds -3: must be at least 2"),
        ("4000", "3,000 operations cannot be cut into 4000 parts; give fewer folds"),
    ],
)
def test_folds_that_cannot_be(
    folds: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.swt"
    sw.Recording.from_ops(stages(1040, 1040, 1040).ops, path)
    assert main(["optimize", str(path), "--folds", folds]) == 2
    assert message in capsys.readouterr().err


def test_folds_of_weighted_recordings_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.swt"
    sw.Recording.from_ops(stages(1040, 1040).ops, path)
    assert main(["optimize", str(path), "--folds", "2", "--weight", "1"]) == 2
    assert "weights and folds: a held-out part has no weight" in capsys.readouterr().err

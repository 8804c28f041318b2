# SPDX-License-Identifier: Apache-2.0
"""The table that the optimizer proposes: rules, file, cross-validation, bad input, the command."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.optimizer import local_search, search
from spanwise.optimizer.evaluation import FOLD_DTYPE, describe_folds, grouped
from spanwise.optimizer.profile import profile_of
from spanwise.results.rows import as_rows

from tests.python.helpers import (
    ALLOC,
    FREE,
    ROOT,
    by_peak,
    make_ops,
    wanting,
)

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


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def stored(program: sw.Recording, other: sw.Recording, tmp_path: Path) -> Path:
    sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    sw.Recording.from_ops(other.ops[:8000], tmp_path / "b.swt")
    return tmp_path


def test_command(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", stored / "a.swt", "--holdout", stored / "b.swt", "--classes", "20"]
    words += ["--candidates", "30", "--waste-percent", "100"]
    words += ["-o", stored / "t.json"]
    assert main([str(word) for word in words]) == 0
    text = capsys.readouterr().out
    assert "\nbest-20-resident saves " in text
    assert " under c16 on b.swt, held out.\n" in text
    written = sw.SizeClassTable.named(str(stored / "t.json"))
    assert f"wrote {stored / 't.json'} (best-20-resident, {len(written)} classes)" in text
    assert 1 < len(written) <= 20
    assert main([*map(str, words), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["table"]["classes"][-1]["size"] == 32768
    assert (value["beats_stock"], value["loses_on"], value["stock"]) == (True, [], "c16")
    assert set(value["evaluation"]["tables"]) == {"go", "c16", "best-20-resident"}
    assert value["held_out"][0]["saved_bytes"] == sum(value["held_out"][0]["split"].values())
    assert [one["recording"] for one in value["held_out"]] == ["b.swt"]
    assert value["written"] == str(stored / "t.json")


def test_command_where_no_table_beats_the_stock_table(
    stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1 and no file; with --anyway exit 1 and the file. The figures are the ledger's."""
    monkeypatch.setattr(search, "FAMILIES", ())
    place = stored / "t.json"
    words = ["optimize", str(stored / "a.swt"), "--classes", "1", "-o", str(place)]
    words += ["--waste-percent", "100"]
    assert main(words) == 1
    text = capsys.readouterr().out
    assert "no table beats c16: best-1-resident loses " in text
    assert f"{place} was not written; --anyway writes best-1-resident all the same" in text
    assert not place.exists()
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["written"] is None
    assert not place.exists()
    assert main([*words, "--anyway", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["written"] == str(place) and found["beats_stock"] is False
    _build_asks_for_anyway(place, found["verdict"], capsys)
    words = ["compare", str(stored / "a.swt"), "--table", "c16", "--table", str(place), "--json"]
    assert main(words) == 0
    for ledger in json.loads(capsys.readouterr().out)["ledgers"]:
        row = found["evaluation"]["tables"][ledger["table"]]
        assert row["resident_bytes"] == ledger["resident_bytes"]
        assert row["waste_bytes"] == ledger["held_bytes"] - ledger["requested_bytes"]
        peak = found["evaluation"]["resident_bytes"][ledger["table"]]
        assert peak == ledger["peak_resident_bytes"]


def _build_asks_for_anyway(place: Path, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that neither the command nor the call builds a rejected table by default."""
    folder = place.with_name("built")
    words = ["build", "--table", str(place), "-o", str(folder), "--cc", "/nowhere/cc"]
    said = f"rejected by its evaluation ({verdict.rstrip('.')}); build it anyway with"
    assert main(words) == 2
    assert capsys.readouterr().err == f"spanwise: {place}: {said} anyway=True (--anyway)\n"
    assert main([*words, "--anyway"]) != 0
    assert "/nowhere/cc" in capsys.readouterr().err
    with pytest.raises(sw.InvalidError, match="rejected by its evaluation"):
        sw.build(str(place), folder, cc="/nowhere/cc")
    assert not folder.exists()


def test_command_draws_the_pareto_front(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = stored / "f.png"
    words = ["optimize", str(stored / "b.swt"), "--pareto", "--plot", str(picture), "--json"]
    words += ["--objective", "peak"]
    assert main(words) in (0, 1)
    pareto = json.loads(capsys.readouterr().out)["pareto"]
    assert {row["caches"] for row in pareto["rows"]} == {0, 1, 2, 4, 8, 16}
    assert picture.stat().st_size > 10_000


# --- cross-validation -----------------------------------------------------------------------------


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


def test_folds_that_cannot_be() -> None:
    one = stages(1040, 1040, 1040)
    for options, message in (
        ({"folds": 1}, "folds 1: must be at least 2"),
        ({"folds": -3}, "folds -3: must be at least 2"),
        ({"folds": 4000}, "3,000 operations cannot be cut into 4000 parts; give fewer folds"),
        ({"folds": 2, "weights": [1]}, "weights and folds: a held-out part has no weight"),
    ):
        with pytest.raises(sw.InvalidError, match=message):
            sw.optimize(one, **options)

# SPDX-License-Identifier: Apache-2.0
"""The table that the optimizer proposes: its rules, its file, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.optimizer import search
from spanwise.optimizer.pareto import peak_ledger
from spanwise.optimizer.profile import profile_of

from tests.python.helpers import (
    ALLOC,
    ROOT,
    make_ops,
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


def test_command_of_a_table_that_loses_on_held_out_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FAMILIES", ())
    for name, size in (("fitted", 496), ("unseen", 513)):
        ops = make_ops(*((ALLOC, i, size) for i in range(2000)))
        sw.Recording.from_ops(ops, tmp_path / f"{name}.swt")
    fit = ["optimize", str(tmp_path / "fitted.swt"), "--classes", "2", "--partial", "0"]
    fit += ["--waste-percent", "100"]
    fit += ["-o", str(tmp_path / "t.json")]
    assert main([*fit, "--holdout", str(tmp_path / "unseen.swt")]) == 1
    text = capsys.readouterr().out
    assert "no table beats c16 on every held-out recording" in text
    assert ": best-2-resident loses " in text and " on unseen.swt, held out.\n" in text
    assert not (tmp_path / "t.json").exists()
    assert main([*fit, "--holdout", str(tmp_path / "unseen.swt"), "--anyway", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"].endswith(" on unseen.swt, held out.")
    _build_asks_for_anyway(tmp_path / "t.json", found["verdict"], capsys)
    (tmp_path / "t.json").unlink()
    assert main(fit) == 0
    assert (tmp_path / "t.json").exists()


def test_command_draws_the_pareto_front(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = stored / "f.png"
    words = ["optimize", str(stored / "b.swt"), "--pareto", "--plot", str(picture), "--json"]
    words += ["--objective", "peak"]
    assert main(words) in (0, 1)
    pareto = json.loads(capsys.readouterr().out)["pareto"]
    assert {row["caches"] for row in pareto["rows"]} == {0, 1, 2, 4, 8, 16}
    assert picture.stat().st_size > 10_000


def test_command_leaves_no_file_behind_an_error(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["optimize", str(stored / "a.swt"), "--classes", "0", "-o", str(stored / "t.json")]
    assert main(words) == 2
    assert capsys.readouterr().err == "spanwise: classes 0: must be 1 to 255\n"
    assert not (stored / "t.json").exists()
    place = stored / "none/t.json"
    assert main(["optimize", str(stored / "a.swt"), "-o", str(place)]) == 2
    assert (
        capsys.readouterr().err
        == f"spanwise: {place}: cannot be written: No such file or directory\n"
    )
    assert sorted(path.name for path in stored.iterdir()) == ["a.swt", "b.swt"]

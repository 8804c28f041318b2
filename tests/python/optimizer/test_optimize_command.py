# SPDX-License-Identifier: Apache-2.0
"""`spanwise optimize`: output, files, exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.recordings.recorder import run_recorded

from tests.python.helpers import (
    ALLOC,
    make_ops,
    needs_recorder,
)


@pytest.fixture
def stored(program: sw.Recording, other: sw.Recording, tmp_path: Path) -> Path:
    sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    sw.Recording.from_ops(other.ops[:8000], tmp_path / "b.swt")
    return tmp_path


def test_command(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", stored / "a.swt", "--holdout", stored / "b.swt", "--classes", "20"]
    words += ["-o", stored / "t.json"]
    assert main([str(word) for word in words]) == 0
    text = capsys.readouterr().out
    assert "best-20-peak holds least: " in text
    assert "; on b.swt, held out, best-20-peak holds " in text
    assert f"wrote {stored / 't.json'} (best-20-peak, 20 classes)" in text
    assert len(sw.SizeClassTable.named(str(stored / "t.json"))) == 20
    assert main([*map(str, words), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["table"]["classes"][-1] == {"size": 32768, "pages": 4}
    assert (value["beats_stock"], value["loses_on"], value["stock"]) == (True, [], "c16")
    assert set(value["trial"]["tables"]) == {"go", "c16", "best-20-peak"}
    assert [trial["recording"] for trial in value["held_out"]] == ["b.swt"]
    assert value["written"] == str(stored / "t.json")


def test_command_where_the_stock_table_stays(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1 and no file; with --anyway exit 1 and the file. The figures are the ledger's."""
    place = stored / "t.json"
    words = ["optimize", str(stored / "a.swt"), "--classes", "1", "-o", str(place)]
    assert main(words) == 1
    text = capsys.readouterr().out
    assert "c16 stays: it holds " in text
    assert f"{place} was not written; --anyway writes best-1-peak nevertheless" in text
    assert not place.exists()
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["written"] is None
    assert not place.exists()
    assert main([*words, "--anyway", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == str(place) and told["beats_stock"] is False
    for table in ("c16", str(place)):
        assert main(["ledger", str(stored / "a.swt"), "--table", table, "--json"]) == 0
        ledger = json.loads(capsys.readouterr().out)
        row = told["trial"]["tables"][ledger["table"]]
        assert row["held_bytes"] == ledger["held_bytes"]
        assert row["waste_bytes"] == ledger["held_bytes"] - ledger["requested_bytes"]


def test_command_of_a_table_that_what_was_held_out_condemns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, size in (("fitted", 1000), ("unseen", 513)):
        ops = make_ops(*((ALLOC, i, size) for i in range(2000)))
        sw.Recording.from_ops(ops, tmp_path / f"{name}.swt")
    fit = ["optimize", str(tmp_path / "fitted.swt"), "--classes", "2", "--partial", "0"]
    fit += ["-o", str(tmp_path / "t.json")]
    assert main([*fit, "--holdout", str(tmp_path / "unseen.swt")]) == 1
    text = capsys.readouterr().out
    assert "best-2-peak holds least: " in text
    assert "; on unseen.swt, held out, best-2-peak loses: c16 holds " in text
    assert not (tmp_path / "t.json").exists()
    assert main(fit) == 0
    assert (tmp_path / "t.json").exists()


@needs_recorder()
def test_command_on_a_real_program_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One class is worse than c16 for every program; of 24 classes the ledger decides."""
    place, table = tmp_path / "json.swt", tmp_path / "t.json"
    with (tmp_path / "said").open("w") as said:
        run_recorded([sys.executable, "-c", "import json"], place, stdout=said)
    words = ["optimize", str(place), "-o", str(table)]
    assert main([*words, "--classes", "1"]) == 1
    assert "c16 stays" in capsys.readouterr().out and not table.exists()
    status = main(words)
    text = capsys.readouterr().out
    assert table.exists() == (status == 0)
    assert main([*words, "--anyway"]) == status
    recording = sw.Recording.open(place)
    ours, stock = (recording.ledger(one).held_bytes for one in (str(table), "c16"))
    assert (ours < stock) == (status == 0) == ("holds least" in text)


def test_command_draws_the_frontier(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = stored / "f.png"
    words = ["optimize", str(stored / "b.swt"), "--frontier", "--plot", str(picture), "--json"]
    assert main(words) in (0, 1)
    frontier = json.loads(capsys.readouterr().out)["frontier"]
    assert {row["caches"] for row in frontier["rows"]} == {0, 1, 2, 4, 8, 16}
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

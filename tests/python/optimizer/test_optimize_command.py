# SPDX-License-Identifier: Apache-2.0
"""`spanwise optimize`: output, files, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.optimizer import search

from tests.python.helpers import (
    ALLOC,
    make_ops,
)


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
    assert f"{place} was not written; --anyway writes best-1-resident nevertheless" in text
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

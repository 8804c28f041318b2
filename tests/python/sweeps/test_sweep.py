# SPDX-License-Identifier: Apache-2.0
"""Sweeps: rows, answers, failures, the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.sweeps import tasks
from spanwise.sweeps.sweep import make_plan
from spanwise.sweeps.tasks import LEDGER_FIELDS, STATS_FIELDS

from tests.python.helpers import random_ops, spanwise
from tests.python.sweeps.sweep_tools import TABLES, settled

# --- what a row says ------------------------------------------------------------------------------

KNOBS = sw.HeapOptions(placement="lasting", batch_spans=2)


@pytest.mark.parametrize("at", ["peak", "peak-resident", "end", 0.5, "250ms"])
def test_rows_are_the_ledgers(files: list[str], at: str | float) -> None:
    inside = sw.Recording.from_ops(random_ops(3, 2500))
    recordings = [*(sw.Recording.open(path) for path in files), inside]
    found = sw.sweep(recordings, TABLES, at=at, options=KNOBS, workers=1)
    assert not found.failures
    assert [(r["recording"], r["table"]) for r in found] == [
        (one.name, table) for one in recordings for table in TABLES
    ]
    for i, row in enumerate(found):
        recording = recordings[i // len(TABLES)]
        ledger = recording.ledger(row["table"], at, options=KNOBS)
        assert {n: row[n] for n in LEDGER_FIELDS} == {n: getattr(ledger, n) for n in LEDGER_FIELDS}
        assert {n: row[n] for n in STATS_FIELDS} == {
            n: getattr(ledger.stats, n) for n in STATS_FIELDS
        }
        assert row["events"] == len(recording)


def test_the_same_twice_is_done_once(files: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    sw.SizeClassTable.custom(
        [(c["size_bytes"], c["span_bytes"] // 8192) for c in sw.SizeClassTable.go().classes],
        name="mine",
    ).to_json(copy)
    found = sw.sweep([files[0], files[0]], ["go", str(copy), "go"])
    assert len(found) == 1
    assert found.notes == ("mine is the same table as go: omitted",)


def test_recordings_of_one_name_stay_apart(files: list[str]) -> None:
    pair = [sw.Recording.from_ops(random_ops(seed, 500)) for seed in (5, 6)]
    found = sw.sweep(pair, ["go", "pow2"])
    assert len({row["recording"] for row in found}) == 2
    assert found.ranking()[0][1] == sum(
        r["peak_resident_bytes"] for r in found if r["table"] == found.best().name
    )


# --- failures -------------------------------------------------------------------------------------


def test_failures_stay_as_rows(files: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.swt"
    raw = bytearray(Path(files[0]).read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    damaged.write_bytes(raw)
    missing, wrong = str(tmp_path / "missing.json"), tmp_path / "wrong.json"
    wrong.write_text("{", encoding="utf-8")
    found = sw.sweep([damaged, *files, tmp_path / "absent.swt"], ["go", missing, str(wrong), "c16"])
    fine = [row for row in found if row["error"] is None]
    assert settled(fine) == settled(sw.sweep(files, ["go", "c16"]))
    of = {(row["recording"], row["table"]): row["error"] for row in found.failures}
    assert "byte" in of["damaged.swt", "go"] or "offset" in of["damaged.swt", "go"]
    assert any(name.endswith("absent.swt") for name, _ in of)
    assert "No such file" in of[Path(files[0]).name, missing]
    assert "wrong.json" in of[Path(files[0]).name, str(wrong)]
    assert found.best().name in ("go", "c16")
    assert f"{len(found.failures)} rows failed" in str(found)


def test_another_file_at_the_path_is_refused(files: list[str]) -> None:
    plan = make_plan(files[0], ["go", "c16"], "peak", False, None)
    plan.recordings[0]["sha256"] = "0" * 64
    rows = [r for task in plan.tasks() for r in tasks.run_task(task.to_json())]
    assert len(rows) == 2
    assert all("put the same file there" in row["error"] for row in rows)


def test_a_worker_with_another_spanwise_is_refused(files: list[str]) -> None:
    plan = make_plan(files[0], "go", "peak", False, None)
    (task,) = plan.tasks()
    text = task.to_json().replace(f'"library": "{sw.__version__}"', '"library": "0.0.1"')
    (row,) = tasks.run_task(text)
    assert "the sweep 0.0.1" in row["error"]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"recordings": []}, sw.InvalidError, "no recording"),
        ({"tables": []}, sw.InvalidError, "no table"),
        ({"tables": ["nonsense"]}, sw.InvalidError, "unknown table 'nonsense'"),
        ({"tables": [3]}, TypeError, "table must be"),
        ({"recordings": [3]}, TypeError, "recording must be"),
        ({"executor": "abacus"}, TypeError, "executor must be"),
        ({"workers": 0}, sw.InvalidError, "workers 0"),
        ({"at": "noon"}, sw.InvalidError, "moment 'noon'"),
        ({"options": {"placement": "lifo"}}, TypeError, "options must be HeapOptions"),
        ({"recordings": "absent.swt"}, sw.RecordingIOError, "absent.swt"),
        ({"tables": "absent.json"}, OSError, "absent.json"),
    ],
)
def test_wrong_arguments(
    files: list[str], change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        sw.sweep(**{"recordings": files, "tables": "go", **change})


# --- answers --------------------------------------------------------------------------------------


def test_answers(files: list[str]) -> None:
    found = sw.sweep(files, TABLES)
    rows = found.array
    assert rows.shape == (10,) and rows["ok"].all()
    assert rows["held_bytes"].tolist() == [row["held_bytes"] for row in found]
    ranking = found.ranking("waste_bytes")
    sums = {t: int(rows["waste_bytes"][rows["table"] == t].sum()) for t in TABLES}
    assert dict(ranking) == sums
    assert found.best("waste_bytes") == sw.SizeClassTable.named(min(sums, key=sums.__getitem__))
    one = found.ranking(recording=found[0]["recording"])
    assert dict(one) == {row["table"]: row["peak_resident_bytes"] for row in found[:5]}
    with pytest.raises(sw.InvalidError, match="field 'size' is unknown"):
        found.best("size")
    with pytest.raises(sw.InvalidError, match="recording 'x'"):
        found.best(recording="x")
    assert "sweep of 2 recordings under 5 tables at peak" in repr(found)
    assert "<table>" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["best"] == found.best().name
    assert len(found.plot().get_yticklabels()) == 5
    failed = sw.Sweep([{**found[0], "error": "x", "held_bytes": None, "seconds": None}], ())
    assert not failed.array["ok"][0] and np.isnan(failed.array["seconds"][0])
    with pytest.raises(sw.StateError, match="no table"):
        failed.best()


def test_who_refuses_is_not_best(files: list[str]) -> None:
    found = sw.sweep(files[0], ["go", "pow2"])
    worse = {**found[1], "failed": 1, "held_bytes": 0, "peak_resident_bytes": 0}
    specs = [tasks.table_spec(sw.SizeClassTable.named(name)) for name in ("go", "pow2")]
    assert sw.Sweep([found[0], worse], specs).best().name == "go"


def test_progress_bar(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sw.sweep(files, "go")
    assert capsys.readouterr().err == ""  # no terminal
    sw.sweep(files, "go", progress=True)
    assert "2/2" in capsys.readouterr().err
    sw.sweep([files[0], "absent.swt"], ["go", "c16"], progress=True)
    assert "4/4" in capsys.readouterr().err  # failed rows are rows


def test_to_pandas(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = sw.sweep(files[0], "go")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sw.UnsupportedError, match="pandas is not installed"):
        found.to_pandas()


# --- the command ----------------------------------------------------------------------------------


def test_command(files: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        sw.SizeClassTable.custom([16, 64, ord(name) * 16, 8192], name=name).to_json(
            tmp_path / f"{name}.json"
        )
    path = tmp_path / "s.jsonl"
    words = ["sweep", *files, "--table", "go", "--table", str(tmp_path / "*.json")]
    words += ["-o", str(path)]
    done = spanwise(*words)
    assert done.returncode == 0, done.stderr
    assert "sweep of 2 recordings under 3 tables" in done.stdout
    assert "6 rows in" in done.stderr
    again = spanwise(*words, "--json", "--plot", tmp_path / "s.png", "--by", "roundup_bytes")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["rows"]) == 6
    assert (tmp_path / "s.png").stat().st_size > 1000


def test_command_with_failures_and_bad_input(files: list[str], tmp_path: Path) -> None:
    words: list[str]
    failed = spanwise("sweep", files[0], "--table", "go", "--table", tmp_path / "absent.json")
    assert failed.returncode == 1 and "failed:" in failed.stdout
    for words in (
        ["absent.swt"],
        [files[0], "--table", "nonsense"],
        [files[0], "--table", "absent*.json"],
        [files[0], "--executor", "abacus"],
        [files[0], "--by", "nonsense"],
        [files[0], "--workers", "0"],
        [files[0], "-o", files[1]],
    ):
        bad = spanwise("sweep", *words, cwd=tmp_path)
        assert bad.returncode == 2, words
        assert bad.stderr.startswith("spanwise: ") and bad.stderr.count("\n") == 1, words


def test_command_without_dask(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", files[0], "--executor", "dask"]) == 2
    assert "pip install 'spanwise[cluster]'" in capsys.readouterr().err

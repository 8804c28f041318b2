# SPDX-License-Identifier: Apache-2.0
"""The loop: recorded, accounted, optimised, built, and the program measured beside predicted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.builds.build import Build
from spanwise.commands import demo
from spanwise.ledger.parts import PARTS
from spanwise.measure import closed_loop
from spanwise.measure.closed_loop import (
    ALIGN,
    CLASSES,
    OBJECTIVE,
    Loop,
    Measured,
    measure,
    same_environment,
)
from spanwise.measure.process_ledger import ProcessLedger, read_process_ledger
from spanwise.measure.running import MALLOC_FACE
from spanwise.recordings.finish import finish
from spanwise.recordings.recorder import run_recorded

from tests.python.helpers import (
    ALLOC,
    make_ops,
    needs_python_malloc,
    needs_recorder,
    python,
    random_ops,
    spanwise,
)

RULES = ("--classes", str(CLASSES), "--objective", OBJECTIVE, "--align", str(ALIGN))
"""Of the demo's table, for `spanwise optimize`."""

PROGRAM = """\
import json, sqlite3
rows = [(i, "x" * (i % 60)) for i in range(10000)]
db = sqlite3.connect(":memory:")
db.execute("create table t(a, b)")
db.executemany("insert into t values (?, ?)", rows)
assert len(json.loads(json.dumps(db.execute("select * from t order by b").fetchall()))) == 10000
"""


@pytest.mark.slow
@needs_recorder()
@needs_python_malloc()
def test_demo(tmp_path: Path) -> None:
    """The whole loop: recorded, accounted, optimised, built, measured."""
    done = spanwise("demo", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for name in ("python", "tables"):
        assert list((tmp_path / "out").glob(f"{name}*.png"))
    for picture in (tmp_path / "out").glob("*.png"):
        assert picture.stat().st_size > 10_000
    lines = done.stdout.splitlines()
    assert lines[0].startswith("== python3 (")
    assert done.stdout.count("free pages") >= 1
    last, where = lines[-2:]
    assert where.endswith(str(tmp_path / "out/python.html"))
    assert 50_000 < (tmp_path / "out/python.html").stat().st_size < 3 << 20
    assert last.startswith("python3 wasted ")
    found = json.loads(spanwise("optimize", tmp_path / "out/python.swt", *RULES, "--json").stdout)
    stays = "no table that was found holds less, so c16 stays" in last
    assert "would waste" in last and stays == (not found["beats_stock"])
    assert last.endswith(".")
    assert sw.Recording.open(tmp_path / "out/python.swt").summary.allocs > 100_000
    if any(map(shutil.which, ("cc", "gcc", "clang"))):
        assert "built and used" in last and "python3 held" in last and "its peak RSS was" in last
        best = sw.SizeClassTable.from_json(tmp_path / "out/best.json")
        assert Build.open(tmp_path / "out/best").table.hash == best.hash


@pytest.mark.slow
@needs_recorder()
def test_demo_json_without_a_compiler(tmp_path: Path) -> None:
    done = spanwise("demo", "--json", "-o", tmp_path, env={"PATH": str(tmp_path), "CC": ""})
    value: dict[str, Any] = json.loads(done.stdout)
    loop = value.pop("loop")
    assert Path(value.pop("report")).is_file()
    for comparison in value.values():
        for ledger in comparison["ledgers"]:
            assert sum(ledger[part] for part in PARTS) == ledger["held_bytes"]
    assert loop["built"] is False and "no C compiler was found" in loop["why_not"]
    for face in (loop["stock"], loop["best"]):
        assert face["measured"] is face["error"] is None
        assert face["predicted_peak_held_bytes"] >= face["predicted"]["held_bytes"]


def test_the_loop_in_one_sentence() -> None:
    """What is said when a table saves nothing, and when it was run."""
    recording = sw.Recording.from_ops(random_ops(1, 500))
    ledger = recording.ledger("c16")
    loop = Loop("ls", Measured(ledger), Measured(ledger), 67, "no C compiler was found")
    said = loop.sentence()
    stays = (
        "no table that was found holds less, so c16 stays (c16, 67 classes, would waste as much)"
    )
    assert said.startswith("ls wasted ") and f"; {stays}; " in said
    assert said.endswith("nothing was measured: no C compiler was found.")
    assert [title for title, _, _ in loop.columns()] == ["c16", "c16"]
    held = Measured(ledger).predicted_bytes
    runs = tuple(_told(ledger, held + more) for more in (4096, -8192, 8192))
    measured = Measured(ledger, runs)
    assert measured.measured_bytes == held + 4096
    assert measured.error == pytest.approx(4096 / held)
    assert [title for title, _, _ in Loop("ls", measured, measured, 67).columns()] == [
        "c16",
        "measured",
    ] * 2
    assert "built and used all the same, ls held " in Loop("ls", measured, measured, 67).sentence()


def test_peak_rss_in_one_sentence() -> None:
    """A difference is told only where all runs of one are below all runs of the other."""
    ledger = sw.Recording.from_ops(random_ops(1, 500)).ledger("c16")
    mib = 1 << 20

    def said(before: tuple[int, ...], after: tuple[int, ...]) -> str:
        runs = (_told(ledger, 5 * mib),)
        stock, best = (Measured(ledger, runs, rss) for rss in (before, after))
        return Loop("ls", stock, best, 67).sentence().rpartition("; ")[2]

    assert said((7 * mib, 8 * mib, 9 * mib), (4 * mib, 5 * mib, 6 * mib)) == (
        "its peak RSS was 5.0 MiB instead of 8.0 MiB (medians of 3 runs each)."
    )
    assert said((7 * mib, 8 * mib), (6 * mib, 7 * mib)) == (
        "its peak RSS was no different (6.0 MiB to 7.0 MiB, and before 7.0 MiB to 8.0 MiB)."
    )
    assert "RSS" not in said((), ())


@pytest.mark.parametrize("table", ["go", sw.SizeClassTable.custom([(32768, 4)], name="one")])
def test_the_loop_names_the_winner(table: sw.SizeClassTable | str) -> None:
    """Of a thousand objects of 24 bytes go holds less than c16, which has no such class."""
    ops = make_ops(*((ALLOC, i, 24) for i in range(1000)))
    recording = sw.Recording.from_ops(ops)
    before, after = (recording.ledger(one) for one in ("c16", table))
    loop = Loop("ls", Measured(before), Measured(after), 67, "no compiler")
    assert loop.beats_stock == (table == "go") == (after.held_bytes < before.held_bytes)
    said = loop.sentence()
    if table == "go":
        assert "; go, 67 classes, would waste " in said and " less; " in said
    else:
        assert "; no table that was found holds less, so c16 stays (one, 67 classes, " in said
        assert " beyond that); " in said and "less;" not in said
    assert " more" not in said


def test_the_demo_goes_on_where_the_stock_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One class of 32 KiB for everything: the table is written and would be built."""
    ops = make_ops(*((ALLOC, i, 48) for i in range(5000)))
    monkeypatch.setattr(closed_loop, "CLASSES", 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    loop = demo._close_loop(sw.Recording.from_ops(ops), tmp_path)
    assert "c16 stays: it holds " in capsys.readouterr().err
    assert sw.SizeClassTable.from_json(tmp_path / "best.json").largest_bytes == 32768
    said = loop.sentence()
    assert "; no table that was found holds less, so c16 stays (best-1-peak, 1 class, would" in said
    assert said.endswith("no C compiler was found; install gcc or clang, or name one with --cc.")
    assert loop.to_dict()["beats_stock"] is False


def _told(ledger: sw.Ledger, held: int) -> ProcessLedger:
    return ProcessLedger(1, "ls", ledger, ledger, held, held, tracked=True, limit_bytes=0)


@needs_recorder()
def test_the_program_of_the_loop_must_succeed() -> None:
    ledger = sw.Recording.from_ops(random_ops(1, 50)).ledger("c16")
    with pytest.raises(sw.ProgramError, match="ended with 3 when run again"):
        measure([sys.executable, "-c", "raise SystemExit(3)"], ledger, 1)


@needs_recorder()
@needs_python_malloc()
def test_a_recorded_run_holds_what_its_recording_predicts(tmp_path: Path) -> None:
    """Recorder and malloc face in one run, so of the very same calls: equal to the byte."""
    raw, told = tmp_path / "raw", tmp_path / "told.json"
    libraries = (_lib.native_library(name) for name in ("libspanwise-record.so", MALLOC_FACE))
    variables = {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "PYTHONMALLOC": "malloc",
        "SPANWISE_RECORD_FILE": str(raw),
        "SPANWISE_TRACKED": "1",
        "SPANWISE_LEDGER": str(told),
    }
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **variables}, check=True)
    finish(raw, tmp_path / "a.swt")
    predicted = sw.Recording.open(tmp_path / "a.swt").ledger("c16").stats
    process = read_process_ledger(told)
    assert predicted is not None and process.stats is not None
    assert process.peak_held_bytes == predicted.peak_held_bytes
    assert process.stats.peak_requested_bytes == predicted.peak_requested_bytes


@needs_recorder()
def test_runs_of_the_loop_have_the_same_environment(tmp_path: Path) -> None:
    """The same names, under the recorder and under the malloc face: python copies it all."""
    env = same_environment()
    show = [sys.executable, "-c", "import os; print(*os.environ)"]
    with (tmp_path / "names").open("w") as file:
        run_recorded(show, tmp_path / "a.swt", env=env, stdout=file)
    told = (
        "import spanwise as sw; from spanwise.measure.closed_loop import same_environment as env; "
    )
    done = python("-c", f"{told}sw.run({show!r}, env=env())")
    names = (tmp_path / "names").read_text().split()
    assert sorted(done.stdout.split()) == sorted(names) and "SPANWISE_RECORD_PID" in names

# SPDX-License-Identifier: Apache-2.0
"""The closed loop: record, fit, build, measure; predictions and measurements."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw
from install_tools import quick_compiler
from spanwise import _format, _lib
from spanwise.builds.folder import Build
from spanwise.commands import demo
from spanwise.measure import closed_loop
from spanwise.measure.closed_loop import (
    ALIGN,
    CLASSES,
    OBJECTIVE,
    Loop,
    Measured,
    measure,
)
from spanwise.measure.running import MALLOC_LIBRARY, ProcessLedger, read_process_ledger
from spanwise.optimizer import search
from spanwise.recordings.finish import finish

from tests.python.helpers import (
    ALLOC,
    make_ops,
    needs_python_malloc,
    needs_recorder,
    python,
    random_ops,
    spanwise,
)

CC = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
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


# The demo with smaller jobs, and with one run where it takes the median of some; in full as it is.
SHORT_DEMO = """\
import sys
from spanwise.__main__ import main
from spanwise.commands import demo
demo.RUNS = demo.ROUNDS = 1
assert demo.PYTHON_JOB.count("12000") == 2
demo.PYTHON_JOB = demo.PYTHON_JOB.replace("12000", "1500")
c_source = demo.c_source
demo.c_source = lambda lines: c_source(lines // 10)
sys.exit(main(["demo", *sys.argv[1:]]))
"""


def run_demo(*words: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    if os.environ.get("SPANWISE_FULL_TESTS") == "1":
        return spanwise("demo", *words, env=env)
    return python("-c", SHORT_DEMO, *words, env=env)


@pytest.mark.slow
@needs_recorder()
@needs_python_malloc()
def test_demo(tmp_path: Path) -> None:
    """The whole loop: recorded, accounted, optimised, built, measured."""
    compiler = {"CC": str(quick_compiler(tmp_path / "cc"))} if CC else {}
    done = run_demo("-o", tmp_path / "out", env=compiler)
    assert done.returncode == 0, done.stderr
    for name in ("python", "tables"):
        assert list((tmp_path / "out").glob(f"{name}*.png"))
    for picture in (tmp_path / "out").glob("*.png"):
        assert picture.stat().st_size > 10_000
    lines = done.stdout.splitlines()
    assert lines[0].startswith("== python3 (")
    assert done.stdout.count("free pages") >= 1
    where, last = lines[-2:]
    assert where.endswith(str(tmp_path / "out/python.html"))
    assert 50_000 < (tmp_path / "out/python.html").stat().st_size < 3 << 20
    assert last.startswith("python3 would have ")
    found = json.loads(spanwise("optimize", tmp_path / "out/python.swt", *RULES, "--json").stdout)
    assert ("; no table beats c16" in last) == (not found["holds"])
    assert found["verdict"].rstrip(".") in last
    assert last.endswith(".")
    assert sw.Recording.open(tmp_path / "out/python.swt").summary.allocs > 12_000
    if CC:
        measured = last.rpartition(". With it built and used")[2]
        assert ", python3 held " in measured
        baseline = measured.rpartition(". The peak RSS of python3 was ")[2]
        assert re.fullmatch(
            r"[\d.]+ MiB without spanwise, [\d.]+ MiB under c16 and [\d.]+ MiB under \S+"
            r" \(medians of \d interleaved runs?\): "
            r"(spanwise saves|no saving, spanwise costs|no difference, the) [^:]+\.",
            baseline,
        )
        best = sw.SizeClassTable.from_json(tmp_path / "out/best.json")
        assert "fitted" in done.stdout and "glibc" in done.stdout
        assert (tmp_path / "out/python-bench.png").is_file()
        assert Build.open(tmp_path / "out/best").table.hash == best.hash


def test_the_loop_in_one_sentence() -> None:
    """The sentence if a table saves nothing, and after it was run."""
    recording = sw.Recording.from_ops(random_ops(1, 500))
    ledger = recording.ledger("c16")
    kept = (67, False, "no table beats c16.")
    loop = Loop("ls", Measured(ledger), Measured(ledger), *kept, "no C compiler was found")
    said = loop.sentence()
    most, limit = ledger.peak_resident_bytes, recording.summary.peak_requested_bytes
    assert most is not None
    assert said.startswith(
        f"ls would have a peak resident of {_format.size(most)} under c16; perfect packing"
        f" would save {_format.size(most - limit)} ("
    )
    assert "; no table beats c16. " in said
    assert said.endswith(" It was not built, so nothing was measured: no C compiler was found.")
    assert [title for title, _, _ in loop.columns()] == ["c16", "c16"]
    held = Measured(ledger).predicted_bytes
    runs = tuple(_told(ledger, held + more) for more in (4096, -8192, 8192))
    measured = Measured(ledger, runs)
    assert measured.measured_bytes == held + 4096
    assert measured.error == pytest.approx(4096 / held)
    assert [title for title, _, _ in Loop("ls", measured, measured, *kept).columns()] == [
        "c16",
        "measured",
    ] * 2
    assert (
        "built and used all the same, ls held " in Loop("ls", measured, measured, *kept).sentence()
    )


def test_what_is_outside_of_the_heap_has_a_row() -> None:
    """The row has the median of the runs, or nothing without measured runs."""
    ledger = sw.Recording.from_ops(random_ops(1, 500)).ledger("c16")
    runs = (_told(ledger, 5 << 20),)
    measured = Measured(ledger, runs, outside=(7000, 9000, 8000))
    loop = Loop("ls", measured, Measured(ledger), 67, True, "best saves much.")
    (row,) = (line for line in str(loop).splitlines() if line.startswith("  outside the heap  "))
    assert row.split()[3:] == ["-", "8,000", "-"]
    assert loop.to_dict()["stock"]["outside_bytes"] == 8000


def test_the_last_sentence_compares_with_the_program_without_spanwise() -> None:
    """By hand. A difference is claimed only where all runs of one are below all of the other."""
    ledger = sw.Recording.from_ops(random_ops(1, 500)).ledger("c16")
    mib = 1 << 20

    def said(plain: tuple[int, ...], stock: tuple[int, ...], best: tuple[int, ...]) -> str:
        runs = (_told(ledger, 5 * mib),)
        before, after = (
            Measured(ledger, runs, tuple(mib * one for one in rss)) for rss in (stock, best)
        )
        plain = tuple(mib * one for one in plain)
        loop = Loop("ls", before, after, 67, True, "best saves much.", plain_rss=plain)
        assert loop.to_dict()["plain_peak_rss_bytes"] == list(plain)
        whole = loop.sentence()
        assert " would have a peak resident of " in whole and "; best saves much. With it" in whole
        first, _, last = whole.partition(" The peak RSS of ls was ")
        assert first.endswith(").") and ", ls held 5.0 MiB at most instead of" in first
        return last

    medians = "10.0 MiB without spanwise, {} MiB under c16 and {} MiB under c16 (medians of 3"
    for best, reported in (
        ((7, 8, 8), "8.0|spanwise saves 2.0 MiB (20.0%)."),
        ((12, 13, 14), "13.0|no saving, spanwise costs 3.0 MiB (30.0%)."),
        ((10, 11, 11), "11.0|no difference, the ranges of the runs overlap."),
        ((8, 9, 9), "9.0|no difference, the ranges of the runs overlap."),
    ):
        found, _, verdict = reported.partition("|")
        wanted = f"{medians.format('12.0', found)} interleaved runs): {verdict}"
        assert said((9, 10, 11), (11, 12, 30), best) == wanted
    assert said((), (7, 8), (6, 7)) == said((9,), (), ()) == ""


def test_the_demo_continues_where_no_table_beats_the_stock_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One class of 32 KiB for everything: the table is written and would be built."""
    ops = make_ops(*((ALLOC, i, 48) for i in range(5000)))
    monkeypatch.setattr(closed_loop, "CLASSES", 1)
    monkeypatch.setattr(closed_loop, "WASTE_PERCENT", 100)
    monkeypatch.setattr(search, "FAMILIES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    loop, found, runs = demo._close_loop(sw.Recording.from_ops(ops), tmp_path)
    reported = capsys.readouterr().err
    assert "no table beats c16: best-1-resident loses " in reported
    assert sw.SizeClassTable.from_json(tmp_path / "best.json").largest_bytes == 32768
    said = loop.sentence()
    assert "; no table beats c16: best-1-resident loses " in said
    assert said.endswith("no C compiler was found; install gcc or clang, or name one with --cc.")
    assert loop.to_dict()["wins"] is False and not found.holds and runs is None


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
    """Recorder and malloc library in one run, so of the very same calls: equal to the byte."""
    raw, reported = tmp_path / "raw", tmp_path / "reported.json"
    libraries = (_lib.native_library(name) for name in ("libspanwise-record.so", MALLOC_LIBRARY))
    variables = {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "PYTHONMALLOC": "malloc",
        "SPANWISE_RECORD_FILE": str(raw),
        "SPANWISE_TRACKED": "1",
        "SPANWISE_LEDGER": str(reported),
    }
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **variables}, check=True)
    finish(raw, tmp_path / "a.swt")
    predicted = sw.Recording.open(tmp_path / "a.swt").ledger("c16").stats
    process = read_process_ledger(reported)
    assert predicted is not None and process.stats is not None
    assert process.peak_held_bytes == predicted.peak_held_bytes
    assert process.stats.peak_requested_bytes == predicted.peak_requested_bytes

# SPDX-License-Identifier: Apache-2.0
"""Replays with real memory: the model's ledger, determinism, threads, bad input; the demo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from install_tools import quick_compiler
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.measure.replays import PROGRAM
from spanwise.measure.running import MALLOC_LIBRARY, read_process_ledger
from spanwise.recordings.finish import finish

from tests.python.helpers import (
    ALLOC,
    FREE,
    REALLOC,
    make_ops,
    needs_python_malloc,
    needs_recorder,
    python,
    random_ops,
    spanwise,
)

try:
    _lib.native_library(PROGRAM)
except sw.UnsupportedError as missing:
    pytest.skip(str(missing), allow_module_level=True)

FAST = {"drain": (), "samples": 16}
TABLES = ("c16", "go", "pow2", "geometric-1.25")


def short_replay(
    ops: NDArray[np.void], allocator: str = "spanwise", **options: object
) -> sw.Replay:
    return sw.replay(sw.Recording.from_ops(ops), allocator, **{**FAST, **options})  # type: ignore[arg-type]


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("at", ["peak", "end"])
def test_tracked_heap_equals_the_simulator_to_the_byte(table: str, at: str) -> None:
    for seed, threads in ((1, 1), (2, 4)):
        recording = sw.Recording.from_ops(random_ops(seed, 6000, threads=threads))
        check = sw.check_ledger(recording, table, at)
        assert check.different == {}
        assert check.measured["held_bytes"] > check.measured["requested_bytes"] > 0
        assert "equal to the byte" in str(check)


def test_a_difference_would_be_seen() -> None:
    check = sw.check_ledger(sw.Recording.from_ops(random_ops(3, 500, threads=1)))
    real = {**check.measured, "cached_bytes": check.measured["cached_bytes"] + 8}
    other = sw.LedgerCheck(real, check.model)
    assert list(other.different) == ["cached_bytes"]
    assert "NOT equal" in str(other) and other.to_dict()["equal"] is False


# --- what is measured -----------------------------------------------------------------------------


def test_the_ideal_allocator_has_one_thread() -> None:
    """Its threads' operations all done by one need less than with a cache for each thread."""
    ops = random_ops(6, 4000, threads=4)
    alone = ops.copy()
    alone["thread"] = 0
    most, ideal = (
        sw.Recording.from_ops(one).ledger("c16").peak_resident_bytes for one in (ops, alone)
    )
    assert short_replay(ops).ideal_bytes == ideal
    assert ideal is not None and most is not None and ideal < most


def test_samples_follow_the_recording() -> None:
    ops = random_ops(4, 5000, threads=1)
    seen = short_replay(ops, repeat=2, samples=50)
    assert (seen.ops, seen.threads, seen.crossings, seen.failed) == (5000, 1, 0, 0)
    rows = seen.samples
    live = np.cumsum(_live_changes(ops))
    assert (rows["requested_bytes"] == live[rows["op"] - 1]).all()
    assert rows["op"][-1] == 5000 and (np.diff(rows["op"]) > 0).all()
    assert (np.diff(rows["wall_ns"]) > 0).all()
    summary = sw.Recording.from_ops(ops).summary
    assert summary.peak_op in rows["op"]
    assert (
        seen.peak_requested_bytes == summary.peak_requested_bytes == rows["requested_bytes"].max()
    )
    assert seen.peak_rss_bytes >= seen.peak_requested_bytes * 0.5
    assert seen.ns_per_op > 0 and seen.fragmentation is not None and seen.fragmentation > 0.5
    assert seen.runs[0].own_bytes > 5000 * 16 and "ns/op" in str(seen)
    assert seen.plot().get_ylabel().startswith("resident")


def _live_changes(ops: NDArray[np.void]) -> list[int]:
    sizes: dict[int, int] = {}
    changes = []
    for row in ops:
        before = sizes.get(int(row["object"]), 0)
        after = 0 if row["kind"] == FREE else int(row["size"])
        sizes[int(row["object"])] = after
        changes.append(after - before)
    return changes


def test_resident_memory_is_what_is_touched() -> None:
    count, size = 64, 1 << 20
    ops = make_ops(*((ALLOC, i, size) for i in range(count)))
    for touch, low, high in (("none", 0, 8), ("ends", 0, 8), ("pages", 60, 80), ("all", 60, 80)):
        seen = short_replay(ops, touch=touch)
        assert low <= seen.peak_rss_bytes / size <= high, touch


def test_one_thread_places_equally_twice() -> None:
    ops = random_ops(5, 8000, threads=1)
    for allocator in ("spanwise", "glibc"):
        first, second = short_replay(ops, allocator, repeat=2).runs
        assert first.addresses is not None
        assert first.addresses == second.addresses
    again = short_replay(ops, table="go").runs[0].addresses
    assert again == short_replay(ops, table="go").runs[0].addresses
    assert again != short_replay(ops, table="pow2").runs[0].addresses


# --- threads --------------------------------------------------------------------------------------


def test_threads_keep_their_number_and_objects_their_order() -> None:
    ops = random_ops(6, 20000, threads=7)
    owners: dict[int, int] = {}
    crossings = 0
    for row in ops:
        last = owners.get(int(row["object"]))
        crossings += row["kind"] != ALLOC and last != row["thread"]
        owners[int(row["object"])] = int(row["thread"])
    for allocator in ("spanwise", "glibc"):
        seen = short_replay(ops, allocator)
        assert seen.threads == 7 and seen.failed == 0
        assert seen.crossings >= crossings > 0
        assert seen.runs[0].addresses is None
        assert "left out" in str(seen)


# --- allocators -----------------------------------------------------------------------------------


def test_requests_above_the_table_are_counted() -> None:
    small = sw.SizeClassTable.custom([16, 64], name="small")
    seen = short_replay(make_ops((ALLOC, 0, 64), (ALLOC, 1, 65), (ALLOC, 2, 5000)), table=small)
    assert seen.above_table == 2
    assert "2 requests above the largest class" in str(seen)


def test_impossible_requests_are_a_finding(tmp_path: Path) -> None:
    ops = make_ops((ALLOC, 0, 100), (ALLOC, 1, 1 << 62), (REALLOC, 1, 50), (FREE, 1, 0))
    seen = short_replay(ops)
    assert seen.failed == 1 and "refused" in str(seen)
    path = tmp_path / "huge.swt"
    sw.Recording.from_ops(ops, path)
    assert spanwise("replay", path, "--drain", "").returncode == 1


# --- the command and bad input --------------------------------------------------------------------


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "r.swt"
    sw.Recording.from_ops(random_ops(9, 2000, threads=2), path)
    words = ("--allocator", "glibc", "--table", "go", "--drain", "0.01", "--repeat", "2", "--json")
    done = spanwise("replay", path, *words, "--plot", tmp_path / "rss.png")
    assert done.returncode == 0, done.stderr
    glibc, ours = json.loads(done.stdout)
    assert (glibc["allocator"], ours["allocator"]) == ("glibc", "spanwise go (run time)")
    assert len(ours["runs"]) == 2 and ours["left_bytes"].keys() == {"0.01"}
    assert (tmp_path / "rss.png").stat().st_size > 1000
    done = spanwise("replay", path, "--ledger", "--table", "c16", "--table", "go")
    assert done.returncode == 0 and done.stdout.count("equal to the byte") == 2


def test_damaged_and_empty_recordings(tmp_path: Path) -> None:
    whole = tmp_path / "whole.swt"
    sw.Recording.from_ops(random_ops(10, 3000), whole)
    cut = tmp_path / "cut.swt"
    cut.write_bytes(whole.read_bytes()[:-200])
    done = spanwise("replay", cut)
    assert done.returncode == 2 and "cut.swt" in done.stderr and done.stderr.count("\n") == 1
    with pytest.raises(sw.InvalidError, match="no operations"):
        sw.replay(sw.Recording.from_ops(make_ops()))
    assert spanwise("replay", tmp_path / "none.swt").returncode == 2


def test_arguments_are_checked() -> None:
    recording = sw.Recording.from_ops(make_ops((ALLOC, 0, 10)))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"allocator": "glibc", "table": "go"}, "its own tables"),
        ({"table": "go", "lib": "x"}, "one of them"),
        ({"touch": "some"}, "touch"),
    ]
    for options, message in wrong:
        with pytest.raises(sw.InvalidError, match=message):
            sw.replay(recording, **options)
    with pytest.raises(sw.InvalidError, match="peak or end"):
        sw.check_ledger(recording, at="later")


# --- the demo -------------------------------------------------------------------------------------


CC = next(filter(shutil.which, ("cc", "gcc", "clang")), None)

PROGRAM = """\
import json, sqlite3
rows = [(i, "x" * (i % 60)) for i in range(10000)]
db = sqlite3.connect(":memory:")
db.execute("create table t(a, b)")
db.executemany("insert into t values (?, ?)", rows)
assert len(json.loads(json.dumps(db.execute("select * from t order by b").fetchall()))) == 10000
"""


# The demo with smaller jobs and one round; in full as it is.
SHORT_DEMO = """\
import sys
from spanwise.__main__ import main
from spanwise.commands import demo
demo.ROUNDS = 1
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
    assert done.stdout.startswith("== python3 (")
    report = tmp_path / "out/python.html"
    assert f"for any browser: {report}\n" in done.stdout
    assert 50_000 < report.stat().st_size < 3 << 20
    assert sw.Recording.open(tmp_path / "out/python.swt").summary.allocs > 12_000
    if CC:
        last = done.stdout.splitlines()[-1]
        assert last.startswith("Peak RSS compared with plain: spanwise ")
        best = sw.SizeClassTable.from_json(tmp_path / "out/best.json")
        assert "fitted" in done.stdout and "glibc" in done.stdout
        assert (tmp_path / "out/python-bench.png").is_file()
        assert sw.Build.open(tmp_path / "out/best").table.hash == best.hash


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

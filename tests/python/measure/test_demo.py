# SPDX-License-Identifier: Apache-2.0
"""The demo, and a prediction that equals the measurement."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw
from install_tools import quick_compiler
from spanwise import _lib
from spanwise.measure.running import MALLOC_LIBRARY, read_process_ledger
from spanwise.recordings.finish import finish

from tests.python.helpers import (
    needs_python_malloc,
    needs_recorder,
    python,
    spanwise,
)

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

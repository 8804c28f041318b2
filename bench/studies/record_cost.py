# SPDX-License-Identifier: Apache-2.0
"""What recording costs: a program plain, recorded, and under heaptrack, interleaved.

Two jobs: CPython's JSON loop with PYTHONMALLOC=malloc, and `gcc -O2 -c` of a generated file of
about 5,000 lines (recorded with its children, so that the compiler proper is). Prints for each the
medians of wall seconds and the median of the ratios to the plain run of the same round, with its
range.

`spanwise record` is the whole command, from its start to the finished file: merge and compression
included, as heaptrack's is. `recorder alone` is the part of it in which the program runs; the same
with eight return addresses a call, and of a CPython 3.11 with lines of Python as call sites.

Example:
    ./dev study record-cost --rounds 9
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from spanwise import _lib
from spanwise.recordings.recorder import RECORDER, STACKS

LOOPS, FUNCTIONS = 50, 550
JSON_JOB = """import json
rows = [{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i)], "v": i * 1.5} for i in range(3000)]
for _ in range(LOOPS):
    json.loads(json.dumps(rows))
"""


def c_source(functions: int) -> str:
    """A C file of nine lines a function, about 5,000 in all."""
    body = """int f{i}(int a, const int *b) {{
    int s = a * {i};
    for (int k = 0; k < b[0]; k++) {{
        s += b[k % 8] ^ (k * {i});
        if (s & {mask}) s -= k;
    }}
    return s;
}}

"""
    return "".join(body.format(i=i, mask=1 << (i % 12)) for i in range(functions))


def seconds(command: list[str], environment: dict[str, str], cwd: Path) -> float:
    """Wall seconds of one run.

    Raises:
        SystemExit: the command failed.
    """
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"record_cost: {command[0]} failed: {done.stderr.decode()[-200:]}")
    return wall


Variant = tuple[list[str], dict[str, str]]
"""A command and its environment."""
PLAIN, WHOLE, ALONE, HEAPTRACK = "plain", "spanwise record", "recorder alone", "heaptrack"
DEEP, LINES = "alone, depth 8", "lines of Python"
KNOWS_FRAMES = sys.version_info[:2] == (3, 11)
"""The Python version whose frames the recorder can read."""


def variants(job: list[str], recorder: Path, stacks: int) -> dict[str, Variant]:
    """The commands and their environments, by name.

    Args:
        job: the command that is recorded.
        recorder: libspanwise-record.so.
        stacks: return addresses a call.
    """
    base = {**os.environ, "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-m", "spanwise", "record", "-o", "job.swt", "--children"]
    whole = {**os.environ, "SPANWISE_NATIVE_DIR": str(recorder.resolve().parent)}
    alone = {
        **base,
        "LD_PRELOAD": str(recorder.resolve()),
        "SPANWISE_RECORD_FILE": "job.swt",
        "SPANWISE_RECORD_CHILDREN": "1",
        "SPANWISE_RECORD_STACKS": str(stacks),
    }
    found = {
        PLAIN: (job, base),
        WHOLE: ([*command, "--stacks", str(stacks), "--", *job], whole),
        ALONE: (job, alone),
        DEEP: (job, {**alone, "SPANWISE_RECORD_STACKS": "8"}),
    }
    if KNOWS_FRAMES and Path(job[0]).name.startswith("python"):
        found[LINES] = (job, {**alone, "SPANWISE_RECORD_PYTHON": "1"})
    if shutil.which(HEAPTRACK):
        found[HEAPTRACK] = ([HEAPTRACK, "-o", "job.heaptrack", *job], base)
    return found


def prepare(folder: Path, *, quick: bool = False) -> None:
    """Puts what the jobs read into a new folder; quick: a twenty-fifth of it."""
    folder.mkdir()
    source = c_source(FUNCTIONS // 25 if quick else FUNCTIONS)
    (folder / "job.c").write_text(source, encoding="utf-8")
    loops = LOOPS // 25 if quick else LOOPS
    (folder / "job.py").write_text(JSON_JOB.replace("LOOPS", str(loops)), encoding="utf-8")


def measure(name: str, job: list[str], options: argparse.Namespace) -> dict[str, object]:
    """One job's rows."""
    runs = variants(job, options.recorder, options.stacks)
    rounds = 1 if options.quick else options.rounds
    walls: dict[str, list[float]] = {key: [] for key in runs}
    size = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for key, (command, environment) in runs.items():
                where = Path(folder) / f"{number} {key}"  # so that no run finds files of another
                prepare(where, quick=options.quick)
                walls[key].append(seconds(command, environment, where))
                if key == WHOLE:
                    size = sum(path.stat().st_size for path in where.glob("job*.swt"))
                shutil.rmtree(where)
    print(f"{name}, {rounds} rounds")
    rows: dict[str, object] = {"job": name, "bytes": size}
    for key, times in walls.items():
        ratios = [t / p for t, p in zip(times, walls[PLAIN], strict=True)]
        low, high = min(ratios), max(ratios)
        middle = statistics.median(ratios)
        print(
            f"  {key:<15} {statistics.median(times):7.3f} s"
            f"   {middle:5.2f} x plain  [{low:.2f}, {high:.2f}]"
        )
        rows[key] = {"seconds": times, "ratio": middle}
    if HEAPTRACK not in runs:
        print("  heaptrack       left out: it is not installed (Debian's package heaptrack)")
    print(f"  recordings of the last round: {size:,} bytes")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs both jobs."""
    parser = argparse.ArgumentParser(
        prog="./dev study record-cost",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--recorder", type=Path, help=f"another {RECORDER} than the package's")
    parser.add_argument("--quick", action="store_true", help="small jobs, once: that it runs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stacks", type=int, default=STACKS, help="return addresses a call site")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON as well")
    options = parser.parse_args(arguments)
    options.recorder = options.recorder or _lib.native_library(RECORDER)
    if not options.recorder.exists():
        parser.error(
            f"{options.recorder}: no such file; build the library first (./dev bench does)"
        )
    python = str(Path(sys.executable).resolve())
    results = [
        measure("CPython JSON loop", [python, "job.py"], options),
        measure("gcc -O2 -c", ["gcc", "-O2", "-c", "job.c", "-o", "job.o"], options),
    ]
    if options.json:
        print(json.dumps(results))
    return 0

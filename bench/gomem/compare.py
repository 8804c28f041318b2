#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ranges and buffers with the Go library GoMem, from a directory that the user has.

Each round runs our row, the plain C reference and the original in both of its builds (default, and
tag twotree) one after the other. Then the original's own benchmark cases run next to ours. Exit
status 1: ours or a reference is slower than the original; a slower reference would flatter us.
A harness (bench/gomem/go) is built in a temporary folder against the directory; nothing is copied.

Example: python3 bench/gomem/compare.py ~/src/gomem --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from driver.contenders import Machine  # noqa: E402
from driver.errors import BenchError  # noqa: E402
from driver.measure import measure  # noqa: E402
from driver.text import text_table  # noqa: E402

TAGS = ("treap", "twotree")
"""The original's builds; it knows the second word as a build tag and ignores the first."""
SLACK = 1.05
RANGE_ROWS = ("pair", "fragmented", "sequence", "find")
BUFFER_ROWS = ("read_byte", "read_be", "leb128", "push", "append", "to_bytes", "copy_to")
ROWS = [
    *(("ranges", f"range/{row}", "single", "reference_single", "treap") for row in RANGE_ROWS),
    *(("ranges", f"range/{row}", "two", "reference_two", "twotree") for row in RANGE_ROWS),
    ("ranges", "range/buddy_pair", "buddy", "reference_buddy", "treap"),
    *(
        ("buffers", f"buffer/{row}", "spanwise", "reference", "treap")
        for row in (*BUFFER_ROWS, "scalable_pair", "batch")
    ),
]
BACKENDS = {"treap": "single", "twotree": "two"}
"""Our back end that compares with each build of the original."""

Times = Mapping[str, Mapping[str, float]]


def go(words: Sequence[str], folder: Path, mode: str = "readonly") -> str:
    """Run the Go tool.

    Raises:
        BenchError: there is none, or it failed.
    """
    tool = shutil.which("go")
    if tool is None:
        raise BenchError("there is no Go toolchain in PATH")
    env = {**os.environ, "GOFLAGS": f"-mod={mode}", "GOWORK": "off"}
    done = subprocess.run(
        [tool, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise BenchError(f"go {words[0]} failed: {said[-1]}")
    return done.stdout


def build_harness(library: Path, folder: Path) -> dict[str, Path]:
    """Build the harness against the library, once per build of the original."""
    harness = folder / "harness"
    shutil.copytree(BENCH / "gomem/go", harness)
    if (library / "go.sum").is_file():
        shutil.copy(library / "go.sum", harness)
    with (harness / "go.mod").open("a", encoding="utf-8") as file:
        file.write(f"\nreplace github.com/langhuihui/gomem => {library}\n")
    programs = {tag: harness / f"gomem-{tag}" for tag in TAGS}
    for tag, program in programs.items():
        go(["build", "-tags", tag, "-o", str(program), "."], harness, "mod")
    return programs


def original_times(program: Path, seconds: float) -> dict[str, float]:
    """Nanoseconds per operation of the original by SUBJECT/ROW."""
    words = [str(program), "-benchtime", f"{seconds}s"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{program.name} ended with {done.returncode}")
    times: dict[str, float] = json.loads(done.stdout)
    return times


def rows_table(programs: Mapping[str, Path], machine: Machine, rounds: int) -> tuple[str, bool]:
    """Medians of every row, and whether ours or a reference is slower than the original."""
    found: dict[int, list[tuple[float, float, float]]] = {i: [] for i in range(len(ROWS))}
    for _ in range(rounds):
        seconds = 0.001 if machine.quick else 0.05
        theirs = {tag: original_times(programs[tag], seconds) for tag in TAGS}
        for i, (way, row, ours, reference, tag) in enumerate(ROWS):
            both = [
                measure(machine.contenders(f"{way} {who}/{row}")[0], quick=machine.quick)["ns"]
                for who in (ours, reference)
            ]
            found[i].append((both[0], both[1], theirs[tag][row]))
    lines, slower = [], False
    for i, (_, row, _, _, tag) in enumerate(ROWS):
        mine, plain, original = (statistics.median(each) for each in zip(*found[i], strict=True))
        late = [name for name, t in (("ours", mine), ("reference", plain)) if t > SLACK * original]
        slower |= bool(late)
        times = (f"{t:.1f}" for t in (mine, plain, original))
        lines.append([f"{row}, {tag}", *times, f"{mine / original:.2f}", " and ".join(late)])
    head = ["row", "ours ns", "reference", "original", "ours/original", "slower"]
    return text_table(head, lines), slower


def parse_google(text: str) -> dict[str, dict[str, float]]:
    """Nanoseconds per round by contender and case, of bench_gomem's JSON.

    A case with several threads counts elapsed time, as the original does; others count CPU time.
    """
    found: dict[str, dict[str, float]] = {}
    for each in json.loads(text)["benchmarks"]:
        contender, _, case = each["run_name"].split("/")[:3]
        time = each["real_time" if each["threads"] > 1 else "cpu_time"]
        found.setdefault(contender, {})[case] = float(time)
    return found


def parse_go(text: str) -> dict[str, float]:
    """Nanoseconds per operation by case, of `go test -bench`."""
    pattern = r"^Benchmark(\w+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op"
    return {name: float(ns) for name, ns in re.findall(pattern, text, re.MULTILINE)}


def cases_table(ours: Times, original: Times) -> str:
    """One line per case: ours on its usual back end and on each build's, next to the original."""
    usual = {**ours.get("spanwise", {}), **ours.get("wide", {})}
    columns: list[Mapping[str, float]] = [usual]
    head = ["the original's own case, ns", "ours"]
    for tag, backend in BACKENDS.items():
        columns += [ours.get(backend, {}), original.get(tag, {})]
        head += [f"ours, {backend}", f"original, {tag}"]
    names = sorted({name for column in columns for name in column})
    lines = [[name, *(f"{c[name]:.4g}" if name in c else "-" for c in columns)] for name in names]
    return text_table(head, lines)


def own_cases(build: Path, *, quick: bool) -> dict[str, dict[str, float]]:
    """Run the original's cases on our library."""
    program = build / "bench_gomem"
    if not program.is_file():
        raise BenchError(f"{program} was not built; run ./dev bench")
    words = [f"--benchmark_min_time={0.0001 if quick else 0.05}", "--benchmark_format=json"]
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"bench_gomem ended with {done.returncode}: {done.stderr[-200:]}")
    return parse_google(done.stdout)


def compare(library: Path, machine: Machine, rounds: int) -> int:
    """Build, run and print; return the exit status."""
    if not (library / "go.mod").is_file():
        raise BenchError(f"{library} has no go.mod; give GoMem's directory")
    with tempfile.TemporaryDirectory(prefix="spanwise-gomem-") as name:
        table, slower = rows_table(build_harness(library, Path(name)), machine, rounds)
    print(table, end="\n\n")
    words = ["test", "-run", "^$", "-bench", ".", "-benchtime", "1x" if machine.quick else "50ms"]
    original = {tag: parse_go(go([*words, "-tags", tag, "."], library)) for tag in TAGS}
    print(cases_table(own_cases(machine.build, quick=machine.quick), original))
    return 1 if slower and not machine.quick else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, 1 if something is slower than the original, 2 for bad input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("library", type=Path, help="a directory of GoMem")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="[5]")
    parser.add_argument("--quick", action="store_true", help="short runs, once")
    parser.add_argument("--build", type=Path, default=BENCH.parent / "build/bench")
    options = parser.parse_args(arguments)
    machine = Machine(options.build, quick=options.quick)
    try:
        rounds = 1 if options.quick else max(options.rounds, 1)
        return compare(options.library.resolve(), machine, rounds)
    except BenchError as error:
        print(f"gomem: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

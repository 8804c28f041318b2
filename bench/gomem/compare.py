#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ranges and buffers with the Go library GoMem, from a directory of the user.

Each round runs our row, the plain C reference and both builds of the original (default, and tag
twotree) one after the other. Exit status 1: ours is slower than the original, or a reference is,
which would make our comparison with the reference unfair. The harness (bench/gomem/go) is built in
a temporary folder against the directory.

Example: python3 bench/gomem/compare.py ~/src/gomem --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from driver.contenders import Machine  # noqa: E402
from driver.measure import measure  # noqa: E402
from driver.tools import BenchError, captured, last_line, run_command, text_table  # noqa: E402

TAGS = ("treap", "twotree")
"""The builds of the original, which ignores the first tag."""
SLACK = 1.05
RANGE_ROWS = ("pair", "fragmented", "sequence", "find")
BUFFER_ROWS = ("read_byte", "read_be", "leb128", "push", "append", "to_bytes", "copy_to")
ROWS = [
    *(("ranges", f"range/{row}", "treap", "reference_single", "treap") for row in RANGE_ROWS),
    *(("ranges", f"range/{row}", "two-treaps", "reference_two", "twotree") for row in RANGE_ROWS),
    ("ranges", "range/buddy_pair", "buddy", "reference_buddy", "treap"),
    *(
        ("buffers", f"buffer/{row}", "spanwise", "reference", "treap")
        for row in (*BUFFER_ROWS, "scalable_pair", "batch")
    ),
]


def go_build(folder: Path, tag: str, program: Path) -> None:
    """Build the Go program of a folder.

    Raises:
        BenchError: there is no Go toolchain, or the build failed.
    """
    tool = shutil.which("go")
    if tool is None:
        raise BenchError("there is no Go toolchain in PATH")
    env = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    words = [tool, "build", "-tags", tag, "-o", str(program), "."]
    done = captured(words, env, folder)
    if done.returncode != 0:
        raise BenchError(f"go build failed: {last_line(done.stderr or done.stdout)}")


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
        go_build(harness, tag, program)
    return programs


def original_times(program: Path, seconds: float) -> dict[str, float]:
    """Return nanoseconds per operation of the original, by SUBJECT/ROW."""
    done = captured([program, "-benchtime", f"{seconds}s"])
    if done.returncode != 0:
        raise BenchError(f"{program.name} ended with {done.returncode}")
    times: dict[str, float] = json.loads(done.stdout)
    return times


def rows_table(programs: Mapping[str, Path], machine: Machine, rounds: int) -> tuple[str, bool]:
    """Return a table of medians, and whether ours or a reference is slower than the original."""
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


def compare(library: Path, machine: Machine, rounds: int) -> int:
    """Build, run and print; return the exit status."""
    if not (library / "go.mod").is_file():
        raise BenchError(f"{library} has no go.mod; give GoMem's directory")
    with tempfile.TemporaryDirectory(prefix="spanwise-gomem-") as name:
        table, slower = rows_table(build_harness(library, Path(name)), machine, rounds)
    print(table)
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
    rounds = 1 if options.quick else max(options.rounds, 1)
    return run_command("gomem", lambda: compare(options.library.resolve(), machine, rounds))


if __name__ == "__main__":
    sys.exit(main())

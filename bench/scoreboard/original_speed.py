# SPDX-License-Identifier: Apache-2.0
"""Ours and the plain references beside the Go library GoMem, from a directory of the user's.

First the rows of bench_ranges and bench_buffers that the library has, too: each round runs ours,
the reference and the original's two builds (default, and tag twotree), one after the other, in the
CPU time of a thread (of the original's collector only what runs in that thread counts). The
verdict of a row is `slower` where ours or the reference takes longer than the original; a reference
that is slower would not be a fair
one. Then all benchmark cases of the original, run once in both builds as
its own `go test` times them, beside ours (original_cases.py) and the figures on record
(bench/gomem/recorded.json), which are never scored. With a pattern of rows only those run, and none
of the original's own cases.

Nothing of the library is copied or kept: a harness of ours (bench/gomem/go) is built in a temporary
folder against the directory.

Example:
    ./dev bench --peer-go ~/src/gomem
    ./dev bench --peer-go ~/src/gomem --scoreboard --rows 'range*'   behind the rows' verdicts
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import BenchError
from runner.patterns import choose
from runner.text import text_table

from scoreboard import original_cases
from scoreboard.beside_reference import BUILD, Bench
from scoreboard.loop_speed import Setting

HARNESS = Path(__file__).resolve().parents[1] / "gomem/go"
TAGS = ("treap", "twotree")
"""The original's builds; it knows the second word as a build tag, and ignores the first."""
SLACK = 1.05
"""Beyond this ratio of medians a row is called slower."""
BENCH_LINE = re.compile(r"^Benchmark(\w+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One shape.

    Attributes:
        subject: of the bench, `range` or `buffer`.
        row: of the bench.
        ours: contender.
        reference: contender.
        build: of the original, one of TAGS.
    """

    subject: str
    row: str
    ours: str
    reference: str
    build: str

    @property
    def name(self) -> str:
        """As it is printed, and as --rows selects it."""
        return f"{self.subject} {self.row}, {self.build}"


def _ranges(row: str) -> tuple[Row, Row]:
    return (
        Row("range", row, "single", "reference_single", "treap"),
        Row("range", row, "two", "reference_two", "twotree"),
    )


BUFFER_ROWS = ("read_byte", "read_be", "leb128", "push", "append", "to_bytes", "copy_to")
ROWS = (
    *(each for row in ("pair", "fragmented", "sequence", "find") for each in _ranges(row)),
    Row("range", "buddy_pair", "buddy", "reference_buddy", "treap"),
    *(Row("buffer", row, "spanwise", "reference", "treap") for row in BUFFER_ROWS),
    Row("buffer", "scalable_pair", "spanwise", "reference", "treap"),
    Row("buffer", "batch", "spanwise", "reference", "treap"),
)


def rows_of(pattern: str | None) -> tuple[Row, ...]:
    """The rows that an option --rows selects.

    Raises:
        BenchError: it selects none.
    """
    chosen = choose([row.name for row in ROWS], pattern)
    return tuple(row for row in ROWS if row.name in chosen)


def judge(ours: float, reference: float, original: float) -> str:
    """Who is slower than the original: "", "ours", "reference", or both."""
    slower = [
        name for name, time in (("ours", ours), ("reference", reference)) if time > SLACK * original
    ]
    return " and ".join(slower)


def _go(words: list[str], folder: Path, mode: str = "readonly") -> str:
    go = shutil.which("go")
    if go is None:
        raise BenchError("--peer-go needs a Go toolchain: put `go` on the path")
    env = {**os.environ, "GOFLAGS": f"-mod={mode}", "GOWORK": "off"}
    done = subprocess.run(
        [go, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise BenchError(f"go {words[0]} failed: {told[-1] if told else 'without a word'}")
    return done.stdout


def _copied(library: Path, into: Path) -> Path:
    """A module of ours that uses the library where it is; its go.sum names what that needs."""
    folder = into / "harness"
    shutil.copytree(HARNESS, folder)
    if (library / "go.sum").is_file():
        shutil.copy(library / "go.sum", folder)
    with (folder / "go.mod").open("a", encoding="utf-8") as file:
        file.write(f"\nreplace github.com/langhuihui/gomem => {library}\n")
    return folder


def _original_times(program: Path, seconds: float) -> dict[str, float]:
    words = [str(program), "-benchtime", f"{seconds}s"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the original's {program.name} ended with {done.returncode}")
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _rows_table(
    programs: dict[str, Path], rows: Sequence[Row], rounds: int, quick: bool
) -> tuple[str, bool]:
    found: dict[Row, list[tuple[float, float, float]]] = {row: [] for row in rows}
    for _ in range(rounds):
        theirs = {tag: _original_times(programs[tag], 0.001 if quick else 0.05) for tag in TAGS}
        for row in rows:
            bench = Bench(row.subject)
            setting = Setting(bench.program, 1, not quick)
            ours, reference = bench.times(row.row, (row.ours, row.reference), setting)
            original = theirs[row.build][f"{row.subject}/{row.row}"]
            found[row].append((ours, reference, original))
    lines, slower = [], False
    for row, times in found.items():
        ours, reference, original = (statistics.median(each) for each in zip(*times, strict=True))
        verdict = judge(ours, reference, original)
        slower |= verdict != ""
        ratios = (f"{ours / original:.2f}", f"{reference / original:.2f}")
        lines.append(
            (row.name, *(f"{t:.1f}" for t in (ours, reference, original)), *ratios, verdict)
        )
    head = ("row", "ours ns", "reference", "original", "ours/o", "ref/o", "slower")
    return text_table(head, lines), slower


def parse_cases(text: str) -> dict[str, float]:
    """ns/op by case, from what `go test -bench` prints."""
    return {name: float(ns) for name, ns in BENCH_LINE.findall(text)}


def _cases_table(library: Path, quick: bool) -> str:
    words = ["test", "-run", "^$", "-bench", ".", "-benchtime", "1x" if quick else "50ms"]
    now = {tag: parse_cases(_go([*words, "-tags", tag, "."], library)) for tag in TAGS}
    ours = original_cases.own_times(BUILD, rounds=1, quick=quick)
    return original_cases.cases_table(ours, now)


def compare(
    library: Path,
    *,
    rounds: int,
    quick: bool,
    say: Callable[[str], None],
    pattern: str | None = None,
) -> int:
    """Builds, runs and prints. Returns 1 if ours or a reference is slower than the original.

    Args:
        library: the user's directory of GoMem.
        rounds: of each row.
        quick: short runs, which show that it runs and nothing else.
        say: prints a text.
        pattern: of rows, as --rows has it; the original's own cases run without one only.

    Raises:
        BenchError: no Go toolchain, no such library or row, or something failed.
    """
    rows = rows_of(pattern)
    if not (library / "go.mod").is_file():
        raise BenchError(f"--peer-go {library}: no Go module is there; give GoMem's directory")
    with tempfile.TemporaryDirectory(prefix="spanwise-gomem-") as name:
        folder = _copied(library.resolve(), Path(name))
        programs = {tag: folder / f"gomem-{tag}" for tag in TAGS}
        for tag, program in programs.items():
            _go(["build", "-tags", tag, "-o", str(program), "."], folder, "mod")
        table, slower = _rows_table(programs, rows, rounds, quick)
        say(table)
        if pattern is None:
            say("")
            say(_cases_table(library.resolve(), quick))
    return 1 if slower and not quick else 0

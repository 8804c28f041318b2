# SPDX-License-Identifier: Apache-2.0
"""How fast the collector is: ours over Go's, with Green Tea and without, and over Boehm's.

Each figure is one run of a process of its own: bench_collectors, bench_collectors_boehm (Debian's
libgc-dev) or the program of bench/collectors/go. They make the same objects from the same random
numbers, with huge pages off, and ours runs right after the peer. Rows of the same programs and
input share their runs. A collection marks and sweeps, on all sides. Boehm's counts with one marker
and with two, and the better one is taken. A peer that is not there leaves its rows `no peer`. Exit
1: a limit is missed.

Examples:
    ./dev bench --scoreboard --rows 'gc*'           all rows, a quarter of an hour
    ./dev bench --scoreboard --rows 'gc*' --quick   small, once: that it runs, not how fast

It is a module, which `bench/scoreboard/scripted.py` starts as a process of its own:
    PYTHONPATH=bench .venv/bin/python -m scoreboard.collector_speed --json
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import BenchError, NoPeerError

from scoreboard.beside_reference import BUILD, Bench
from scoreboard.loop_speed import Row, Setting

GO_SOURCE = Path(__file__).resolve().parents[1] / "collectors/go"
PR_SET_THP_DISABLE = 41
MILLION = 1_000_000


@dataclass(frozen=True)
class Case:
    """What the programs are asked for.

    Attributes:
        row: of the programs.
        size: objects, or the depth of a tree.
        quick: the same in a short run.
    """

    row: str
    size: int
    quick: int


RANDOM_1M = Case("random", MILLION, 10_000)
RANDOM_5M = Case("random", 5 * MILLION, 10_000)
LIST = Case("list", MILLION, 10_000)
SHUFFLED = Case("shuffled", MILLION, 10_000)
TREE = Case("tree", 19, 10)
TREES = Case("trees", 18, 8)
TREES_20 = Case("trees", 20, 8)
GCBENCH = Case("gcbench", 18, 10)
NEW_16 = Case("new16", 4 * MILLION, 10_000)
NEW_16_CALLS = Case("new16_calls", 4 * MILLION, 10_000)
NEW_16_INLINE = Case("new16_inline", 4 * MILLION, 10_000)
BARRIER = Case("barrier", 0, 0)
STEPS = Case("steps", 16 * MILLION, 10_000)


@functools.cache
def _thp() -> Callable[..., int]:
    return ctypes.CDLL(None).prctl


def _no_huge_pages() -> None:
    _thp()(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def told(
    program: Path, case: Case, setting: Setting, environment: dict[str, str] | None = None
) -> dict[str, float]:
    """Runs a program once.

    Raises:
        BenchError: it failed, or printed something else.
    """
    _thp()  # loaded before the fork
    words = [str(program), case.row, str(case.size if setting.judged else case.quick)]
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
        preexec_fn=_no_huge_pages,
    )
    try:
        if done.returncode != 0:
            raise ValueError(f"exit {done.returncode}")
        return {name: float(value) for name, value in json.loads(done.stdout).items()}
    except ValueError as error:
        raise BenchError(f"{program.name} {case.row}: {error}") from None


def ours(case: Case, setting: Setting) -> dict[str, float]:
    """A run of ours.

    Raises:
        BenchError: the program is not there, or failed.
    """
    program = BUILD / "bench_collectors"
    if not program.is_file():
        raise BenchError(f"{program}: not there; ./dev bench builds it")
    return told(program, case, setting)


@functools.cache
def go_program(experiment: str) -> Path:
    """Go's side, built.

    Raises:
        NoPeerError: there is no toolchain, or it does not know the experiment.
    """
    go = shutil.which("go")
    if go is None:
        raise NoPeerError("there is no Go toolchain")
    out = Path(tempfile.mkdtemp(prefix="spanwise-go-")) / "collectors"
    env = {**os.environ, "GOEXPERIMENT": experiment, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    words = [go, "build", "-o", str(out), "."]
    done = subprocess.run(words, cwd=GO_SOURCE, env=env, capture_output=True, check=False)
    if done.returncode != 0:
        raise NoPeerError(f"this Go toolchain has no experiment {experiment}")
    return out


def go(case: Case, setting: Setting, experiment: str = "greenteagc") -> list[dict[str, float]]:
    """A run of Go."""
    return [told(go_program(experiment), case, setting)]


def boehm(case: Case, setting: Setting) -> list[dict[str, float]]:
    """A run with one marker, and one with two.

    Raises:
        NoPeerError: it was not there when the benches were built.
    """
    program = BUILD / "bench_collectors_boehm"
    if not program.is_file():
        raise NoPeerError("there is no bench_collectors_boehm: Debian's libgc-dev brings it")
    return [told(program, case, setting, {"GC_MARKERS": n}) for n in ("1", "2")]


def _both(case: Case, setting: Setting) -> list[dict[str, float]]:
    return [*go(case, setting), *boehm(case, setting)]


Peer = Callable[[Case, Setting], list[dict[str, float]]]


@dataclass(frozen=True)
class Runs:
    """What programs told, run after run. Rows that look at other figures of them share them.

    Attributes:
        case: of ours.
        peer: runs right before ours; None: nobody.
        its_case: of the peer; None: as ours.
        done: per run what ours told, and what each of the peers did.
    """

    case: Case
    peer: Peer | None = None
    its_case: Case | None = None
    done: list[tuple[dict[str, float], list[dict[str, float]]]] = field(default_factory=list)

    def number(
        self, number: int, setting: Setting
    ) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Run `number`, from 0 on."""
        while len(self.done) <= number:
            theirs = self.peer(self.its_case or self.case, setting) if self.peer else []
            self.done.append((ours(self.case, setting), theirs))
        return self.done[number]


def _over(name: str, runs: Runs, key: str, first: bool = False) -> Row:
    """A row of ours over the least of the peers, or over the first of them, which is Go."""
    numbers = itertools.count()

    def measure(setting: Setting) -> float:
        mine, theirs = runs.number(next(numbers), setting)
        return mine[key] / min(one[key] for one in (theirs[:1] if first else theirs))

    return Row(name, "x", measure)


def _alone(name: str, unit: str, runs: Runs, key: str) -> Row:
    numbers = itertools.count()
    return Row(name, unit, lambda setting: runs.number(next(numbers), setting)[0][key])


def _each(name: str, case: Case, runs: Runs, key: str) -> Row:
    numbers = itertools.count()

    def measure(setting: Setting) -> float:
        told_ns = runs.number(next(numbers), setting)[0][key]
        return told_ns / (case.size if setting.judged else case.quick)

    return Row(name, "ns", measure)


_old_go = functools.partial(go, experiment="nogreenteagc")
_trees_18, _trees_20, _gcbench = (Runs(case, _both) for case in (TREES, TREES_20, GCBENCH))
_barrier, _steps = Runs(BARRIER), Runs(STEPS)

ROWS = (
    _over("random 1 M, Go Green Tea", Runs(RANDOM_1M, go), "cpu_ns"),
    _over("random 5 M, Go Green Tea", Runs(RANDOM_5M, go), "cpu_ns"),
    _over("random 5 M, Go without Green Tea", Runs(RANDOM_5M, _old_go), "cpu_ns"),
    _over("random 5 M, Boehm", Runs(RANDOM_5M, boehm), "cpu_ns"),
    _each("random 5 M, an object", RANDOM_5M, Runs(RANDOM_5M), "cpu_ns"),
    _over("list 1 M, best", Runs(LIST, _both), "wall_ns"),
    _over("shuffled list 1 M, best", Runs(SHUFFLED, _both), "wall_ns"),
    _over("tree 1 M, Boehm", Runs(TREE, boehm), "cpu_ns"),
    _over("binary-trees 18, CPU", _trees_18, "cpu_ns"),
    _over("binary-trees 18, elapsed", _trees_18, "wall_ns"),
    _over("binary-trees 18, peak", _trees_18, "peak_kib", first=True),
    _over("binary-trees 20, CPU", _trees_20, "cpu_ns"),
    _over("binary-trees 20, elapsed", _trees_20, "wall_ns"),
    _over("binary-trees 20, peak", _trees_20, "peak_kib", first=True),
    _over("GCBench, CPU", _gcbench, "cpu_ns"),
    _over("GCBench, elapsed", _gcbench, "wall_ns"),
    _over("GCBench, peak", _gcbench, "peak_kib", first=True),
    _over("new 16 B, Go", Runs(NEW_16, go), "cpu_ns"),
    _over("new 16 B, Boehm", Runs(NEW_16, boehm), "cpu_ns"),
    _over("new 16 B by calls, Boehm", Runs(NEW_16_CALLS, boehm, NEW_16), "cpu_ns"),
    _over("new 16 B, Boehm in line", Runs(NEW_16, boehm, NEW_16_INLINE), "cpu_ns"),
    _alone("write barrier", "ns", _barrier, "more_ns"),
    _alone("write barrier by calls", "ns", _barrier, "call_more_ns"),
    _alone("longest step", "ms", _steps, "longest_ms"),
    _alone("marking in steps", "x", _steps, "mark_ratio"),
)


if __name__ == "__main__":
    sys.exit(Bench("collector").main(ROWS, Path(__file__).name, __doc__ or ""))

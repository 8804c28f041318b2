# SPDX-License-Identifier: Apache-2.0
"""How fast the collector is: ours over Go's, with Green Tea and without, and over Boehm's.

Each figure is one run of a process of its own: bench_collectors, bench_collectors_boehm (Debian's
libgc-dev) or the program of bench/collectors/go. They make the same objects from the same random
numbers, with huge pages off, and ours runs right after the peer. A collection marks and sweeps, on
all sides. Boehm's counts with one marker and with two, and the better one is taken. A peer that is
not there leaves its rows `no peer`. Exit 1: a limit is missed.

Examples:
    ./dev bench --scoreboard --rows 'gc*'           all rows, a quarter of an hour
    ./dev bench --scoreboard --rows 'gc*' --quick   small, once: that it runs, not how fast

It is a module, which `bench/scoreboard/scripted.py` starts as a process of its own:
    PYTHONPATH=bench .venv/bin/python -m scoreboard.collector_speed --json
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
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


def ours(case: Case, setting: Setting, key: str) -> float:
    """A figure of ours.

    Raises:
        BenchError: the program is not there, or failed.
    """
    program = BUILD / "bench_collectors"
    if not program.is_file():
        raise BenchError(f"{program}: not there; ./dev bench builds it")
    return told(program, case, setting)[key]


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


def go(case: Case, setting: Setting, key: str, experiment: str = "greenteagc") -> float:
    """A figure of Go."""
    return told(go_program(experiment), case, setting)[key]


def boehm(case: Case, setting: Setting, key: str) -> float:
    """The better figure of one marker and of two.

    Raises:
        NoPeerError: it was not there when the benches were built.
    """
    program = BUILD / "bench_collectors_boehm"
    if not program.is_file():
        raise NoPeerError("there is no bench_collectors_boehm: Debian's libgc-dev brings it")
    return min(told(program, case, setting, {"GC_MARKERS": n})[key] for n in ("1", "2"))


def _best(case: Case, setting: Setting, key: str) -> float:
    return min(go(case, setting, key), boehm(case, setting, key))


def _over(
    name: str,
    case: Case,
    key: str,
    peer: Callable[[Case, Setting, str], float],
    its_case: Case | None = None,
) -> Row:
    def measure(setting: Setting) -> float:
        theirs = peer(its_case or case, setting, key)
        return ours(case, setting, key) / theirs

    return Row(name, "x", measure)


def _alone(name: str, unit: str, case: Case, key: str) -> Row:
    return Row(name, unit, lambda setting: ours(case, setting, key))


def _each(name: str, case: Case, key: str) -> Row:
    def measure(setting: Setting) -> float:
        return ours(case, setting, key) / (case.size if setting.judged else case.quick)

    return Row(name, "ns", measure)


_old_go = functools.partial(go, experiment="nogreenteagc")

ROWS = (
    _over("random 1 M, Go Green Tea", RANDOM_1M, "cpu_ns", go),
    _over("random 5 M, Go Green Tea", RANDOM_5M, "cpu_ns", go),
    _over("random 5 M, Go without Green Tea", RANDOM_5M, "cpu_ns", _old_go),
    _over("random 5 M, Boehm", RANDOM_5M, "cpu_ns", boehm),
    _each("random 5 M, an object", RANDOM_5M, "cpu_ns"),
    _over("list 1 M, best", LIST, "wall_ns", _best),
    _over("shuffled list 1 M, best", SHUFFLED, "wall_ns", _best),
    _over("tree 1 M, Boehm", TREE, "cpu_ns", boehm),
    _over("binary-trees 18, CPU", TREES, "cpu_ns", _best),
    _over("binary-trees 18, elapsed", TREES, "wall_ns", _best),
    _over("binary-trees 18, peak", TREES, "peak_kib", go),
    _over("binary-trees 20, CPU", TREES_20, "cpu_ns", _best),
    _over("binary-trees 20, elapsed", TREES_20, "wall_ns", _best),
    _over("binary-trees 20, peak", TREES_20, "peak_kib", go),
    _over("GCBench, CPU", GCBENCH, "cpu_ns", _best),
    _over("GCBench, elapsed", GCBENCH, "wall_ns", _best),
    _over("GCBench, peak", GCBENCH, "peak_kib", go),
    _over("new 16 B, Go", NEW_16, "cpu_ns", go),
    _over("new 16 B, Boehm", NEW_16, "cpu_ns", boehm),
    _over("new 16 B by calls, Boehm", NEW_16_CALLS, "cpu_ns", boehm, NEW_16),
    _over("new 16 B, Boehm in line", NEW_16, "cpu_ns", boehm, NEW_16_INLINE),
    _alone("write barrier", "ns", BARRIER, "more_ns"),
    _alone("longest step", "ms", STEPS, "longest_ms"),
    _alone("marking in steps", "x", STEPS, "mark_ratio"),
)


if __name__ == "__main__":
    sys.exit(Bench("collector").main(ROWS, Path(__file__).name, __doc__ or ""))

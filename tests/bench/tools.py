# SPDX-License-Identifier: Apache-2.0
"""What the tests of bench/ share: contenders, targets and runs that were never made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from runner.contenders import Contender
from runner.runs import Job, Result, Run
from scoreboard import targets_file
from scoreboard.judge import Rules
from scoreboard.machine import Machine
from scoreboard.targets import Target

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"

FILE = targets_file.load(BENCH / "scoreboard/targets.toml")
TARGETS = FILE.rows

MACHINES = {
    "fast": Machine("GenuineIntel", 6, 167, "some Xeon"),
    "slow": Machine("AuthenticAMD", 25, 17, "some EPYC"),
}
THREE = Rules(3)  # as many repetitions as most runs of the tests have

INLINE = Contender("spanwise", "inline", Path("bench_spanwise"), "inline", None, "0.1.0")
SNMALLOC = Contender("snmalloc", "linked", Path("bench_peer_snmalloc"), "linked", None, "0.7.6")
PRELOAD = Contender("spanwise", "preload", Path("bench_malloc"), "malloc", Path("face.so"))
MIMALLOC = Contender("mimalloc", "linked", Path("bench_peer_mimalloc"), "linked", None, "2.0.9")


def make_target(**changes: Any) -> Target:
    row: dict[str, Any] = {
        "name": "pair",
        "bench": "pair/16",
        "ours": "inline",
        "peers": "linked",
        "target": 1.5,
        "reference": ["snmalloc >= 0.7"],
        **changes,
    }
    kept = {key: value for key, value in row.items() if value is not None}
    return targets_file.parse_row(kept, MACHINES)


def make_run(series: dict[Contender, list[float]], bench: str = "pair/16") -> Run:
    """Nanoseconds a repetition for each contender."""
    jobs = [Job(bench, contender) for contender in series]
    count = len(next(iter(series.values())))
    repetitions = [
        {job.key: Result({"op": series[job.contender][i] * 1e-9}, 1000) for job in jobs}
        for i in range(count)
    ]
    return Run(jobs, repetitions)


def run_of(series: dict[tuple[str, Contender], list[dict[str, float]]]) -> Run:
    """Values by counter, for each row and contender, a mapping a repetition."""
    jobs = [Job(bench, contender) for bench, contender in series]
    count = max(len(rows) for rows in series.values())
    repetitions = [
        {
            job.key: Result(series[job.bench, job.contender][i], 1)
            for job in jobs
            if i < len(series[job.bench, job.contender])
        }
        for i in range(count)
    ]
    return Run(jobs, repetitions)


def counted_paths() -> set[str]:
    """The names in the tables of bench/rows/paths_*.c."""
    sources = [path.read_text() for path in (BENCH / "rows").glob("paths_*.c")]
    return {name for text in sources for name in re.findall(r'^    \{"(\w+)", ', text, re.M)}

# SPDX-License-Identifier: Apache-2.0
"""The benchmark cases of the Go library GoMem on ours, beside the figures on record; never scored.

bench_gomem runs what the cases do. Where one has a range, ours has it on each back end: `ours` is
the usual one, which no build of the original has, `single` stands beside the original's default
build, `two` beside that of its tag twotree. The figures on record are those of another machine.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path

from runner import children
from runner.errors import BenchError
from runner.text import text_table

RECORD = Path(__file__).resolve().parents[1] / "gomem/recorded.json"
PROGRAM = "bench_gomem"
USUAL = ("wide", "spanwise")
"""Contenders of the column `ours`; a case is of one of them."""
BUILDS = {"treap": "single", "twotree": "two"}
"""Builds of the original, and our back end that stands beside each."""

Times = Mapping[str, Mapping[str, float]]
"""Nanoseconds a round, by contender and case."""


def recorded() -> Times:
    """The original's figures on record, by case and build."""
    cases: Times = json.loads(RECORD.read_text(encoding="utf-8"))["cases"]
    return cases


def parse_times(told: str) -> dict[str, dict[str, float]]:
    """Nanoseconds a round by contender and case, of what the program prints as JSON.

    A case of several threads counts by elapsed time, as the original does; others by that of the
    processor.
    """
    found: dict[str, dict[str, float]] = {}
    for each in json.loads(told)["benchmarks"]:
        contender, _, case = each["run_name"].split("/")[:3]
        time = each["real_time" if each["threads"] > 1 else "cpu_time"]
        found.setdefault(contender, {})[case] = float(time)
    return found


def own_times(build: Path, *, rounds: int, quick: bool) -> dict[str, dict[str, float]]:
    """Medians of so many runs of the program.

    Raises:
        BenchError: it is not there, or failed.
    """
    program = build / PROGRAM
    if not program.is_file():
        raise BenchError(f"{program}: not there; ./dev bench builds it")
    words = [f"--benchmark_min_time={0.0001 if quick else 0.05}", "--benchmark_format=json"]
    runs = []
    for _ in range(rounds):
        done = children.run([str(program), *words])
        if done.returncode != 0:
            raise BenchError(f"{PROGRAM} ended with {done.returncode}: {done.stderr[-300:]}")
        runs.append(parse_times(done.stdout))
    return {
        contender: {case: statistics.median(run[contender][case] for run in runs) for case in cases}
        for contender, cases in runs[0].items()
    }


def cases_table(ours: Times, now: Times | None = None) -> str:
    """A line for each case that anybody has.

    Args:
        ours: by contender and case.
        now: the original's times of a moment ago, by build and case; None: it did not run.
    """
    on_record = recorded()
    head = ["the original's own case, ns", "ours"]
    for build, backend in BUILDS.items():
        head += [backend, *([f"{build} now"] if now is not None else []), f"{build} on record"]
    names = {*on_record, *(case for cases in ours.values() for case in cases)}
    for cases in (now or {}).values():
        names |= set(cases)
    lines = []
    for name in sorted(names):
        usual = next((ours[each][name] for each in USUAL if name in ours.get(each, {})), None)
        line: list[float | None] = [usual]
        for build, backend in BUILDS.items():
            line.append(ours.get(backend, {}).get(name))
            if now is not None:
                line.append(now[build].get(name))
            line.append(on_record.get(name, {}).get(build))
        lines.append([name, *("-" if time is None else f"{time:.4g}" for time in line)])
    return text_table(head, lines)

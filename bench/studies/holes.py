# SPDX-License-Identifier: Apache-2.0
"""What a request costs in a pool of 10,000 holes, by back end, beside plain references.

Two rows of bench_ranges, of every back end of ours and of every reference: `fragmented`, a request
and its free at once; and `replaced`, where 256 requests live at a time and the oldest is freed.
Sizes are random, up to 4 KiB. A refused request is quick: how many of a thousand were refused
stands beside the time. Buddies have units of 1 KiB, so their pool is a coarser one.

    ./dev study holes --rounds 10 --plot docs/holes.png      1 minute
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import children
from runner.command import run_command
from runner.drawing import OTHERS, OURS, bars, pyplot, save
from runner.errors import BenchError
from runner.provenance import measured_here
from runner.stats import Interval, interval
from runner.text import text_table

BUILD = Path(__file__).resolve().parents[2] / "build/bench"
OWN = ("wide", "single", "two", "buddy")
REFERENCES = ("reference_single", "reference_two", "reference_buddy")
SHAPES = {
    "fragmented": "a request, freed at once",
    "replaced": "a request and the free of an older one",
}
MIN_TIME_S, QUICK_S = 0.1, 0.0001


@dataclass(frozen=True)
class Cost:
    """Of one contender and shape.

    Attributes:
        ns: processor time of a round.
        refused: requests of a thousand that got nothing.
    """

    ns: Interval
    refused: float


Costs = Mapping[tuple[str, str], Cost]
"""By contender and shape."""


def parse_costs(told: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Nanoseconds and refused requests of a thousand, of what the program prints as JSON."""
    found = {}
    for each in json.loads(told)["benchmarks"]:
        contender, _, shape = each["name"].split("/")
        refused = 1000 * float(each["refused"]) / float(each["iterations"])
        found[contender, shape] = (float(each["cpu_time"]), refused)
    return found


def measure(build: Path, rounds: int, quick: bool) -> dict[tuple[str, str], Cost]:
    """Every contender and shape, so many times, one after the other.

    Raises:
        BenchError: the program is not there, or failed.
    """
    program = build / "bench_ranges"
    if not program.is_file():
        raise BenchError(f"{program}: not there; ./dev bench builds it")
    words = [f"--benchmark_filter=^[^/]*/range/({'|'.join(SHAPES)})$", "--benchmark_format=json"]
    words.append(f"--benchmark_min_time={QUICK_S if quick else MIN_TIME_S}")
    runs = []
    for _ in range(rounds):
        done = children.run([str(program), *words])
        if done.returncode != 0:
            raise BenchError(f"bench_ranges ended with {done.returncode}: {done.stderr[-300:]}")
        runs.append(parse_costs(done.stdout))
    return {
        key: Cost(interval([run[key][0] for run in runs]), max(run[key][1] for run in runs))
        for key in runs[0]
    }


def as_text(costs: Costs) -> str:
    """A line for each contender."""
    head = ["contender"]
    for shape in SHAPES:
        head += [f"{shape}, ns", "refused of 1000"]
    lines = []
    for name in (*OWN, *REFERENCES):
        line = [name]
        for shape in SHAPES:
            cost = costs[name, shape]
            line += [f"{cost.ns.median:.0f} [{cost.ns.low:.0f}, {cost.ns.high:.0f}]"]
            line += [f"{cost.refused:.1f}"]
        lines.append(line)
    return text_table(head, lines)


def draw(costs: Costs) -> Any:
    """A panel for each shape, a bar for each contender, ours on top."""
    figure, panels = pyplot().subplots(1, 2, figsize=(10, 3.6), sharey=True)
    names = (*OWN, *REFERENCES)[::-1]
    colours = [OURS if name in OWN else OTHERS for name in names]
    for panel, (shape, what) in zip(panels, SHAPES.items(), strict=True):
        bars(panel, names, [costs[name, shape].ns for name in names], colours)
        for place, name in enumerate(names):
            refused = costs[name, shape].refused
            told = f"  {refused:.0f} of 1000 refused" if refused >= 0.5 else ""
            panel.text(costs[name, shape].ns.high, place, told, va="center", fontsize=8)
        panel.set(title=what, xlabel="processor time, ns")
        panel.set_xlim(
            0, 1.25 * max(cost.ns.high for (_, of), cost in costs.items() if of == shape)
        )
    figure.suptitle("10,000 holes, sizes up to 4 KiB: back ends of ours, and plain references")
    figure.tight_layout()
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, draws."""
    parser = argparse.ArgumentParser(
        prog="./dev study holes",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study holes --rounds 10 --plot docs/holes.png",
    )
    parser.add_argument("--quick", action="store_true", help="short runs, once, as a test")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="runs of each (10)")
    parser.add_argument("--build", type=Path, default=BUILD, help="where bench_ranges is")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="the picture")
    options = parser.parse_args(arguments)

    def work() -> int:
        rounds = 1 if options.quick else max(options.rounds, 1)
        costs = measure(options.build, rounds, options.quick)
        print(as_text(costs))
        print(f"\n{measured_here(options.build)}; medians of {rounds}, with their intervals")
        if options.plot is not None:
            save(draw(costs), options.plot, measured_here(options.build))
        return 0

    return run_command("study holes", work)

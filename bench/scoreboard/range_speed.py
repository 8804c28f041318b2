# SPDX-License-Identifier: Apache-2.0
"""How fast range allocators are: ours over a plain reference in C, in one process of bench_ranges.

Both stand behind the same calls (bench/ranges/reference.h), so what these cost is in both times. A
value is the ratio of two CPU times of one run; the limit of targets.toml is the ratio asked for.
Exit 1: a limit is missed.

Examples:
    ./dev bench --scoreboard --rows 'range*'           all rows, less than a minute
    ./dev bench --scoreboard --rows 'range*' --quick   short, once: that it runs, not how fast

It is a module, which `bench/scoreboard/scripted.py` starts as a process of its own:
    PYTHONPATH=bench .venv/bin/python -m scoreboard.range_speed --json
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
from pathlib import Path

from runner.errors import BenchError

from scoreboard import targets_file
from scoreboard.judge import MISSED
from scoreboard.loop_speed import Row, Setting, line_of, measured

PROGRAM = Path(__file__).resolve().parents[2] / "build/bench/bench_ranges"
SECONDS, QUICK_SECONDS = 0.05, 0.001


def ratio(told: str, row: str, ours: tuple[str, ...], reference: str) -> float:
    """The least time of ours over the reference's.

    Args:
        told: output of bench_ranges as JSON.
        row: of bench_ranges, behind CONTENDER/range/.
        ours: back ends, of which the quickest counts.
        reference: the contender that they are compared with.

    Raises:
        BenchError: a contender has no such row.
    """
    times = {each["name"]: float(each["cpu_time"]) for each in json.loads(told)["benchmarks"]}
    wanted = [f"{name}/range/{row}" for name in (*ours, reference)]
    for name in wanted:
        if name not in times:
            raise BenchError(f"bench_ranges has no row {name}; build it again")
    *mine, theirs = (times[name] for name in wanted)
    return min(mine) / theirs


def compare(row: str, ours: tuple[str, ...], reference: str, setting: Setting) -> float:
    """Runs the contenders of a row once, one after the other.

    Raises:
        BenchError: the program is not there, or failed.
    """
    if not PROGRAM.is_file():
        raise BenchError(f"{PROGRAM}: not there; ./dev bench builds it")
    names = "|".join((*ours, reference))
    seconds = SECONDS if setting.judged else QUICK_SECONDS
    words = [f"--benchmark_filter=^({names})/range/{row}$", f"--benchmark_min_time={seconds}"]
    words += ["--benchmark_format=json"]
    done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"bench_ranges ended with {done.returncode}")
    return ratio(done.stdout, row, ours, reference)


def _row(name: str, row: str, ours: tuple[str, ...], reference: str) -> Row:
    return Row(name, "x", functools.partial(compare, row, ours, reference))


ROWS = (
    _row("pair, single", "pair", ("single",), "reference_single"),
    _row("pair, two", "pair", ("two",), "reference_two"),
    _row("pair with 10 k holes", "fragmented", ("wide", "single", "two"), "reference_two"),
    _row("100 in sequence, single", "sequence", ("single",), "reference_single"),
    _row("100 in sequence, two", "sequence", ("two",), "reference_two"),
    _row("find, single", "find", ("single",), "reference_single"),
    _row("find, two", "find", ("two",), "reference_two"),
    _row("buddy pair", "buddy_pair", ("buddy",), "reference_buddy"),
)


def main() -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="short runs, one round")
    parser.add_argument("--rows", action="append", metavar="NAME", help="this row (repeatable)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [row for row in ROWS if options.rows is None or row.name in options.rows]
    if not chosen:
        parser.error(f"--rows {options.rows} is none of: {', '.join(r.name for r in ROWS)}")
    file = targets_file.load(Path(__file__).with_name("targets.toml"))
    limits = {row.bench: row.limit for row in file.rows if row.script == Path(__file__).name}
    rounds = 1 if options.quick else max(options.rounds, 1)
    setting = Setting(PROGRAM, rounds, not options.quick)
    rows = []
    for row in chosen:
        rows.append(measured(row, setting, limits[row.name]))
        if not options.json:
            print(line_of(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"rounds": rounds, "rows": rows}, indent=1))
    return 1 if any(row["verdict"] in (MISSED, "failed") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

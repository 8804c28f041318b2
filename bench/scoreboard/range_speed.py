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

import sys
from pathlib import Path

from scoreboard.beside_reference import Bench

BENCH = Bench("range")

ROWS = (
    BENCH.row("pair, single", "pair", ("single",), "reference_single"),
    BENCH.row("pair, two", "pair", ("two",), "reference_two"),
    BENCH.row("pair with 10 k holes", "fragmented", ("wide", "single", "two"), "reference_two"),
    BENCH.row("100 in sequence, single", "sequence", ("single",), "reference_single"),
    BENCH.row("100 in sequence, two", "sequence", ("two",), "reference_two"),
    BENCH.row("find, single", "find", ("single",), "reference_single"),
    BENCH.row("find, two", "find", ("two",), "reference_two"),
    BENCH.row("buddy pair", "buddy_pair", ("buddy",), "reference_buddy"),
)


if __name__ == "__main__":
    sys.exit(BENCH.main(ROWS, Path(__file__).name, __doc__))

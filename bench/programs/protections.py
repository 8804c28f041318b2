#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what each protection of the preloaded malloc costs: CPU time and peak RSS.

Each round runs each program once without protections and once with each set of them, one after the
other. A cell is the geometric mean over programs of the ratios to the run without protections of
the same round, with the interval of its median over rounds (bench/driver/stats.py).

Example: python bench/programs/protections.py --library build/release/libspanwise-malloc.so
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from driver.stats import Interval, geometric_mean, interval
from programs.run import lacking, load, prepared

PROGRAMS = "python objects,g++ -O1,sqlite3,perl,lua,ruby"
PROTECTIONS = ("default", "canary", "zero", "hold", "empty", "match", "sample", "hardened")


def measure(case: Mapping[str, Any], library: Path, protections: str) -> tuple[float, float]:
    """Run a program; return its CPU seconds and its peak RSS in KiB.

    Raises:
        RuntimeError: it failed.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SPANWISE_")}
    more = {"LD_PRELOAD": str(library), "SPANWISE_PROTECT": protections, "PYTHONMALLOC": "malloc"}
    null = os.open(os.devnull, os.O_RDWR)
    child = os.posix_spawn(
        case["argv"][0],
        case["argv"],
        {**clean, **case["environment"], **more, "PYTHONHASHSEED": "0"},
        file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)],
    )
    os.close(null)
    _, status, used = os.wait4(child, 0)
    if status != 0:
        raise RuntimeError(f"{case['program']} with {protections}: status {status:#x}")
    return used.ru_utime + used.ru_stime, float(used.ru_maxrss)


def cell(of: Interval) -> str:
    """Return a median and its interval as text."""
    return f"{of.median:.3f} [{of.low:.3f}, {of.high:.3f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--library", type=Path, required=True, help="libspanwise-malloc.so")
    add("--only", default=PROGRAMS, metavar="NAME,...", help=f"programs [{PROGRAMS}]")
    add(
        "--protect", default=" ".join(PROTECTIONS), metavar="'P ...'", help="sets to compare [each]"
    )
    add("--rounds", type=int, default=7, metavar="N", help="runs of each [7]")
    add("--quick", action="store_true", help="small inputs")
    options = parser.parse_args(arguments)
    library, sets = options.library.resolve(strict=True), options.protect.split()
    patterns = options.only.split(",")
    chosen = [p for p in load() if any(fnmatchcase(p["name"], each) for each in patterns)]
    chosen = [p for p in chosen if not lacking(p)]
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="spanwise-protections-") as folder:
        cases = [prepared(p, Path(folder), options.quick) for p in chosen]
        for _ in range(options.rounds):
            for case in cases:
                cpu, rss = measure(case, library, sets[0])
                for each in sets[1:]:
                    more_cpu, more_rss = measure(case, library, each)
                    row = ratios.setdefault((case["program"], each), [])
                    row.append((more_cpu / cpu, more_rss / rss))
    print(f"over {sets[0]}, {options.rounds} rounds: CPU time | peak RSS")
    for each in sets[1:]:
        rows = [ratios[case["program"], each] for case in cases]
        for kind, name in enumerate(("CPU", "RSS")):
            means = [geometric_mean([row[i][kind] for row in rows]) for i in range(options.rounds)]
            of = {
                c["program"]: interval([r[kind] for r in row]).median
                for c, row in zip(cases, rows, strict=True)
            }
            worst = max(of, key=lambda program: of[program])
            print(
                f"{each:>9} {name} {cell(interval(means))}, most {worst} {of[worst]:.2f}; ", end=""
            )
            print(", ".join(f"{program} {value:.2f}" for program, value in of.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

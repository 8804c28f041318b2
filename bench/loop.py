#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the solver, `optimize` or `sweep` and prints the time as JSON, {"s": seconds}.

Example: python bench/loop.py sweep --quick
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.optimizer.solver import NO_BOUND, WASTE_PERCENT
from spanwise.recordings.sources import write_ops

EVENTS, QUICK_EVENTS = 10_000_000, 100_000
LIVE_OBJECTS = 10_000
SWEPT_TABLES, RESIDENT_CLASSES = 50, 32
SOLVED_CLASSES, SOLVED_SIZES = 128, 4096
# Sizes that small programs request: a few common ones, and a tail.
SIZES = (16, 24, 32, 32, 40, 48, 48, 56, 64, 64, 72, 80, 96, 120, 200, 344, 512, 33, 90, 1200)


def solve(waste_percent: int) -> float:
    """Return the seconds to solve for the best tables of 1 to 128 classes over 4,096 sizes."""
    ffi, lib = _lib.ffi, _lib.lib
    options = ffi.new("sw_optimize_options *")
    lib.sw_optimize_options_init(options)
    options.classes, options.align = SOLVED_CLASSES, 8
    options.max_bytes = 8 * SOLVED_SIZES
    weights = np.zeros(lib.SW_PROFILE_SIZES, np.float64)
    rng = np.random.default_rng(1)
    weights[8 : options.max_bytes + 1 : 8] = rng.integers(1, 1_000_000, SOLVED_SIZES)
    out = ffi.new("sw_optimizer **")
    start = time.perf_counter()
    pointer = _lib.pointer(weights, "const double *")
    _lib.check(lib.sw_optimizer_create_bounded(options, waste_percent, pointer, out))
    seconds = time.perf_counter() - start
    lib.sw_optimizer_destroy(out[0])
    return seconds


def optimize(recording: Path) -> float:
    """Return the seconds of `optimize` for resident bytes, without cross-validation."""
    opened = sw.Recording.open(recording)
    start = time.perf_counter()
    sw.optimize(opened, RESIDENT_CLASSES, progress=False)
    return time.perf_counter() - start


def sweep(recording: Path) -> float:
    """Return the seconds of a sweep over 50 tables of 40 to 180 classes, on two threads."""
    made = (sw.SizeClassTable.geometric(1.04 + 0.004 * i, align=8) for i in range(200))
    tables = list(dict.fromkeys(made))[:SWEPT_TABLES]
    start = time.perf_counter()
    found = sw.sweep(recording, tables, workers=2, progress=False)
    seconds = time.perf_counter() - start
    if found.failures or len(found) != SWEPT_TABLES:
        raise SystemExit(f"{len(found)} rows, failed: {found.failures[:1]}")
    return seconds


def blocks(events: int) -> Iterator[NDArray[np.void]]:
    """Yield operations that replace random objects, a million at a time."""
    rng = np.random.default_rng(1)
    first = np.zeros(LIVE_OBJECTS, dtype=sw.OPS_DTYPE)
    first["object"] = np.arange(LIVE_OBJECTS)
    first["size"] = rng.choice(SIZES, LIVE_OBJECTS)
    yield first
    done = LIVE_OBJECTS
    while done < events:
        pairs = min(500_000, (events - done + 1) // 2)
        ops = np.zeros(2 * pairs, dtype=sw.OPS_DTYPE)
        ops["object"] = np.repeat(rng.integers(0, LIVE_OBJECTS, pairs), 2)
        ops["kind"][0::2] = 1
        ops["size"][1::2] = rng.choice(SIZES, pairs)
        ops["time_ns"] = (done + np.arange(2 * pairs)) * 50
        yield ops
        done += 2 * pairs


def main() -> None:
    """Measure one row."""
    solved: dict[str, int] = {"solver": NO_BOUND, "solver-bounded": WASTE_PERCENT}
    recorded: dict[str, Callable[[Path], float]] = {"optimize": optimize, "sweep": sweep}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("row", choices=[*solved, *recorded])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EVENTS:,} events")
    options = parser.parse_args()
    if options.row in solved:
        seconds = solve(solved[options.row])
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "steady.swt"
            write_ops(path, blocks(QUICK_EVENTS if options.quick else EVENTS))
            seconds = recorded[options.row](path)
    print(json.dumps({"s": seconds}))


if __name__ == "__main__":
    main()

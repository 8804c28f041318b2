# SPDX-License-Identifier: Apache-2.0
"""How fast the loop is: optimiser, simulator, sweep (also on a Dask cluster) and replay.

Prints a row for each with the median of the repetitions and an interval of it; --json prints the
rows in the form of the scoreboard, where the ratio is to the limit that targets.toml gives the row.
A row that cannot be measured stays, with the reason. A small input is measured, but not judged.
Exit 1: a limit is missed.

Examples:
    ./dev bench --scoreboard --rows loop           all rows; some minutes
    ./dev bench --scoreboard --rows loop --quick   small inputs, once: that it runs, not how fast

It is a module, which `bench/scoreboard/scripted.py` starts as a process of its own:
    PYTHONPATH=bench .venv/bin/python -m scoreboard.loop_speed --rows sweep --json
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from runner.errors import NoPeerError
from runner.stats import Interval, interval
from spanwise import _lib
from spanwise.optimizer.search import WASTE_PERCENT
from spanwise.optimizer.solver import NO_BOUND
from spanwise.recordings.sources import write_ops

from scoreboard import targets_file
from scoreboard.judge import MET, MISSED, NO_PEER, REPORTED

EVENTS, QUICK_EVENTS = 10_000_000, 100_000
LIVE_OBJECTS = 10_000
SWEPT_TABLES = 50
OPTIMIZED_CLASSES = 128
OPTIMIZED_SIZES = 4096
RESIDENT_CLASSES = 32
# Bytes that small programs ask for: a few common sizes and a tail.
SIZES = (16, 24, 32, 32, 40, 48, 48, 56, 64, 64, 72, 80, 96, 120, 200, 344, 512, 33, 90, 1200)


@dataclass(frozen=True)
class Setting:
    """What the rows are measured with.

    Attributes:
        recording: steady replacement of LIVE_OBJECTS objects.
        rounds: repetitions of a row.
        judged: whether the input is as large as the limits are for.
    """

    recording: Path
    rounds: int
    judged: bool


@dataclass(frozen=True)
class Row:
    """A figure.

    Attributes:
        name: of the row.
        unit: of its values.
        measure: one repetition, in the unit.
    """

    name: str
    unit: str
    measure: Callable[[Setting], float]


def optimise(_setting: Setting) -> float:
    """Seconds for every best table of 1 to 128 classes over 4,096 sizes at 8-byte steps."""
    return _optimise(NO_BOUND)


def optimise_bounded(_setting: Setting) -> float:
    """The same where no unseen size may waste more than a quarter of its slot."""
    return _optimise(WASTE_PERCENT)


def _optimise(waste_percent: int) -> float:
    ffi, lib = _lib.ffi, _lib.lib
    options = ffi.new("sw_optimize_options *")
    lib.sw_optimize_options_init(options)
    options.classes, options.align = OPTIMIZED_CLASSES, 8
    options.max_bytes = 8 * OPTIMIZED_SIZES
    weights = np.zeros(lib.SW_PROFILE_SIZES, np.float64)
    rng = np.random.default_rng(1)
    weights[8 : options.max_bytes + 1 : 8] = rng.integers(1, 1_000_000, OPTIMIZED_SIZES)
    out = ffi.new("sw_optimizer **")
    start = time.perf_counter()
    pointer = _lib.pointer(weights, "const double *")
    _lib.check(lib.sw_optimizer_create_bounded(options, waste_percent, pointer, out))
    seconds = time.perf_counter() - start
    lib.sw_optimizer_destroy(out[0])
    return seconds


def optimise_resident(setting: Setting) -> float:
    """Seconds of `optimize` for the objective resident: search, trial, no cross-validation."""
    recording = sw.Recording.open(setting.recording)
    start = time.perf_counter()
    sw.optimize(recording, RESIDENT_CLASSES, progress=False)
    return time.perf_counter() - start


def optimise_two(setting: Setting) -> float:
    """Seconds of the same for two recordings of half the length each, without cross-validation."""
    return _optimise_two(setting, folds=0)


def optimise_folds(setting: Setting) -> float:
    """Seconds of that with the cross-validation which several recordings have unasked."""
    return _optimise_two(setting, folds=None)


def _optimise_two(setting: Setting, folds: int | None) -> float:
    events = len(sw.Recording.open(setting.recording))
    halves = [setting.recording.with_name(f"half-{seed}.swt") for seed in (2, 3)]
    for seed, half in zip((2, 3), halves, strict=True):
        if not half.exists():
            make_recording(half, events // 2, seed)
    start = time.perf_counter()
    sw.optimize(halves, RESIDENT_CLASSES, folds=folds, progress=False)
    return time.perf_counter() - start


def simulate(setting: Setting) -> float:
    """Nanoseconds an event of one ledger on one core, reading included."""
    recording = sw.Recording.open(setting.recording)
    start = time.perf_counter()
    ledger = recording.ledger("go")
    return (time.perf_counter() - start) * 1e9 / ledger.events


def swept_tables() -> list[sw.SizeClassTable]:
    """Fifty tables of 40 to 180 classes, all different."""
    sizes = (sw.SizeClassTable.geometric(1.04 + 0.004 * i, align=8) for i in range(200))
    different = list(dict.fromkeys(sizes))
    return different[:SWEPT_TABLES]


def sweep_threads(setting: Setting) -> float:
    """Seconds of the sweep on two threads."""
    return _sweep(setting, "threads")


def sweep_cluster(setting: Setting) -> float:
    """Seconds of the same sweep on a Dask LocalCluster of two workers; its start is not counted."""
    distributed = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        cluster.get_client() as client,
    ):
        client.run(importlib.import_module, "spanwise")
        return _sweep(setting, client.get_executor())


def _sweep(setting: Setting, executor: Any) -> float:
    start = time.perf_counter()
    found = sw.sweep(
        setting.recording, swept_tables(), executor=executor, workers=2, progress=False
    )
    seconds = time.perf_counter() - start
    if found.failures or len(found) != SWEPT_TABLES:
        raise RuntimeError(f"{len(found)} rows, failed: {found.failures[:1]}")
    return seconds


def replay(setting: Setting) -> float:
    """Nanoseconds an operation of the replay on our heap, touches included."""
    return sw.replay(setting.recording, touch="ends", drain=()).ns_per_op


ROWS = (
    Row("optimiser 4096 sizes x 128 classes", "s", optimise),
    Row("optimiser 4096 sizes x 128 classes, bounded", "s", optimise_bounded),
    Row("optimize resident, 10 M events, 32 classes", "s", optimise_resident),
    Row("optimize resident, 2 x 5 M events, 32 classes", "s", optimise_two),
    Row("optimize resident, 2 x 5 M events, 32 classes, folds", "s", optimise_folds),
    Row("simulator, an event", "ns", simulate),
    Row("sweep 50 tables x 10 M events", "s", sweep_threads),
    Row("sweep 50 tables x 10 M events, Dask", "s", sweep_cluster),
    Row("replay, an operation", "ns", replay),
)


def choose(texts: list[str] | None) -> list[Row]:
    """The rows of those names, or with one of the texts in their names; None: all."""
    if texts is None:
        return list(ROWS)
    exact = {row.name for row in ROWS} & set(texts)
    loose = [text for text in texts if text not in exact]
    return [row for row in ROWS if row.name in exact or any(t in row.name for t in loose)]


def limits() -> dict[str, float | None]:
    """The limits of bench/scoreboard/targets.toml, in the unit of the row."""
    every = targets_file.load(Path(__file__).with_name("targets.toml"))
    return {row.bench: row.limit for row in every.rows if row.script == Path(__file__).name}


def measured(row: Row, setting: Setting, limit: float | None) -> dict[str, Any]:
    """The row in the form of the scoreboard; a failure is its note."""
    found: Interval | None = None
    reached = REPORTED
    note = "" if setting.judged else "small input: not judged"
    try:
        found = interval([row.measure(setting) for _ in range(setting.rounds)])
    except NoPeerError as error:
        note = str(error)
        reached = NO_PEER
    except Exception as error:
        note = " ".join(f"{type(error).__name__}: {error}".split())
        reached = "failed"
    ratio = None
    if found is not None and limit is not None:
        low, high = found.low / limit, found.high / limit
        ratio = Interval(found.median / limit, low, high, found.coverage, found.count)
    if ratio is not None and setting.judged:
        reached = MET if ratio.high <= 1 else MISSED
    return {
        "name": row.name,
        "unit": row.unit,
        "ours": found.median if found else None,
        "ours_low": found.low if found else None,
        "ours_high": found.high if found else None,
        "peer_name": "limit" if limit is not None else None,
        "peer": limit,
        "ratio": ratio.median if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "target": 1.0 if limit is not None else None,
        "verdict": reached,
        "note": note,
    }


def line_of(row: dict[str, Any]) -> str:
    """The row for people."""
    if row["ours"] is None:
        return f"{row['name']:<38} {row['verdict']}: {row['note']}"
    spread = f"({row['ours_low']:.3g}..{row['ours_high']:.3g})"
    limit = f"limit {row['peer']:g} {row['unit']}: " if row["peer"] is not None else ""
    value = f"{row['ours']:>8.3g} {row['unit']:<2} {spread:<18}"
    return f"{row['name']:<38} {value} {limit}{row['verdict']}"


def blocks(events: int, live: int, seed: int = 1) -> Iterator[NDArray[np.void]]:
    """Steady replacement, a million operations at a time."""
    rng = np.random.default_rng(seed)
    first = np.zeros(live, dtype=sw.OPS_DTYPE)
    first["object"] = np.arange(live)
    first["size"] = rng.choice(SIZES, live)
    yield first
    done = live
    while done < events:
        pairs = min(500_000, (events - done + 1) // 2)
        ops = np.zeros(2 * pairs, dtype=sw.OPS_DTYPE)
        ops["object"] = np.repeat(rng.integers(0, live, pairs), 2)
        ops["kind"][0::2] = 1
        ops["size"][1::2] = rng.choice(SIZES, pairs)
        ops["time_ns"] = (done + np.arange(2 * pairs)) * 50
        yield ops
        done += 2 * pairs


def make_recording(path: Path, events: int, seed: int = 1) -> None:
    """Steady replacement, on disk."""
    write_ops(path, blocks(events, LIVE_OBJECTS, seed))


def main() -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EVENTS:,} events, one round")
    parser.add_argument(
        "--rows",
        action="append",
        metavar="TEXT",
        help="only the row TEXT, or rows with TEXT in the name (repeatable)",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = choose(options.rows)
    if not chosen:
        parser.error(f"--rows {options.rows} matches none of: {', '.join(r.name for r in ROWS)}")
    events, rounds = (
        (QUICK_EVENTS, 1) if options.quick else (options.events, max(options.rounds, 1))
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder) / "steady.swt", rounds, events >= EVENTS)
        make_recording(setting.recording, events)
        asked = limits()
        for row in chosen:
            rows.append(measured(row, setting, asked.get(row.name)))
            if not options.json:
                print(line_of(rows[-1]), flush=True)
    if options.json:
        about = {"events": events, "rounds": rounds, "cpus": os.cpu_count()}
        print(json.dumps({**about, "load": os.getloadavg()[0], "rows": rows}, indent=1))
    return 1 if any(row["verdict"] in (MISSED, "failed") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

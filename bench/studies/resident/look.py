# SPDX-License-Identifier: Apache-2.0
"""Records, simulates and measures one program at one input."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from real.launch import finish, start
from runner.contenders import PRELOADS
from spanwise._lib import lib
from spanwise.measure.process_ledger import ProcessLedger, read_process_ledger
from spanwise.measure.running import find_face
from spanwise.recordings.recorder import run_recorded

from studies.resident.figures import Figures, OtherRuns, SameRuns
from studies.resident.outside import outside_at_most
from studies.resident.programs import Program, argv_of
from studies.resident.shares import fitted, written

STILL = sw.HeapOptions(decay_ms=math.inf)
"""Options under which no page goes back by the clock."""
SEEDS = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
MORE_RUNS = 5
"""So many times as many runs are made of a program that differs from run to run."""

Told = tuple[sw.Recording, ProcessLedger]
"""A run's recording, and what the malloc beneath the recorder told of the same run."""


@contextmanager
def quiet() -> Iterator[None]:
    """Throws away what programs print."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def middle(values: Iterable[float]) -> int:
    """The median, as an integer."""
    return round(statistics.median(values))


def recorded(argv: list[str], path: Path, env: dict[str, str], repeat: int) -> list[sw.Recording]:
    """Recordings of a program: one where a second is the same to the byte, else `repeat`."""
    found: list[sw.Recording] = []
    for number in range(max(2, repeat)):
        told = run_recorded(argv, path.with_suffix(f".{number}.swt"), stacks=0, env=env)
        found.append(told.recordings()[0])
        if number == 1 and len({one.summary.allocated_bytes for one in found}) == 1:
            return found[:1]
    return found


def recorded_here(
    program: Program, argv: list[str], path: Path, env: dict[str, str], tracked: bool
) -> Told:
    """A run on the preloaded malloc that is recorded at the same time.

    The recorder calls the malloc beneath it. It records operator new as the malloc that the C++
    library calls, so that library is preloaded before ours, which defines operators of its own.

    Raises:
        StateError: it told no resident bytes.
    """
    ledger = path.with_suffix(".json")
    between = ["libstdc++.so.6"] if program.cxx else []
    variables = {
        "LD_PRELOAD": ":".join([*between, str(find_face(None, None))]),
        "SPANWISE_LEDGER": str(ledger),
        "SPANWISE_TRACKED": str(int(tracked)),
        "SPANWISE_DECAY_MS": "never",
    }
    recording = run_recorded(argv, path, stacks=0, env={**env, **variables}).recordings()[0]
    told = read_process_ledger(ledger)
    if told.ledger.resident_bytes is None or (tracked and told.peak is None):
        raise sw.StateError(f"{program.name}: a recorded run told no resident bytes")
    return recording, told


def live_bytes(ops: NDArray[np.void]) -> NDArray[np.int64]:
    """Requested bytes that live after each operation."""
    order = np.argsort(ops["object"], kind="stable")
    kind = ops["kind"][order]
    size = np.where(kind == lib.SW_OP_FREE, 0, ops["size"][order]).astype(np.int64)
    # Ends of threads are left out: they name no object.
    named = kind != lib.SW_OP_THREAD_END
    order, size, objects = order[named], size[named], ops["object"][order][named]
    before = np.concatenate([[0], size[:-1]])
    before[np.concatenate([[True], objects[1:] != objects[:-1]])] = 0
    change = np.zeros(len(ops), np.int64)
    change[order] = size - before
    live: NDArray[np.int64] = np.cumsum(change)
    return live


def moment_of(recording: sw.Recording, requested_bytes: int) -> str:
    """The first moment with so many live bytes, as `at` takes it; else the moment of the peak.

    A tracked run tells its ledger of a moment at most 1/32 below its peak (docs/design/malloc.md).
    """
    live = live_bytes(np.asarray(recording.ops))
    return f"#{int(np.argmax(live >= min(requested_bytes, int(live.max())))) + 1}"


def plain_runs(
    argv: list[str], env: dict[str, str], options: sw.HeapOptions | None, count: int
) -> list[ProcessLedger]:
    """What plain runs told.

    Raises:
        StateError: none told its resident bytes.
    """
    every = [sw.run(argv, tracked=False, env=env, options=options).main for _ in range(count)]
    told = [run for run in every if run is not None and run.ledger.resident_bytes is not None]
    if not told:
        raise sw.StateError(f"{argv[0]}: no run told resident bytes")
    return told


def resident_of(ledger: sw.Ledger | None) -> int:
    """Its resident bytes; 0 where they are not known."""
    return 0 if ledger is None else ledger.resident_bytes or 0


def predicted(recording: sw.Recording, at: str, options: sw.HeapOptions) -> int:
    """Resident bytes of the heap, simulated."""
    return resident_of(recording.ledger("c16", at, options=options))


def shares_of(runs: list[Told], differs: bool) -> tuple[float, float]:
    """Shares that are written: when most is requested, and of all the run. Medians."""
    then = statistics.median(written(told.peak) for _, told in runs if told.peak is not None)
    chosen = runs if differs else runs[:1]
    fits = [fitted(one, then, resident_of(told.ledger), STILL) for one, told in chosen]
    return then, statistics.median(fits)


def same_end(runs: list[Told], options: sw.HeapOptions) -> tuple[SameRuns, SameRuns]:
    """Resident and held bytes at the end of runs that were recorded."""
    ends = [one.ledger("c16", "end", options=options) for one, _ in runs]
    resident = SameRuns(
        [resident_of(one) for one in ends], [resident_of(told.ledger) for _, told in runs]
    )
    held = SameRuns([one.held_bytes for one in ends], [told.ledger.held_bytes for _, told in runs])
    return resident, held


def same_peak(runs: list[Told], options: sw.HeapOptions) -> SameRuns:
    """Resident bytes at the moments of which tracked runs that were recorded told a ledger."""
    pairs = [(one, told.peak) for one, told in runs if told.peak is not None]
    return SameRuns(
        [predicted(one, moment_of(one, peak.requested_bytes), options) for one, peak in pairs],
        [resident_of(peak) for _, peak in pairs],
    )


def look(program: Program, size: int, repeat: int, folder: Path, launcher: Path) -> Figures:
    """Records, simulates and measures one program at one input."""
    argv = argv_of(program, size, folder)
    env = {**os.environ, **SEEDS}
    path = folder / f"{program.name}-{size}.swt"
    with quiet():
        recordings = recorded(argv, path, env, MORE_RUNS * repeat)
        differs = len(recordings) > 1
        count = MORE_RUNS * repeat if differs else repeat
        runs = plain_runs(argv, env, None, count)
        still_runs = plain_runs(argv, env, STILL, count)
        tracked, plain = (
            [
                recorded_here(program, argv, path.with_suffix(f".{kind}-{n}.swt"), env, kind)
                for n in range(repeat)
            ]
            for kind in (True, False)
        )
        watched = outside_at_most(argv, env)
    shares = shares_of(tracked, differs)
    then, later = (replace(STILL, large_touched_percent=share) for share in shares)
    clock = replace(later, decay_ms=None)
    peak = recordings[0].ledger("c16", "peak-resident", options=clock)
    assert peak.resident is not None
    ends, still_ends = ([resident_of(run.ledger) for run in some] for some in (runs, still_runs))
    outside = [(run.ledger.rss_bytes or 0) - own for run, own in zip(runs, ends, strict=True)]
    then_outside = max(middle(outside), watched - peak.resident.metadata_bytes)
    highest = [predicted(one, "peak-resident", clock) for one in recordings]

    def at_end(options: sw.HeapOptions, measured: list[int]) -> OtherRuns:
        return OtherRuns([predicted(one, "end", options) for one in recordings], measured)

    return Figures(
        f"{program.name}, {size:,}",
        differs,
        shares,
        peak,
        at_end(later, still_ends),
        at_end(STILL, still_ends),
        at_end(clock, ends),
        *same_end(plain, later),
        same_peak(tracked, then),
        OtherRuns([then_outside + one for one in highest], [run.peak_rss_bytes for run in runs]),
        [*outside, then_outside],
        peer_peaks(argv, folder, launcher),
    )


def peer_peaks(argv: list[str], folder: Path, launcher: Path) -> dict[str, int | None]:
    """Peak RSS under glibc and the libraries that Debian has of others."""
    found: dict[str, int | None] = {}
    added = {"PYTHONMALLOC": "malloc", **SEEDS}
    for name, library in [("glibc", ""), *((n, file) for n, (file, _) in PRELOADS.items())]:
        place = folder / "peer" / name
        place.mkdir(parents=True, exist_ok=True)
        usage = finish(start(launcher, library, argv, place, added), place)
        found[name] = None if usage.error else usage.peak_rss_bytes
    return found

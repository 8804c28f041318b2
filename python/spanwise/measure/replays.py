# SPDX-License-Identifier: Apache-2.0
"""Replays: a recording's operations with real memory, in a process of its own, measured.

Method: docs/design/replay.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise.measure.replay_result import SAMPLES_DTYPE, Replay, Run
from spanwise.measure.replayer import (
    TOUCHES,
    Allocator,
    allocator_named,
    operations_file,
    run_program,
)
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import as_recording
from spanwise.recordings.simulate import most_resident
from spanwise.recordings.sources import OneThread
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import as_rows
from spanwise.tables.table import SizeClassTable, as_table

DRAIN_SECONDS = (0.1, 1.0, 5.0)
REPEAT_MAX = 1000


def replay(
    recording: Recording | str | os.PathLike[str],
    allocator: str = "spanwise",
    *,
    table: SizeClassTable | str | None = None,
    lib: str | os.PathLike[str] | None = None,
    touch: str = "pages",
    repeat: int = 1,
    samples: int = 256,
    drain: Sequence[float] = DRAIN_SECONDS,
    progress: Progress = None,
) -> Replay:
    """Does a recording's operations with real memory, in a process of its own.

    Each recorded thread is played by a thread, and operations on one object keep their order.

    Args:
        recording: what is replayed, or its file.
        allocator: "spanwise", "glibc", "jemalloc", "mimalloc", "tcmalloc" or the path of a library
            that defines malloc.
        table: for spanwise: a heap with this table, made at run time, not the preloaded malloc.
        lib: for spanwise: the preloaded malloc of a folder that `spanwise build` made.
        touch: what is written of each new object: "none", "ends", "pages" (a byte in each 4 KiB,
            and the ends) or "all".
        repeat: so many replays, each in a fresh process.
        samples: resident memory is read about so often; 1 to 4000.
        drain: memory is read again so many seconds after all was freed; rising.
        progress: as of `Recording.ledger`.

    Raises:
        InvalidError: for an argument that is not allowed, or a recording without operations.
        ProgramError: the allocator is not there, or does not serve malloc, or the replay died.
        TraceFormatError: the recording is cut or damaged.
    """
    served = allocator_named(allocator, as_table(table) if table is not None else None, lib)
    replays = replay_many(
        recording,
        [served],
        touch=touch,
        repeat=repeat,
        samples=samples,
        drain=drain,
        progress=progress,
    )
    return replays[0]


def replay_many(
    recording: Recording | str | os.PathLike[str],
    allocators: Sequence[Allocator],
    *,
    touch: str = "pages",
    repeat: int = 1,
    samples: int = 256,
    drain: Sequence[float] = DRAIN_SECONDS,
    progress: Progress = None,
) -> list[Replay]:
    """As `replay`, for several allocators: their runs take turns, so that noise hits them all."""
    source = as_recording(recording)
    rounds = _lib.as_index(repeat, "repeat", REPEAT_MAX)
    if rounds == 0:
        raise errors.InvalidError("repeat 0: give at least 1")
    words = [
        f"touch={_touch(touch)}",
        f"samples={_lib.as_index(samples, 'samples', 4000)}",
        f"drain={','.join(str(ms) for ms in _drain_ms(drain))}",
    ]
    if len(source) == 0:
        raise errors.InvalidError(f"{source.name}: no operations; record something that allocates")
    results: list[list[dict[str, Any]]] = [[] for _ in allocators]
    runs: list[list[Run]] = [[] for _ in allocators]
    total = len(source) * rounds * len(allocators)
    with (
        operations_file(source) as fd,
        progress_bar(progress, total, "replay", "operations") as tell,
    ):
        for _ in range(rounds):
            for i, allocator in enumerate(allocators):
                told, seen = run_program(fd, allocator, words, tell)
                results[i].append(told)
                runs[i].append(_run(told, seen, source.summary.peak_op))
    alone = OneThread(source._source)
    ideal_bytes = most_resident(alone, as_table("c16"), name=source.name)
    return [
        Replay(
            source=source.name,
            allocator=allocator.label,
            ops=source.events,
            threads=results[i][0]["threads"],
            crossings=results[i][0]["crossings"],
            peak_requested_bytes=source.summary.peak_requested_bytes,
            ideal_bytes=ideal_bytes,
            touch=touch,
            above_table=_above(source, allocator.table),
            runs=tuple(runs[i]),
        )
        for i, allocator in enumerate(allocators)
    ]


# --- helpers --------------------------------------------------------------------------------------


def _touch(touch: str) -> str:
    if touch not in TOUCHES:
        raise errors.InvalidError(f"touch {touch!r}: use {', '.join(TOUCHES)}")
    return touch


def _drain_ms(seconds: Sequence[float]) -> list[int]:
    times = [round(at * 1000) for at in seconds]
    if (
        len(times) > 16
        or times != sorted(set(times))
        or any(not 0 <= t <= 3_600_000 for t in times)
    ):
        raise errors.InvalidError(
            f"drain {', '.join(f'{at:g}' for at in seconds)}: give at most 16 rising times, in"
            " seconds, to an hour"
        )
    return times


def _run(told: dict[str, Any], seen: NDArray[np.void], peak_op: int) -> Run:
    own = told["own_rss_bytes"]
    samples = np.array([tuple(row) for row in told["samples"]], SAMPLES_DTYPE)
    samples["rss_bytes"] = np.maximum(samples["rss_bytes"] - own, 0)
    timeline = seen[seen["wall_ns"] >= told["first_ns"]]
    timeline["wall_ns"] -= told["first_ns"]
    timeline["rss_bytes"] = np.maximum(timeline["rss_bytes"] - own, 0)
    for rows in (samples, timeline):
        rows.flags.writeable = False
    outside = int(timeline["rss_bytes"].max()) if len(timeline) else 0
    at_peak = samples["rss_bytes"][samples["op"] == peak_op]
    return Run(
        **{name: told[name] for name in ("cpu_ns", "elapsed_ns", "waited_ns", "waits")},
        **{name: told[name] for name in ("overhead_ns", "failed", "minor_faults", "plan_bytes")},
        own_bytes=own,
        startup_rss_bytes=told["startup_rss_bytes"],
        peak_rss_bytes=max(int(samples["rss_bytes"].max()), outside),
        rss_at_peak_bytes=int(at_peak[0]) if len(at_peak) else 0,
        drained_rss_bytes=max(told["drained_rss_bytes"] - own, 0),
        left_bytes={ms / 1000: max(left - own, 0) for ms, left in told["returned"]},
        malloc=told["malloc"],
        addresses=_addresses(told),
        samples=as_rows(samples),
        timeline=as_rows(timeline),
    )


def _addresses(told: dict[str, Any]) -> tuple[int, int] | None:
    if told["threads"] > 1:
        return None
    return told["address_digest_peak"], told["address_digest_end"]


def _above(recording: Recording, table: SizeClassTable | None) -> int | None:
    if table is None:
        return None
    sizes = recording.histogram()
    return int(sizes["count"][sizes["size_bytes"] > table.largest_bytes].sum())

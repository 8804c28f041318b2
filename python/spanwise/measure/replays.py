# SPDX-License-Identifier: Apache-2.0
"""Replay recordings with real memory, in a process of their own (docs/design/replay.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
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
from spanwise.results.rows import Result, Value, as_rows
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
    """Replay a recording with real memory, in a process of its own.

    Each recorded thread becomes a thread, and operations on one object keep their order.

    Args:
        recording: a recording or its file.
        allocator: "spanwise", "glibc", "jemalloc", "mimalloc", "tcmalloc" or the path of a library
            that defines malloc.
        table: for spanwise: a run-time heap with this table instead of the preloaded malloc.
        lib: for spanwise: the preloaded malloc of a folder of `spanwise build`.
        touch: bytes written of each new object: "none", "ends", "pages" (a byte per 4 KiB and the
            ends) or "all".
        repeat: number of replays, each in a fresh process.
        samples: approximate number of readings of resident memory; 1 to 4000.
        drain: times of further readings, seconds after everything was freed, ascending.
        progress: as of `Recording.ledger`.

    Raises:
        InvalidError: for an argument that is not allowed, or a recording without operations.
        ProgramError: the allocator is missing or does not serve malloc, or the replay crashed.
        TraceFormatError: the recording is truncated or damaged.
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
    """Replay as `replay` does under several allocators, with interleaved runs."""
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
        progress_bar(progress, total, "replay", "operations") as step,
    ):
        for _ in range(rounds):
            for i, allocator in enumerate(allocators):
                output, seen = run_program(fd, allocator, words, step)
                results[i].append(output)
                runs[i].append(_run(output, seen, source.summary.peak_op))
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


def _run(output: dict[str, Any], seen: NDArray[np.void], peak_op: int) -> Run:
    own = output["own_rss_bytes"]
    samples = np.array([tuple(row) for row in output["samples"]], SAMPLES_DTYPE)
    samples["rss_bytes"] = np.maximum(samples["rss_bytes"] - own, 0)
    timeline = seen[seen["wall_ns"] >= output["first_ns"]]
    timeline["wall_ns"] -= output["first_ns"]
    timeline["rss_bytes"] = np.maximum(timeline["rss_bytes"] - own, 0)
    for rows in (samples, timeline):
        rows.flags.writeable = False
    outside = int(timeline["rss_bytes"].max()) if len(timeline) else 0
    at_peak = samples["rss_bytes"][samples["op"] == peak_op]
    return Run(
        **{name: output[name] for name in ("cpu_ns", "elapsed_ns", "waited_ns", "waits")},
        **{name: output[name] for name in ("overhead_ns", "failed", "minor_faults", "plan_bytes")},
        own_bytes=own,
        startup_rss_bytes=output["startup_rss_bytes"],
        peak_rss_bytes=max(int(samples["rss_bytes"].max()), outside),
        rss_at_peak_bytes=int(at_peak[0]) if len(at_peak) else 0,
        drained_rss_bytes=max(output["drained_rss_bytes"] - own, 0),
        left_bytes={ms / 1000: max(left - own, 0) for ms, left in output["returned"]},
        malloc=output["malloc"],
        addresses=_addresses(output),
        samples=as_rows(samples),
        timeline=as_rows(timeline),
    )


def _addresses(output: dict[str, Any]) -> tuple[int, int] | None:
    if output["threads"] > 1:
        return None
    return output["address_digest_peak"], output["address_digest_end"]


def _above(recording: Recording, table: SizeClassTable | None) -> int | None:
    if table is None:
        return None
    sizes = recording.histogram()
    return int(sizes["count"][sizes["size_bytes"] > table.largest_bytes].sum())


# --- the ledger of a replay -----------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class LedgerCheck(Result, Value):
    """The ledger of a tracked heap with real memory, and that of the simulator.

    Attributes:
        measured: parts of the real heap's ledger in bytes, and held_bytes, spans, live_objects.
        model: the simulator's ledger.
    """

    measured: dict[str, int]
    model: Ledger

    @property
    def different(self) -> dict[str, tuple[int, int]]:
        """Unequal parts: (measured, model); empty if all are equal to the byte."""
        pairs = {
            name: (self.measured[name], int(getattr(self.model, name))) for name in self.measured
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "table": self.model.table,
            "at": self.model.at,
            "equal": not self.different,
            "measured": self.measured,
            "model": {name: int(getattr(self.model, name)) for name in self.measured},
        }

    def __str__(self) -> str:
        names = {**PARTS, "held_bytes": "held"}
        rows = [
            (title, _format.number(self.measured[name]), _format.number(getattr(self.model, name)))
            for name, title in names.items()
        ]
        head = ("", "real heap", "simulator")
        verdict = "equal to the byte" if not self.different else "NOT equal"
        title = f"{self.model.source} under {self.model.table} at {self.model.at}, bytes: {verdict}"
        return f"{title}\n{_format.table(rows, head, indent='  ')}"

    __repr__ = __str__


def check_ledger(
    recording: Recording | str | os.PathLike[str],
    table: SizeClassTable | str = "c16",
    at: str = "peak",
    *,
    touch: bool = True,
    progress: Progress = None,
) -> LedgerCheck:
    """Compare the ledger of a replay on a tracked heap with the simulator's.

    One thread replays with the recording's clock and a thread cache per recorded thread.

    Args:
        recording: a recording or its file.
        table: size classes, or a table's name.
        at: "peak" or "end".
        touch: write the ends of each object.
        progress: as of `Recording.ledger`.

    Raises:
        InvalidError: for another `at`, or a recording without operations. Others as of `replay`.
    """
    source = as_recording(recording)
    made = as_table(table)
    if at not in ("peak", "end"):
        raise errors.InvalidError(f"at {at!r}: use peak or end")
    if len(source) == 0:
        raise errors.InvalidError(f"{source.name}: no operations; record something that allocates")
    stop = source.summary.peak_op if at == "peak" else len(source)
    words = [f"ledger={stop}", f"touch={'ends' if touch else 'none'}"]
    with (
        operations_file(source) as fd,
        progress_bar(progress, len(source), "replay", "operations") as step,
    ):
        output, _ = run_program(fd, Allocator("spanwise", table=made), words, step)
    return LedgerCheck(output["ledger"], source.ledger(made, at))

# SPDX-License-Identifier: Apache-2.0
"""Replays: a recording's operations with real memory, in a process of its own, measured.

Method: docs/design/replay.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors, plots
from spanwise._replay_process import (
    TOUCHES,
    Allocator,
    allocator_named,
    operations_file,
    run_program,
)
from spanwise.simulate import Progress
from spanwise.sizeclass import SizeClassTable, as_table
from spanwise.trace import Recording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAMPLES_DTYPE = np.dtype(
    [
        ("op", "<i8"),
        ("time_ns", "<i8"),
        ("live_bytes", "<i8"),
        ("live_objects", "<i8"),
        ("wall_ns", "<i8"),
        ("rss_bytes", "<i8"),
    ]
)
"""One row of `Run.samples`: operations done, time of the recording, what is live then, time of the
replay, resident bytes less the replayer's own."""

DRAIN_SECONDS = (0.1, 1.0, 5.0)
REPEAT_MAX = 1000


@dataclass(frozen=True)
class Run:
    """One replay. Bytes are anonymous resident bytes of the process less the replayer's own.

    Attributes:
        cpu_ns: processor time in operations and touches, all threads, without waits.
        elapsed_ns: clock time in which operations were done, waits included.
        waited_ns: processor time spent waiting for objects of other threads; waits: how often.
        overhead_ns: processor time of the replayer's own loop over the operations, measured apart
            and by one thread; it is part of cpu_ns.
        failed: allocations that were refused.
        minor_faults: pages that the system gave, while operations were done.
        own_bytes: what the replayer's own tables took, subtracted everywhere; plan_bytes of it
            hold the operations.
        startup_bytes: resident when the program began: the process and what its allocator takes
            at once. Not subtracted.
        peak_rss_bytes: the highest that was seen, at a sample or from outside.
        rss_at_peak_bytes: when the recording's live bytes are at their peak.
        drained_bytes: after everything was freed.
        returned: bytes left so many seconds after that: {seconds: bytes}.
        malloc: file that malloc came from.
        addresses: digests of the live objects' relative addresses at the peak of live bytes and at
            the end; None where there are several threads.
        samples: structured array of SAMPLES_DTYPE, at every k-th operation and at the peak.
        timeline: structured array of (wall_ns, rss_bytes), seen from outside every 5 ms.
    """

    cpu_ns: int
    elapsed_ns: int
    waited_ns: int
    waits: int
    overhead_ns: int
    failed: int
    minor_faults: int
    own_bytes: int
    plan_bytes: int
    startup_bytes: int
    peak_rss_bytes: int
    rss_at_peak_bytes: int
    drained_bytes: int
    returned: dict[float, int]
    malloc: str
    addresses: tuple[int, int] | None
    samples: NDArray[np.void]
    timeline: NDArray[np.void]

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; arrays as lists of columns."""
        value = {n: getattr(self, n) for n in self.__dataclass_fields__}
        value["returned"] = {f"{seconds:g}": left for seconds, left in self.returned.items()}
        for name in ("samples", "timeline"):
            rows = value[name]
            value[name] = {column: rows[column].tolist() for column in rows.dtype.names or ()}
        return value


@dataclass(frozen=True, repr=False)
class Replay:
    """What replaying a recording under one allocator showed.

    Attributes:
        source: name of the recording.
        allocator: who served.
        ops: operations of a replay.
        threads: recorded threads, each played by one of its own.
        crossings: operations on an object that another thread had before.
        peak_live_bytes: most requested bytes live at once.
        touch: which bytes of new objects were written.
        above_table: requests above the largest class, of a run-time table; else None.
        runs: one replay each, each in a fresh process.
    """

    source: str
    allocator: str
    ops: int
    threads: int
    crossings: int
    peak_live_bytes: int
    touch: str
    above_table: int | None
    runs: tuple[Run, ...]

    @property
    def ns_per_op(self) -> float:
        """Median over the runs of processor time an operation, ns, touches included."""
        return median(run.cpu_ns for run in self.runs) / self.ops

    @property
    def ns_range(self) -> tuple[float, float]:
        """Lowest and highest of the runs, ns an operation."""
        each = [run.cpu_ns / self.ops for run in self.runs]
        return min(each), max(each)

    @property
    def overhead_ns_per_op(self) -> float:
        """Of that, the replayer's own loop (median), ns an operation."""
        return median(run.overhead_ns for run in self.runs) / self.ops

    @property
    def peak_rss_bytes(self) -> int:
        """Median over the runs of the highest resident bytes."""
        return int(median(run.peak_rss_bytes for run in self.runs))

    @property
    def blow_up(self) -> float | None:
        """Peak resident over peak live bytes; None where nothing was ever live."""
        return self.peak_rss_bytes / self.peak_live_bytes if self.peak_live_bytes else None

    @property
    def returned(self) -> dict[float, int]:
        """Median bytes left so many seconds after everything was freed."""
        times = self.runs[0].returned
        return {at: int(median(run.returned[at] for run in self.runs)) for at in times}

    @property
    def failed(self) -> int:
        """Allocations that were refused, in the worst run."""
        return max(run.failed for run in self.runs)

    @property
    def samples(self) -> NDArray[np.void]:
        """The first run's samples, structured array of SAMPLES_DTYPE."""
        return self.runs[0].samples

    @property
    def timeline(self) -> NDArray[np.void]:
        """The first run's resident bytes as seen from outside."""
        return self.runs[0].timeline

    def notes(self) -> list[str]:
        """What a reader of the numbers has to know, a line each."""
        lines = []
        if self.failed:
            lines.append(
                f"{_format.plural(self.failed, 'allocation')} refused: the numbers are of a"
                " smaller history"
            )
        if self.above_table:
            lines.append(
                f"{_format.plural(self.above_table, 'request')} above the largest class took"
                " whole pages"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        names = ("source", "allocator", "ops", "threads", "crossings", "peak_live_bytes", "touch")
        value: dict[str, Any] = {name: getattr(self, name) for name in names}
        value.update(
            ns_per_op=self.ns_per_op,
            ns_range=list(self.ns_range),
            overhead_ns_per_op=self.overhead_ns_per_op,
            peak_rss_bytes=self.peak_rss_bytes,
            blow_up=self.blow_up,
            returned={f"{at:g}": left for at, left in self.returned.items()},
            failed=self.failed,
            above_table=self.above_table,
            runs=[run.to_dict() for run in self.runs],
        )
        return value

    def cells(self) -> tuple[str, ...]:
        """One row under `head`."""
        low, high = self.ns_range
        spread = f" ({low:.1f}..{high:.1f})" if len(self.runs) > 1 else ""
        return (
            self.allocator,
            f"{self.ns_per_op:.1f}{spread}",
            _format.size(self.peak_rss_bytes),
            "-" if self.blow_up is None else f"{self.blow_up:.3f}",
            *(_format.size(left) for left in self.returned.values()),
        )

    def head(self) -> tuple[str, ...]:
        """Titles of `cells`."""
        after = (f"after {at:g} s" for at in self.returned)
        return ("allocator", "ns/op", "peak RSS", "blow-up", *after)

    def __str__(self) -> str:
        return describe([self])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _format.html_table([self.cells()], self.head(), self.source)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws resident and live bytes over the operations; returns the matplotlib Axes."""
        return plots.replays([self], ax)


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
    progress: Progress | None = None,
) -> Replay:
    """Does a recording's operations with real memory, in a process of its own.

    Each recorded thread is played by a thread, and operations on one object keep their order.

    Args:
        recording: what is replayed, or its file.
        allocator: "spanwise", "glibc", "jemalloc", "mimalloc", "tcmalloc" or the path of a library
            that defines malloc.
        table: for spanwise: a heap with this table, made at run time, instead of the malloc face.
        lib: for spanwise: the malloc face of a folder that `spanwise build` made.
        touch: what is written of each new object: "none", "ends", "pages" (a byte in each 4 KiB,
            and the ends) or "all".
        repeat: so many replays, each in a fresh process.
        samples: resident memory is read about so often; 1 to 4000.
        drain: memory is read again so many seconds after all was freed; rising.
        progress: called with the number of operations done since its last call.

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
    progress: Progress | None = None,
) -> list[Replay]:
    """As `replay`, for several allocators: their runs take turns, so that noise hits them all."""
    source = recording if isinstance(recording, Recording) else Recording.open(recording)
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
    with operations_file(source) as fd:
        for _ in range(rounds):
            for i, allocator in enumerate(allocators):
                told, seen = run_program(fd, allocator, words, progress)
                results[i].append(told)
                runs[i].append(_run(told, seen, source.summary.peak_op))
    return [
        Replay(
            source=source.name,
            allocator=allocator.label,
            ops=source.events,
            threads=results[i][0]["threads"],
            crossings=results[i][0]["crossings"],
            peak_live_bytes=source.summary.peak_requested_bytes,
            touch=touch,
            above_table=_above(source, allocator.table),
            runs=tuple(runs[i]),
        )
        for i, allocator in enumerate(allocators)
    ]


def describe(replays: Sequence[Replay]) -> str:
    """Replays of one recording as text, a row each."""
    first = replays[0]
    head = (
        f"replay of {first.source}: {_format.plural(first.ops, 'operation')},"
        f" {_format.plural(first.threads, 'thread')}, peak live"
        f" {_format.size(first.peak_live_bytes)}, touch {first.touch}"
    )
    table = _format.table([one.cells() for one in replays], first.head(), indent="  ")
    own = median(one.overhead_ns_per_op for one in replays)
    lines = [head, table, f"  of ns/op the replayer's own loop: {own:.1f}"]
    if first.crossings:
        waits = max(run.waits for one in replays for run in one.runs)
        lines.append(
            f"  {_format.plural(first.crossings, 'operation')} on another thread's objects;"
            f" at most {_format.plural(waits, 'wait')}, left out of ns/op"
        )
    lines += [f"  {one.allocator}: {note}" for one in replays for note in one.notes()]
    return "\n".join(lines)


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
        startup_bytes=told["startup_rss_bytes"],
        peak_rss_bytes=max(int(samples["rss_bytes"].max()), outside),
        rss_at_peak_bytes=int(at_peak[0]) if len(at_peak) else 0,
        drained_bytes=max(told["drained_rss_bytes"] - own, 0),
        returned={ms / 1000: max(left - own, 0) for ms, left in told["returned"]},
        malloc=told["malloc"],
        addresses=_addresses(told),
        samples=samples,
        timeline=timeline,
    )


def _addresses(told: dict[str, Any]) -> tuple[int, int] | None:
    if told["threads"] > 1:
        return None
    return told["address_digest_peak"], told["address_digest_end"]


def _above(recording: Recording, table: SizeClassTable | None) -> int | None:
    if table is None:
        return None
    sizes = recording.histogram()
    return int(sizes["count"][sizes["size"] > table.max_bytes].sum())

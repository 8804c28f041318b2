# SPDX-License-Identifier: Apache-2.0
"""What replays of a recording showed: each run of the replayer, all runs of an allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.results.rows import Result, Rows, Tabular, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SAMPLES_DTYPE = np.dtype(
    [
        ("op", "<i8"),
        ("time_ns", "<i8"),
        ("requested_bytes", "<i8"),
        ("live_objects", "<i8"),
        ("wall_ns", "<i8"),
        ("rss_bytes", "<i8"),
    ]
)
"""One row of `Run.samples`: operations done, time of the recording, what is live then, time of the
replay, resident bytes less the replayer's own."""


@dataclass(frozen=True, repr=False, eq=False)
class Run(Result, Value, Tabular):
    """One replay. Bytes are anonymous resident bytes of the process less the replayer's own.

    Attributes:
        cpu_ns: processor time in operations and touches, all threads, without waits.
        elapsed_ns: clock time in which operations were done, waits included.
        waited_ns: processor time spent waiting for objects of other threads; waits: how many times.
        overhead_ns: processor time of the replayer's own loop over the operations, measured apart
            and by one thread; it is part of cpu_ns.
        failed: allocations that were refused.
        minor_faults: pages that the system gave, while operations were done.
        own_bytes: what the replayer's own tables took, subtracted everywhere; plan_bytes of it
            hold the operations.
        startup_rss_bytes: resident when the program began: the process and what its allocator takes
            at once. Not subtracted.
        peak_rss_bytes: the highest that was seen, at a sample or from outside.
        rss_at_peak_bytes: when the recording's live bytes are at their peak.
        drained_rss_bytes: after everything was freed.
        left_bytes: bytes left so many seconds after that: {seconds: bytes}.
        malloc: file that malloc came from.
        addresses: digests of the live objects' relative addresses at the peak of live bytes and at
            the end; None where there are several threads.
        samples: rows of SAMPLES_DTYPE, at every k-th operation and at the peak.
        timeline: rows of (wall_ns, rss_bytes), seen from outside every 5 ms.
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
    startup_rss_bytes: int
    peak_rss_bytes: int
    rss_at_peak_bytes: int
    drained_rss_bytes: int
    left_bytes: dict[float, int]
    malloc: str
    addresses: tuple[int, int] | None
    samples: Rows
    timeline: Rows

    @property
    def array(self) -> Rows:
        """The same as `samples`."""
        return self.samples

    def __repr__(self) -> str:
        return f"<Run: peak RSS {_format.size(self.peak_rss_bytes)}, {self.cpu_ns:,} ns>"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; arrays as lists of columns."""
        value = {n: getattr(self, n) for n in self.__dataclass_fields__}
        value["left_bytes"] = {f"{seconds:g}": left for seconds, left in self.left_bytes.items()}
        for name in ("samples", "timeline"):
            rows = value[name]
            value[name] = {column: rows[column].tolist() for column in rows.dtype.names or ()}
        return value


@dataclass(frozen=True, repr=False, eq=False)
class Replay(Result, Value, Tabular):
    """What replaying a recording under one allocator showed.

    Attributes:
        source: name of the recording.
        allocator: who served.
        ops: operations of a replay.
        threads: recorded threads, each played by one of its own.
        crossings: operations on an object that another thread had before.
        peak_requested_bytes: most requested bytes live at once.
        ideal_bytes: peak resident bytes of an ideal one-thread allocator.
        touch: which bytes of new objects were written.
        above_table: requests above the largest class, of a run-time table; else None.
        runs: one replay each, each in a fresh process.
    """

    source: str
    allocator: str
    ops: int
    threads: int
    crossings: int
    peak_requested_bytes: int
    ideal_bytes: int
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
        """Median over the runs of the peak RSS."""
        return int(median(run.peak_rss_bytes for run in self.runs))

    @property
    def fragmentation(self) -> float | None:
        """Peak RSS over peak live bytes; None where nothing was ever live.

        So Berger and others define it, "Hoard: a scalable memory allocator" (2000).
        """
        return (
            self.peak_rss_bytes / self.peak_requested_bytes if self.peak_requested_bytes else None
        )

    @property
    def blowup(self) -> float | None:
        """Peak RSS over what an ideal one-thread allocator needs; None where that is nothing.

        Hoard's, of the same paper. Ideal is a simulated heap of spanwise (c16) that does all
        operations in one thread, with all of each object written.
        """
        return self.peak_rss_bytes / self.ideal_bytes if self.ideal_bytes else None

    @property
    def left_bytes(self) -> dict[float, int]:
        """Median bytes left so many seconds after everything was freed."""
        times = self.runs[0].left_bytes
        return {at: int(median(run.left_bytes[at] for run in self.runs)) for at in times}

    @property
    def failed(self) -> int:
        """Allocations that were refused, in the worst run."""
        return max(run.failed for run in self.runs)

    @property
    def samples(self) -> Rows:
        """The first run's samples, rows of SAMPLES_DTYPE."""
        return self.runs[0].samples

    @property
    def timeline(self) -> Rows:
        """The first run's resident bytes as seen from outside."""
        return self.runs[0].timeline

    @property
    def array(self) -> Rows:
        """The same as `samples`."""
        return self.samples

    @property
    def notes(self) -> tuple[str, ...]:
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
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        names = (
            "source",
            "allocator",
            "ops",
            "threads",
            "crossings",
            "peak_requested_bytes",
            "ideal_bytes",
            "touch",
        )
        value: dict[str, Any] = {name: getattr(self, name) for name in names}
        value.update(
            ns_per_op=self.ns_per_op,
            ns_range=list(self.ns_range),
            overhead_ns_per_op=self.overhead_ns_per_op,
            peak_rss_bytes=self.peak_rss_bytes,
            fragmentation=self.fragmentation,
            blowup=self.blowup,
            left_bytes={f"{at:g}": left for at, left in self.left_bytes.items()},
            failed=self.failed,
            above_table=self.above_table,
            runs=[run.to_dict() for run in self.runs],
        )
        return value

    def _cells(self) -> tuple[str, ...]:
        """One row under `_head`."""
        low, high = self.ns_range
        spread = f" ({low:.1f}..{high:.1f})" if len(self.runs) > 1 else ""
        return (
            self.allocator,
            f"{self.ns_per_op:.1f}{spread}",
            _format.size(self.peak_rss_bytes),
            "-" if self.fragmentation is None else f"{self.fragmentation:.3f}",
            "-" if self.blowup is None else f"{self.blowup:.3f}",
            *(_format.size(left) for left in self.left_bytes.values()),
        )

    def _head(self) -> tuple[str, ...]:
        """Titles of `_cells`."""
        after = (f"after {at:g} s" for at in self.left_bytes)
        return ("allocator", "ns/op", "peak RSS", "fragmentation", "blowup", *after)

    def __str__(self) -> str:
        return describe([self])

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table([self._cells()], self._head(), self.source)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws resident and live bytes over the operations; returns the matplotlib Axes."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.replays([self], ax)


_WRITTEN = {
    "none": "nothing written",
    "ends": "first and last byte of each object written",
    "pages": "a byte of each page written",
    "all": "every byte written",
}


def describe(replays: Sequence[Replay]) -> str:
    """Replays of one recording as text, a row each."""
    first = replays[0]
    head = (
        f"replay of {first.source}: {_format.plural(first.ops, 'operation')},"
        f" {_format.plural(first.threads, 'thread')}, peak live"
        f" {_format.size(first.peak_requested_bytes)}, {_WRITTEN[first.touch]}"
    )
    table = _format.table([one._cells() for one in replays], first._head(), indent="  ")
    own = median(one.overhead_ns_per_op for one in replays)
    lines = [head, table, f"  of ns/op the replayer's own loop: {own:.1f}"]
    if first.crossings:
        waits = max(run.waits for one in replays for run in one.runs)
        lines.append(
            f"  {_format.plural(first.crossings, 'operation')} on another thread's objects;"
            f" at most {_format.plural(waits, 'wait')}, left out of ns/op"
        )
    lines += [f"  {one.allocator}: {note}" for one in replays for note in one.notes]
    return "\n".join(lines)

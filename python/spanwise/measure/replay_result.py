# SPDX-License-Identifier: Apache-2.0
"""Results of replays: one run, and all runs under an allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.results.rows import Result, Rows, Tabular, Value, draw

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
"""A row of `Run.samples`: operations done, time of the recording, live bytes and objects, time of
the replay, resident bytes minus the replayer's own."""


@dataclass(frozen=True, repr=False, eq=False)
class Run(Result, Value, Tabular):
    """One replay. Bytes are anonymous resident bytes of the process minus the replayer's own.

    Attributes:
        cpu_ns: processor time of operations and touches, all threads, without waits.
        elapsed_ns: wall time of the operations, waits included.
        waited_ns: processor time spent waiting for objects of other threads.
        waits: number of waits.
        overhead_ns: processor time of the replayer's own loop, measured separately with one thread;
            part of cpu_ns.
        failed: failed allocations.
        minor_faults: minor page faults during the operations.
        own_bytes: the replayer's own tables, subtracted everywhere.
        plan_bytes: the part of own_bytes with the operations.
        startup_rss_bytes: resident before the first operation; not subtracted.
        peak_rss_bytes: the highest reading, at a sample or from outside.
        rss_at_peak_bytes: at the peak of the recording's live bytes.
        drained_rss_bytes: after everything was freed.
        left_bytes: {seconds after that: bytes}.
        malloc: file of malloc.
        addresses: digests of the relative addresses of live objects at the peak of live bytes and
            at the end; None with several threads.
        samples: rows at every k-th operation and at the peak. Columns: op (operations done),
            time_ns (of the recording), requested_bytes, live_objects, wall_ns (of the replay),
            rss_bytes.
        timeline: rows of (wall_ns, rss_bytes), read from outside every 5 ms.
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
        """Return a dict for JSON; arrays become lists of columns."""
        value = {n: getattr(self, n) for n in self.__dataclass_fields__}
        value["left_bytes"] = {f"{seconds:g}": left for seconds, left in self.left_bytes.items()}
        for name in ("samples", "timeline"):
            rows = value[name]
            value[name] = {column: rows[column].tolist() for column in rows.dtype.names or ()}
        return value


@dataclass(frozen=True, repr=False, eq=False)
class Replay(Result, Value, Tabular):
    """The replays of a recording under one allocator.

    Attributes:
        source: name of the recording.
        allocator: its label.
        ops: operations of a replay.
        threads: recorded threads, each replayed by its own thread.
        crossings: operations on an object that another thread used before.
        peak_requested_bytes: peak of the live requested bytes.
        ideal_bytes: peak resident bytes of an ideal one-thread allocator.
        touch: which bytes of new objects were written.
        above_table: requests above the largest class of a run-time table; else None.
        runs: the replays, each in a fresh process.
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
        """Median processor time per operation, ns, touches included."""
        return median(run.cpu_ns for run in self.runs) / self.ops

    @property
    def ns_range(self) -> tuple[float, float]:
        """Lowest and highest of the runs, ns per operation."""
        each = [run.cpu_ns / self.ops for run in self.runs]
        return min(each), max(each)

    @property
    def overhead_ns_per_op(self) -> float:
        """Median of the replayer's own loop, ns per operation."""
        return median(run.overhead_ns for run in self.runs) / self.ops

    @property
    def peak_rss_bytes(self) -> int:
        """Median over the runs of the peak RSS."""
        return int(median(run.peak_rss_bytes for run in self.runs))

    @property
    def fragmentation(self) -> float | None:
        """Peak RSS over peak live bytes; None if nothing was live.

        E. Berger and others, "Hoard: a scalable memory allocator" (2000).
        """
        return (
            self.peak_rss_bytes / self.peak_requested_bytes if self.peak_requested_bytes else None
        )

    @property
    def blowup(self) -> float | None:
        """Peak RSS over that of an ideal one-thread allocator (same paper), or None.

        The ideal is a simulated heap (c16) that does all operations in one thread and writes every
        byte of each object.
        """
        return self.peak_rss_bytes / self.ideal_bytes if self.ideal_bytes else None

    @property
    def left_bytes(self) -> dict[float, int]:
        """Median bytes by seconds after everything was freed."""
        times = self.runs[0].left_bytes
        return {at: int(median(run.left_bytes[at] for run in self.runs)) for at in times}

    @property
    def failed(self) -> int:
        """Failed allocations of the worst run."""
        return max(run.failed for run in self.runs)

    @property
    def samples(self) -> Rows:
        """The first run's samples, with the columns of `Run.samples`."""
        return self.runs[0].samples

    @property
    def timeline(self) -> Rows:
        """The first run's resident bytes, read from outside."""
        return self.runs[0].timeline

    @property
    def array(self) -> Rows:
        """The same as `samples`."""
        return self.samples

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats about the numbers, one per line."""
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
        """Return a dict for JSON."""
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
        after = (f"after {at:g} s" for at in self.left_bytes)
        return ("allocator", "ns/op", "peak RSS", "fragmentation", "blowup", *after)

    def __str__(self) -> str:
        return describe([self])

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table([self._cells()], self._head(), self.source)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw resident and live bytes over the operations; return the matplotlib Axes."""
        return draw("replays", [self], ax)


_WRITTEN = {
    "none": "nothing written",
    "ends": "first and last byte of each object written",
    "pages": "a byte of each page written",
    "all": "every byte written",
}


def describe(replays: Sequence[Replay]) -> str:
    """Return the replays of a recording as text, a row each."""
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

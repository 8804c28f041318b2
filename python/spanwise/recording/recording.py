# SPDX-License-Identifier: Apache-2.0
"""Recordings: what a program allocated, and what any table would make of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import OPS_DTYPE
from spanwise.heap.runner import as_ops
from spanwise.ledger.comparison import Comparison
from spanwise.ledger.ledger import Ledger
from spanwise.recording import sources
from spanwise.recording.moments import is_after, parse_seconds
from spanwise.recording.ops import check_ops, summarize_ops
from spanwise.recording.simulate import Progress, Simulation, account
from spanwise.recording.sources import ArraySource, FileSource, Module, Source
from spanwise.recording.summary import (
    Site,
    Summary,
    count_sites,
    count_sizes,
    count_threads,
    frame_name,
)
from spanwise.tables.table import SizeClassTable, as_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KEPT_OPS = 1 << 21


class Recording:
    """A history of allocation events: a `.swt` file, or an array of operations.

    Make one with `open()`, `from_ops()`, `spanwise.record()`, `spanwise.synthesize()` or
    `spanwise.workloads`. Any number of threads may use one.

    Attributes:
        path: the file; None for an array.
        name: what pictures and ledgers call it.
    """

    def __init__(self, source: Source, *, path: str | None, name: str) -> None:
        self._source = source
        self.path = path
        self.name = name

    @classmethod
    def open(cls, path: str | os.PathLike[str], valid_prefix: bool = False) -> Recording:
        """Opens a recording.

        Args:
            path: the file.
            valid_prefix: of a cut or damaged file read what is whole before the damage.

        Raises:
            TraceFormatError: not a recording, cut, damaged, or of a newer version.
            RecordingIOError: the file cannot be read.
        """
        source = FileSource(path, valid_prefix)
        recording = cls(source, path=source.path, name=Path(source.path).name)
        recording._head  # noqa: B018  errors come now, not at the first question
        return recording

    @classmethod
    def from_ops(
        cls,
        ops: NDArray[np.void],
        path: str | os.PathLike[str] | None = None,
        *,
        name: str = "operations",
    ) -> Recording:
        """A recording of given operations.

        Args:
            ops: structured array of `spanwise.OPS_DTYPE`, shape (n,). It is not copied: do not
                change it afterwards.
            path: also write it there, and read it from there; None: keep it in memory.
            name: what pictures and ledgers call it, when there is no path.

        Raises:
            TypeError: it is no such array.
            InvalidError: naming the operation that is impossible.
            RecordingIOError: the file cannot be written; there is none then.
        """
        rows = as_ops(ops)
        check_ops(rows)
        if path is None:
            return cls(ArraySource(rows), path=None, name=name)
        sources.write_ops(path, iter([rows]), [("program", name)])
        return cls.open(path)

    # --- what it says of itself ---

    @cached_property
    def _head(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        if not isinstance(self._source, FileSource):
            return {}, []
        trace = self._source.open()
        return sources.read_info(trace), sources.read_meta(trace)

    @property
    def info(self) -> dict[str, int]:
        """The head of the file (sw_trace_info): version, pid, stack_depth, ...; {} of an array."""
        return self._head[0]

    @property
    def meta(self) -> list[tuple[str, str]]:
        """Metadata as pairs of strings; keys may repeat."""
        return self._head[1]

    @property
    def arguments(self) -> list[str]:
        """The recorded program's command line."""
        return [value for key, value in self.meta if key == "arg"]

    @property
    def program(self) -> str:
        """The recorded program's file, or the name of the recording."""
        return next((value for key, value in self.meta if key == "program"), self.name)

    @cached_property
    def summary(self) -> Summary:
        """Totals. A raw recording is read through for them, once."""
        if isinstance(self._source, ArraySource):
            return Summary(**summarize_ops(self._source.ops))
        assert isinstance(self._source, FileSource)
        return Summary(**sources.read_summary(self._source.open()))

    def __len__(self) -> int:
        """Operations: events, and ends of threads."""
        return self.summary.ops

    @property
    def events(self) -> int:
        """Allocations, frees and reallocations."""
        return self.summary.events

    @property
    def remark(self) -> str:
        """A sentence that every user of the recording must know; mostly empty."""
        raw = self.info.get("form") == int(_lib.lib.SW_TRACE_RAW)
        if raw and self.info["version"] > 1:
            return ""  # known without reading the recording
        return self.summary.remark

    # --- operations ---

    @property
    def ops(self) -> NDArray[np.void]:
        """All operations, a read-only structured array of `spanwise.OPS_DTYPE`, 32 bytes each.

        Decoded straight into the array; kept for the next time when it is small. Go through
        `blocks()` where there is no room for all.
        """
        if isinstance(self._source, ArraySource):
            view: NDArray[np.void] = self._source.ops.view()
            view.flags.writeable = False
            return view
        return self._kept_ops if len(self) <= _KEPT_OPS else self._read_ops()

    @cached_property
    def _kept_ops(self) -> NDArray[np.void]:
        return self._read_ops()

    def _read_ops(self) -> NDArray[np.void]:
        block = next(self._source.blocks(len(self) + 1), np.empty(0, OPS_DTYPE))
        block.flags.writeable = False
        return block

    def blocks(self, rows: int = 65536) -> Iterator[NDArray[np.void]]:
        """The operations in order, as arrays of at most `rows` rows: memory stays bounded."""
        rows = _lib.as_index(rows, "rows", 1 << 26)
        if rows == 0:
            raise errors.InvalidError("rows 0: give at least 1")
        return self._source.blocks(rows)

    # --- accounts ---

    def ledger(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        placement: str = "lifo",
        decay_ms: float | None = None,
        batch: int = 0,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Ledger:
        """Where the bytes would be under a table, by running it all through a dry heap.

        Args:
            table: size classes, or a table's name.
            at: "peak" (after the first operation that brings requested bytes to their maximum),
                "end", or seconds since the start (after the last operation until then).
            placement: as of `Heap`.
            decay_ms: as of `Heap`; the recording's clock counts.
            batch: as of `Heap`.
            limit: as of `Heap`.
            progress: called with the number of operations done since its last call.

        Returns:
            The ledger; `stats` and the Johnstone-Wilson ratios are of the whole recording.

        Raises:
            InvalidError: for an argument that is not allowed, such as a time after the end.
            TraceFormatError: the file is damaged.
        """
        self._check_moment(at)
        return self._ledger(
            table,
            at,
            placement=placement,
            decay_ms=decay_ms,
            batch=batch,
            limit=limit,
            progress=progress,
        )

    def _check_moment(self, at: str | float) -> None:
        """Refuses a time after the end, where the ledger would silently be that of the end."""
        if at not in ("peak", "end") and is_after(at, self.summary.duration_ns):
            raise errors.InvalidError(
                f"{self.name}: moment {at!r} is after its end; it lasts"
                f" {_format.seconds(self.summary.duration_ns)}"
            )

    def _ledger(
        self,
        table: SizeClassTable | str,
        at: str | float,
        *,
        progress: Progress | None = None,
        **knobs: Any,
    ) -> Ledger:
        """As `ledger`; of a time after the end, the ledger of the end."""
        name, stop_op, stop_ns = self._moment(at)
        simulation = Simulation(as_table(table), **knobs)
        try:
            if at == "end":
                simulation.time_ns = self.summary.duration_ns
            found = account(
                self._source,
                simulation,
                at=name,
                name=self.name,
                stop_op=stop_op,
                stop_ns=stop_ns,
                progress=progress,
            )
            return replace(found, remark=self.remark)
        finally:
            simulation.close()

    def _moment(self, at: str | float) -> tuple[str, int | None, int | None]:
        """Name of the moment; operations or nanoseconds until it."""
        if at == "peak":
            return "peak", self.summary.peak_op, None
        if at == "end":
            return "end", None, None
        seconds = parse_seconds(at)
        return f"{seconds:g} s", None, round(seconds * 1e9)

    def compare(
        self, tables: Iterable[SizeClassTable | str], at: str | float = "peak", **knobs: Any
    ) -> Comparison:
        """Ledgers under several tables, side by side; knobs as of `ledger`."""
        return Comparison([self.ledger(table, at, **knobs) for table in tables])

    def timeline(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 1000,
        progress: Progress | None = None,
        **knobs: Any,
    ) -> NDArray[np.void]:
        """Requested, slot, free page and held bytes over time, under a table.

        Args:
            table: size classes, or a table's name.
            samples: about so many rows, at most 2048.
            progress: called with the number of operations done since its last call.
            knobs: placement, decay_ms, batch, limit as of `ledger`.

        Returns:
            Structured array of shape (rows,): op, time_ns, requested_bytes, live_objects,
            slot_bytes, held_bytes, free_page_bytes.
        """
        wanted = max(1, _lib.as_index(samples, "samples", 2048))
        simulation = Simulation(as_table(table), **knobs)
        try:
            simulation.sample_every(max(1, len(self) // wanted))
            account(self._source, simulation, at="end", name=self.name, progress=progress)
            return simulation.samples()
        finally:
            simulation.close()

    def histogram(self) -> NDArray[np.void]:
        """Requests by size, of allocations and reallocations.

        Returns:
            Structured array of HISTOGRAM_DTYPE, by rising size.
        """
        return count_sizes(self.blocks())

    @cached_property
    def threads(self) -> NDArray[np.void]:
        """What each thread did, a structured array of THREADS_DTYPE."""
        return count_threads(self.blocks())

    @cached_property
    def modules(self) -> list[Module]:
        """The recorded program's modules."""
        if not isinstance(self._source, FileSource):
            return []
        return sources.read_modules(self._source.open())

    @cached_property
    def sites(self) -> list[Site]:
        """Call sites at which anything was allocated, most bytes first."""
        addresses: dict[int, tuple[int, ...]] = {}
        if isinstance(self._source, FileSource):
            addresses = sources.read_sites(self._source.open())
        sites = []
        for site, (allocs, allocated_bytes) in sorted(count_sites(self.blocks()).items()):
            frames = addresses.get(site, ())
            named = tuple(frame_name(address, self.modules) for address in frames)
            sites.append(Site(site, allocs, allocated_bytes, named))
        return sorted(sites, key=lambda site: -site.allocated_bytes)

    # --- pictures and text ---

    def plot_live(self, table: SizeClassTable | str = "c16", ax: Axes | None = None) -> Axes:
        """Draws requested and held bytes over time; returns the matplotlib Axes."""
        name = as_table(table).name
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.live(self.timeline(table), ax, title=f"{self.name} under {name}")

    def plot_histogram(self, ax: Axes | None = None) -> Axes:
        """Draws requests by size; returns the matplotlib Axes."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.histogram(self.histogram(), ax, title=self.name)

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"<Recording {self.name}: {_format.plural(s.events, 'event')},"
            f" {_format.plural(s.threads, 'thread')},"
            f" peak {_format.size(s.peak_requested_bytes)}>"
        )

    def _repr_html_(self) -> str:
        return _format.html_table(self.summary.rows(), (self.name, ""))


# --- helpers --------------------------------------------------------------------------------------

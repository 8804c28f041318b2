# SPDX-License-Identifier: Apache-2.0
"""Recordings: what a program allocated, and what any table would make of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format, _lib, errors
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions, as_options
from spanwise.heap.runner import as_ops
from spanwise.ledger.comparison import Comparison
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import MOMENTS
from spanwise.recordings import heap_maps, sources
from spanwise.recordings.history import History
from spanwise.recordings.live_sites import LiveSites, add_by_site, look_at_live
from spanwise.recordings.moments import is_after, parse_seconds
from spanwise.recordings.names import build_ids_of
from spanwise.recordings.ops import check_ops
from spanwise.recordings.simulate import Simulation, account
from spanwise.recordings.slices import slice_ops
from spanwise.recordings.sources import ArraySource, FileSource, OneThread
from spanwise.recordings.timeline import check_detail, take_timeline
from spanwise.results.progress import Progress, Step, progress_bar
from spanwise.results.rows import AnyRows, Rows
from spanwise.tables.table import STOCK, SizeClassTable, as_table, as_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Recording(History):
    """A history of allocation events: a `.swt` file, or an array of operations.

    Make one with `open()`, `from_ops()`, `spanwise.record()`, `spanwise.synthesize()` or
    `spanwise.workloads`. Any number of threads may use one.

    Attributes:
        path: the file; None for an array.
        name: what pictures and ledgers call it.
    """

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
        ops: AnyRows,
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

    # --- parts ---

    def __getitem__(self, index: Any) -> Any:
        """An operation; or the recording of operations `first` to `last` - 1, `[first:last]`.

        What is live when the slice begins is allocated before it, at the time of its first
        operation, so that the slice is a possible history: `slices.slice_ops`. Its time is the
        recording's.

        Raises:
            InvalidError: a slice with a step.
        """
        if not isinstance(index, slice):
            return self.ops[index]
        first, last, step = index.indices(len(self))
        if step != 1:
            raise errors.InvalidError(f"{self.name}[::{step}]: a part of a recording has no step")
        last = max(first, last)
        ops = slice_ops(np.asarray(self.ops), first, last)
        return Recording.from_ops(ops, name=f"{self.name}[{first}:{last}]")

    # --- accounts ---

    def ledger(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Ledger:
        """Where the bytes would be under a table, by running it all through a dry heap.

        Args:
            table: size classes, or a table's name.
            at: "peak" (after the first operation that brings requested bytes to their maximum),
                "peak-resident" (the same of resident bytes, which takes a run of its own to find),
                "end", or seconds since the start (after the last operation until then).
            options: of the heap; of decay_ms the recording's clock counts.
            progress: a function that is called with the number of operations done since its last
                call; True or False: a bar, or none; None: a bar on a terminal or in a notebook, if
                it takes more than a second.

        Returns:
            The ledger; `stats` and the Johnstone-Wilson ratios are of the whole recording. Its
            `resident` takes the program to write all of each object at its birth.

        Raises:
            InvalidError: for an argument that is not allowed, such as a time after the end.
            TraceFormatError: the file is damaged.
        """
        self._check_moment(at)
        made = as_table(table)
        with progress_bar(
            progress, self._about_ops(), f"ledger, {made.name}", "operations"
        ) as tell:
            return self._ledger(made, at, as_options(options), tell)

    def _check_moment(self, at: str | float) -> None:
        """Refuses a time after the end, where the ledger would silently be that of the end."""
        if at not in MOMENTS and is_after(at, self.summary.duration_ns):
            raise errors.InvalidError(
                f"{self.name}: moment {at!r} is after its end; it lasts"
                f" {_format.seconds(self.summary.duration_ns)}"
            )

    def _ledger(
        self,
        table: SizeClassTable,
        at: str | float,
        options: HeapOptions,
        progress: Step | None = None,
    ) -> Ledger:
        """As `ledger`; of a time after the end, the ledger of the end."""
        simulation, name, stop = self._simulation_for(table, at, options)
        try:
            found = account(
                self._source,
                simulation,
                at=name,
                name=self.name,
                stop_op=stop[0],
                stop_ns=stop[1],
                progress=progress,
            )
            return replace(found, remark=self.remark)
        finally:
            simulation.close()

    def _simulation_for(
        self, table: SizeClassTable, at: str | float, options: HeapOptions
    ) -> tuple[Simulation, str, tuple[int | None, int | None]]:
        """A fresh simulation for a look at a moment; the moment's name, and where to stop."""
        name, stop_op, stop_ns = self._moment(at)
        if at == "peak-resident":
            stop_op = self._resident_peak_op(table, options)
        simulation = Simulation(table, options, resident=True)
        simulation.steady_from(-(-self.summary.peak_requested_bytes // 2))
        if at == "end":
            simulation.time_ns = self.summary.duration_ns
        return simulation, name, (stop_op, stop_ns)

    def _resident_peak_op(self, table: SizeClassTable, options: HeapOptions) -> int:
        """After how many operations most was resident. It depends on the table."""
        simulation = Simulation(table, options, resident=True)
        try:
            account(self._source, simulation, at="end", name=self.name)
            return simulation.resident_peak()[1]
        finally:
            simulation.close()

    def _moment(self, at: str | float) -> tuple[str, int | None, int | None]:
        """Name of the moment; operations or nanoseconds until it."""
        if at == "peak":
            return "peak", self.summary.peak_op, None
        if at in MOMENTS:
            return str(at), None, None
        seconds = parse_seconds(at)
        return f"{seconds:g} s", None, round(seconds * 1e9)

    def compare(
        self,
        tables: SizeClassTable | str | Iterable[SizeClassTable | str] = STOCK,
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Comparison:
        """Ledgers under several tables, side by side; the arguments as of `ledger`."""
        made = as_tables(tables)
        total = len(made) * self._about_ops()
        with progress_bar(progress, total, "compare", "operations") as tell:
            return Comparison(
                [self.ledger(table, at, options=options, progress=tell) for table in made]
            )

    def blowup(
        self,
        table: SizeClassTable | str = "c16",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> float | None:
        """Hoard's blowup: the most held, over the most that one thread would hold for all of it.

        Berger and others, "Hoard: a scalable memory allocator" (2000), with the same heap, its
        operations all done by one thread, as the ideal allocator. The arguments are those of
        `ledger`; None where nothing was ever held.
        """
        made, given = as_table(table), as_options(options)
        title = f"blowup, {made.name}"
        with progress_bar(progress, 2 * self._about_ops(), title, "operations") as tell:
            most, alone = self._most_held(made, given, tell)
        return most / alone if alone else None

    def _most_held(
        self, table: SizeClassTable, options: HeapOptions, progress: Step | None
    ) -> tuple[int, int]:
        """The most held, with the threads as recorded and with one for all; 0: no operations."""
        most = []
        for source in (self._source, OneThread(self._source)):
            simulation = Simulation(table, options)
            try:
                account(source, simulation, at="end", name=self.name, progress=progress)
                most.append(simulation.stats().peak_held_bytes)
            finally:
                simulation.close()
        return most[0], most[1]

    def timeline(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 1000,
        detail: str = "sums",
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Rows:
        """Requested, held and other bytes over time, under a table, in one pass.

        Args:
            table: size classes, or a table's name.
            samples: about so many moments, at most 2048, evenly spread over the operations.
            detail: "sums"; "parts": the whole ledger of each moment, and of each part the bytes
                that are resident; "classes": the same of each class that has spans then.
            options: of the heap; of decay_ms the recording's clock counts.
            progress: as of `ledger`.

        Returns:
            Rows with the columns op, time_ns, requested_bytes, live_objects,
            slot_bytes, held_bytes, free_page_bytes; with "parts" one a moment, with the parts of a
            ledger and resident_bytes, resident_requested_bytes, ...; with "classes" one a moment
            and class (class 0: large objects).

        Raises:
            InvalidError: for another detail.
        """
        wanted = max(1, _lib.as_index(samples, "samples", 2048))
        made, ops = as_table(table), len(self)
        check_detail(detail)
        with progress_bar(progress, ops, f"time line, {made.name}", "operations") as tell:
            simulation = Simulation(made, as_options(options), resident=detail != "sums")
            try:
                return take_timeline(self._source, simulation, (ops, wanted), detail, tell)
            finally:
                simulation.close()

    def live_sites(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> LiveSites:
        """What is live at a moment by call site, and the waste that each site's objects keep.

        The arguments are those of `ledger`. Sites and what is of no site add up to the ledger of
        that moment, to the byte, but where a limit of `options` made the heap refuse a resize. A
        span's free bytes are shared evenly among the objects that live in it.
        """
        self._check_moment(at)
        made, given = as_table(table), as_options(options)
        simulation, name, stop = self._simulation_for(made, at, given)
        title = f"live sites, {made.name}"
        try:
            with progress_bar(progress, self._about_ops(), title, "operations") as tell:
                found = look_at_live(self._source, simulation, (name, self.name), stop, tell)
        finally:
            simulation.close()
        sites = add_by_site(*found, made, self._frames, build_ids_of(self.modules))
        return replace(sites, ledger=replace(sites.ledger, remark=self.remark))

    def map(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> HeapMap:
        """The simulated heap at a moment as a map: its spans, their slots, its live objects.

        The arguments are those of `ledger`, and the tiles add up to that ledger.
        """
        self._check_moment(at)
        made, given = as_table(table), as_options(options)
        simulation, name, stop = self._simulation_for(made, at, given)
        title = f"heap map, {made.name}"
        names = (name, self.name)
        try:
            with progress_bar(progress, self._about_ops(), title, "operations") as tell:
                return heap_maps.map_at(self._source, simulation, names, stop, tell)
        finally:
            simulation.close()

    def maps(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 24,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> list[HeapMap]:
        """Maps through time, of one pass: at `samples` evenly spread operations, and at the peak.

        They are without slots and objects, so that many fit; `spanwise.plots.save_frames` draws
        them as an animation. The other arguments are those of `ledger`.
        """
        wanted = max(1, _lib.as_index(samples, "samples", 2048))
        made, ops = as_table(table), len(self)
        simulation = Simulation(made, as_options(options), resident=True)
        try:
            with progress_bar(progress, ops, f"heap maps, {made.name}", "operations") as tell:
                return heap_maps.maps_through(
                    self._source,
                    simulation,
                    self.name,
                    (ops, wanted, self.summary.peak_op),
                    tell,
                )
        finally:
            simulation.close()

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """What it is and its totals, for JSON; `ops` has the operations."""
        return {
            "name": self.name,
            "path": self.path,
            "program": self.program,
            "arguments": self.arguments,
            "summary": self.summary.to_dict(),
        }

    def to_html(
        self,
        path: str | os.PathLike[str],
        table: SizeClassTable | str = "c16",
        *,
        holdout: Iterable[Recording] = (),
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> str:
        """Writes a report: one page that needs no network, with the answer first.

        Args:
            path: of the page, which appears whole; what is there is replaced.
            table: size classes, or a table's name.
            holdout: recordings on which the table that is fitted to this one is tried.
            options: of the heap; of decay_ms the recording's clock counts.
            progress: as of `ledger`; the steps are passes over the recording.

        Returns:
            The answer: the sentence at the head of the page.

        Raises:
            OSError: the system refused to write.
        """
        from spanwise.report import page  # noqa: PLC0415  reports know models

        return page.write(self, path, as_table(table), tuple(holdout), options, progress=progress)

    def export(
        self,
        path: str | os.PathLike[str],
        to: str,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        value: str = "inuse-bytes",
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> None:
        """Writes what it says in a format of another tool (docs/design/export.md).

        Args:
            path: of the file, which appears whole; what is there is replaced.
            to: "pprof", "speedscope", "collapsed", "perfetto", "openmetrics" or "npz".
            table: size classes, or a table's name.
            at: the moment, as of `ledger`; "npz" and "perfetto" are of the whole recording.
            value: of each call site, for "collapsed": "inuse-bytes", "waste-bytes", ...
            options: of the heap.
            progress: as of `ledger`.

        Raises:
            OSError: the system refused to write.
            InvalidError: for another format, value or moment.
        """
        from spanwise.report import export  # noqa: PLC0415  reports know models

        wanted = export.Wanted(to, value, as_table(table), at)
        export.write(self, path, wanted, options, progress)

    # --- pictures and text ---

    def plot_timeline(self, table: SizeClassTable | str = "c16", ax: Axes | None = None) -> Axes:
        """Draws requested and held bytes over time; returns the matplotlib Axes."""
        name = as_table(table).name
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.timeline(self.timeline(table), ax, title=f"{self.name} under {name}")

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
        return _format.html_table(self.summary.text_rows(), (self.name, ""))

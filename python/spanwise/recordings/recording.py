# SPDX-License-Identifier: Apache-2.0
"""Recordings: what a program allocated, and what any table would make of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _format, errors
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.runner import as_ops
from spanwise.ledger.ledger import Ledger
from spanwise.recordings import heap_maps, sources
from spanwise.recordings.history import History
from spanwise.recordings.live_sites import (
    LiveObjects,
    LiveSites,
    Placed,
    add_by_site,
    look_at_live,
    objects_of,
)
from spanwise.recordings.names import build_ids_of
from spanwise.recordings.ops import check_ops
from spanwise.recordings.questions import Answer, QueryArgs
from spanwise.recordings.shown import ExportMixin
from spanwise.recordings.simulate import Simulation, account
from spanwise.recordings.site_groups import add_live, count_groups
from spanwise.recordings.sites import same_sites
from spanwise.recordings.slices import slice_ops
from spanwise.recordings.sources import ArraySource, FileSource, OneThread
from spanwise.recordings.span_pinning import SpanPinning, keys_of, span_pinning_of, with_frames
from spanwise.recordings.timeline import MOMENTS_MAX, Spread, take_timeline
from spanwise.results.progress import Step
from spanwise.results.rows import AnyRows, Rows


class Recording(History, ExportMixin):
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

    def _each(self) -> Sequence[Recording]:
        return (self,)

    def _total(self, found: list[Answer], add: Callable[[list[Answer]], Answer]) -> Answer:
        return found[0]

    def _account(self, asked: QueryArgs, tell: Step) -> Ledger:
        """As `ledger`; of a time after the end, the ledger of the end."""
        simulation, name, stop = self._simulation_for(asked)
        try:
            found = account(
                self._source,
                simulation,
                at=name,
                name=self.name,
                stop_op=stop[0],
                stop_ns=stop[1],
                progress=tell,
            )
            return replace(found, remark=self.remark)
        finally:
            simulation.close()

    def _simulation_for(
        self, asked: QueryArgs
    ) -> tuple[Simulation, str, tuple[int | None, int | None]]:
        """A fresh simulation for a look at a moment; the moment's name, and where to stop."""
        name, stop_op, stop_ns = self._moment(asked.at)
        if asked.at == "peak-resident":
            stop_op = self._resident_peak_op(asked)
        simulation = Simulation(asked.table, asked.options, resident=True)
        simulation.steady_from(-(-self.summary.peak_requested_bytes // 2))
        if asked.at == "end":
            simulation.time_ns = self.summary.duration_ns
        return simulation, name, (stop_op, stop_ns)

    def _resident_peak_op(self, asked: QueryArgs) -> int:
        """After how many operations most was resident. It depends on the table."""
        simulation = Simulation(asked.table, asked.options, resident=True)
        try:
            account(self._source, simulation, at="end", name=self.name)
            return simulation.resident_peak()[1]
        finally:
            simulation.close()

    def _most_held(self, asked: QueryArgs, tell: Step) -> tuple[int, int]:
        """The most held, with the threads as recorded and with one for all; 0: no operations."""
        most = []
        for source in (self._source, OneThread(self._source)):
            simulation = Simulation(asked.table, asked.options)
            try:
                account(source, simulation, at="end", name=self.name, progress=tell)
                most.append(simulation.stats().peak_held_bytes)
            finally:
                simulation.close()
        return most[0], most[1]

    def _timeline(
        self, asked: QueryArgs, samples: int, step_ns: int | None, detail: str, tell: Step
    ) -> Rows:
        """As `timeline`."""
        if step_ns is not None and self.summary.duration_ns // step_ns >= MOMENTS_MAX:
            raise errors.InvalidError(
                f"{self.name}: more than {MOMENTS_MAX} moments; give a longer step_s"
            )
        spread = Spread(len(self), samples, step_ns)
        simulation = Simulation(asked.table, asked.options, resident=detail != "sums")
        try:
            return take_timeline(self._source, simulation, spread, detail, tell)
        finally:
            simulation.close()

    def _live_objects(self, asked: QueryArgs, tell: Step) -> tuple[Placed, LiveObjects]:
        """What lives at a moment, where it lies and what it keeps."""
        simulation, name, stop = self._simulation_for(asked)
        try:
            placed, latest = look_at_live(self._source, simulation, (name, self.name), stop, tell)
        finally:
            simulation.close()
        return placed, objects_of(placed, latest, asked.table, self._frames)

    def _live_sites(self, asked: QueryArgs, tell: Step) -> LiveSites:
        """As `live_sites`."""
        placed, objects = self._live_objects(asked, tell)
        sites = add_by_site(placed, objects, self._frames, build_ids_of(self.modules))
        ledger = replace(sites.ledger, remark=self.remark)
        return replace(sites, ledger=ledger, imported=self.imported)

    def _site_groups(self, asked: QueryArgs, tell: Step) -> Rows:
        """As `site_groups`."""
        _, objects = self._live_objects(asked, tell)
        allocated = count_groups(self.blocks(), asked.table, same_sites(self._frames))
        return add_live(allocated, objects)

    def _span_pinning(self, asked: QueryArgs, by: str, tell: Step) -> SpanPinning:
        """As `span_pinning`."""
        placed, objects = self._live_objects(asked, tell)
        placed = replace(placed, ledger=replace(placed.ledger, remark=self.remark))
        found = span_pinning_of(placed, objects, keys_of(by, placed, objects, self.blocks()), by)
        found = replace(found, imported=self.imported)
        if by != "site":
            return found
        frames = [self._frames.get(one, ()) for one in found.array["group"].tolist()]
        return with_frames(found, frames, tuple(build_ids_of(self.modules).items()))

    def _map(self, asked: QueryArgs, tell: Step) -> HeapMap:
        """As `map`."""
        simulation, name, stop = self._simulation_for(asked)
        try:
            return heap_maps.map_at(self._source, simulation, (name, self.name), stop, tell)
        finally:
            simulation.close()

    def _maps(self, asked: QueryArgs, samples: int, tell: Step) -> list[HeapMap]:
        """As `maps`."""
        simulation = Simulation(asked.table, asked.options, resident=True)
        spread = len(self), samples, self.summary.peak_op
        try:
            return heap_maps.maps_through(self._source, simulation, self.name, spread, tell)
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

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"<Recording {self.name}: {_format.plural(s.events, 'event')},"
            f" {_format.plural(s.threads, 'thread')},"
            f" peak {_format.size(s.peak_requested_bytes)}>"
        )

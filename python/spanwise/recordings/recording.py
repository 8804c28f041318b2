# SPDX-License-Identifier: Apache-2.0
"""Recordings of a program's allocations, and simulations of them under any table."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _format, _lib, errors
from spanwise.heap.handle import as_ops
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PEAK_RESIDENT, peak_resident_under
from spanwise.recordings import sources
from spanwise.recordings.history import History
from spanwise.recordings.live_sites import (
    LiveObjects,
    LiveSites,
    add_by_site,
    add_live,
    count_groups,
    live_at,
    objects_of,
)
from spanwise.recordings.names import build_ids_of
from spanwise.recordings.pooled import Pooled, of_sites
from spanwise.recordings.pooled import live_after as objects_live_after
from spanwise.recordings.queries import Answer, QueryArgs, RecordingQueries
from spanwise.recordings.simulate import Moment, Simulation, account, visit
from spanwise.recordings.sites import LABEL, Site, label_sites, merge_keys, same_sites
from spanwise.recordings.sources import (
    ArraySource,
    FileSource,
    Latest,
    OneThread,
    Source,
    check_ops,
    slice_ops,
)
from spanwise.recordings.span_pinning import SpanPinning, keys_of, span_pinning_of
from spanwise.recordings.timeline import (
    MOMENTS_MAX,
    AfterPeak,
    Spread,
    WholeRun,
    map_at,
    maps_through,
    run_whole,
    timeline_of,
)
from spanwise.results.jobs import Progress
from spanwise.results.rows import AnyRows, Rows
from spanwise.tables.table import SizeClassTable

WHOLE_RUNS_MAX = 16
"""Tables and options of which a recording keeps the moment of the peak."""

_KEEPING = threading.Lock()


class Recording(History, RecordingQueries):
    """A history of allocation events: a `.swt` file, or an array of operations.

    Make one with `open()`, `from_ops()`, `spanwise.record()`, `spanwise.synthesize()` or
    `spanwise.workloads`. Any number of threads may use one.

    Attributes:
        path: the file; None for an array.
        name: its name in plots and ledgers.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str], valid_prefix: bool = False) -> Recording:
        """Opens a recording.

        Args:
            path: the file.
            valid_prefix: read a truncated or damaged file up to the damage.

        Raises:
            TraceFormatError: it is not a recording, truncated, damaged, or of a newer version.
            RecordingIOError: the file cannot be read.
            InvalidError: it has only a sample of the objects (`SampledRecording`).
        """
        source = FileSource(path, valid_prefix)
        recording = cls(source, path=source.path, name=Path(source.path).name)
        if sources.sample_bytes_of(recording.meta):
            raise errors.InvalidError(
                f"{path}: has a sample of the objects, from which spans and fragmentation cannot"
                " be known; use spanwise estimate or SampledRecording.open, or record again"
                " without --sample"
            )
        return recording

    @classmethod
    def from_ops(
        cls, ops: AnyRows, path: str | os.PathLike[str] | None = None, *, name: str = "operations"
    ) -> Recording:
        """Make a recording of given operations.

        Args:
            ops: structured array of `spanwise.OPS_DTYPE`, shape (n,). It is not copied: do not
                change it afterwards.
            path: also write it there, and read it from there; None: keep it in memory.
            name: its name in plots and ledgers, if there is no path.

        Raises:
            TypeError: it is not such an array.
            InvalidError: naming the impossible operation.
            RecordingIOError: the file cannot be written, and does not exist.
        """
        rows = as_ops(ops)
        check_ops(rows)
        if path is None:
            return cls(ArraySource(rows), path=None, name=name)
        sources.write_ops(path, iter([rows]), [("program", name)])
        return cls.open(path)

    # --- parts ---

    def __getitem__(self, index: Any) -> Any:
        """Return an operation, or the recording of operations `first` to `last` - 1.

        Objects that are live when the slice begins are allocated before it, at the time of its
        first operation, so that the slice is a possible history (`ops.slice_ops`). Its times are
        those of the recording.

        Raises:
            InvalidError: the slice has a step.
        """
        if not isinstance(index, slice):
            return self.ops[index]
        first, last, step = index.indices(len(self))
        if step != 1:
            raise errors.InvalidError(f"{self.name}[::{step}]: a part of a recording has no step")
        last = max(first, last)
        ops = slice_ops(np.asarray(self.ops), first, last)
        return Recording.from_ops(ops, name=f"{self.name}[{first}:{last}]")

    # --- answers to the queries, of one recording ---

    def _each(self) -> Sequence[Recording]:
        return (self,)

    def _total(self, found: list[Answer], add: Callable[[list[Answer]], Answer]) -> Answer:
        return found[0]

    def _run(self, query: QueryArgs, run: Callable[[Simulation, Moment], Answer]) -> Answer:
        """Call `run` with a fresh simulation and the moment of a query."""
        moment = self._moment(query.at)
        if query.at == PEAK_RESIDENT:
            moment = self._resident_peak(query)
        with self._simulation(query.table, query) as simulation:
            if query.at == "end":
                simulation.time_ns = self.summary.duration_ns
            whole = self._whole_runs.get((query.table, query.options))
            simulation.whole_stats = whole.stats if whole else None
            found = run(simulation, moment)
            if simulation.done < len(self):  # the rest was counted before
                query.progress(len(self) - simulation.done)
            return found

    def _simulation(
        self,
        table: SizeClassTable,
        query: QueryArgs,
        *,
        source: Source | None = None,
        resident: bool = True,
    ) -> Simulation:
        """A simulation of the recording for a query, which knows what is resident."""
        simulation = Simulation(
            table,
            query.options,
            source=source or self.source,
            name=self.name,
            progress=query.progress,
            resident=resident,
        )
        simulation.steady_from(-(-self.summary.peak_requested_bytes // 2))
        return simulation

    def _resident_peak(self, query: QueryArgs) -> Moment:
        """The moment at which most bytes are resident; it depends on the table."""
        of = query.moment_of or query.table
        at = PEAK_RESIDENT if of == query.table else peak_resident_under(of.name)
        return Moment(at, self._whole_run(of, query).peak_op)

    def _whole_run(self, table: SizeClassTable, query: QueryArgs) -> WholeRun:
        """What a pass over all operations says of a table; the last few are kept."""
        key = table, query.options
        found = self._whole_runs.get(key)
        if found is None:
            with self._simulation(table, query) as simulation:
                found = run_whole(simulation, len(self), self.summary.duration_ns)
            with _KEEPING:
                if len(self._whole_runs) >= WHOLE_RUNS_MAX:
                    del self._whole_runs[next(iter(self._whole_runs))]
                self._whole_runs[key] = found
        return found

    def _knows_peak(self, table: SizeClassTable, options: HeapOptions) -> bool:
        """Whether no pass is needed to find the moment at which most bytes are resident."""
        return (table, options) in self._whole_runs

    def _after_peak(self, query: QueryArgs) -> AfterPeak:
        found = self._whole_run(query.table, query).after_peak
        return replace(found, table=query.table.name)  # equal tables may differ in name

    def _account(self, query: QueryArgs) -> Ledger:
        return replace(self._run(query, account), remark=self.remark)

    def _most_held(self, query: QueryArgs) -> tuple[int, int]:
        """Return the peak held bytes with the recorded threads, and with one thread."""
        most = []
        for source in (self.source, OneThread(self.source)):
            with self._simulation(query.table, query, source=source, resident=False) as simulation:
                visit(simulation, (), lambda: None)
                most.append(simulation.stats().peak_held_bytes)
        return most[0], most[1]

    def _timeline(self, query: QueryArgs, samples: int, step_ns: int | None, detail: str) -> Rows:
        if step_ns is not None and self.summary.duration_ns // step_ns >= MOMENTS_MAX:
            raise errors.InvalidError(
                f"{self.name}: more than {MOMENTS_MAX} moments; give a longer step_s"
            )
        spread = Spread(len(self), samples, step_ns)
        with self._simulation(query.table, query, resident=detail != "sums") as simulation:
            return timeline_of(simulation, spread, detail)

    def _live_objects(self, query: QueryArgs) -> LiveObjects:
        """Return the live objects at a moment: addresses, and what each occupies and keeps."""
        placed, latest = self._run(query, live_at)
        placed = replace(placed, ledger=replace(placed.ledger, remark=self.remark))
        return objects_of(placed, latest, query.table, self._frames)

    def _live_sites(self, query: QueryArgs) -> LiveSites:
        objects = self._live_objects(query)
        sites = add_by_site(objects, self._frames, build_ids_of(self.modules))
        return replace(sites, imported=self.imported)

    def live_objects(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak-resident",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> LiveObjects:
        """Return what each live object occupies and keeps, as columns; arguments as in `ledger`."""
        with self._query("live objects", table, at, options, progress) as query:
            return self._live_objects(query)

    def latest(self, op: int) -> Latest:
        """Return the last operation on each object among the first `op`, by object."""
        return Latest.until(self._watched_blocks("live objects"), op)

    def site_labels(self, sites: Iterable[int], most: int = LABEL) -> dict[int, str]:
        """Return the innermost callers of call sites, in so many characters, by the sites' ids."""
        frames = {site: self._frames.get(site, ()) for site in sites}
        return label_sites(frames, build_ids_of(self.modules), most)

    def site_keys(self, sites: Iterable[int]) -> dict[int, tuple[str, ...] | int]:
        """Return what call sites that text output merges have in common, by the sites' ids."""
        frames = {site: self._frames.get(site, ()) for site in sites}
        return merge_keys(frames, build_ids_of(self.modules))

    def pooled(self, sites: Iterable[Any], *, live_after: int | None = None) -> Recording:
        """Return the same operations, with the objects of call sites in pools: one per thread.

        The objects of a pool share no spans with others, so comparing the ledgers of both says what
        a pool would save. Sites whose frames have equal names count as those given.

        Args:
            sites: ids of call sites, or elements of `sites` or `live_sites()`.
            live_after: only their objects that are live after so many operations.

        Raises:
            InvalidError: the recording has no such site.
            TypeError: it is something else, such as a name.
        """
        given = [_lib.as_index(getattr(one, "id", one), "site", 2**32 - 1) for one in sites]
        unknown = [one for one in given if one and self._frames and one not in self._frames]
        if unknown:
            raise errors.InvalidError(f"{self.name}: no call site {unknown[0]}")
        keys = self.site_keys({*given, *self._frames})
        wanted = {keys[site] for site in given}
        choose = of_sites(np.array([one for one in keys if keys[one] in wanted], np.int64))
        if live_after is not None:
            choose = objects_live_after(self.blocks(), live_after, choose)
        source = Pooled(self.source, choose, self.summary.threads)
        made = Recording(source, name=f"{self.name}, pooled")
        made.summary = self.summary
        return made

    def _site_groups(self, query: QueryArgs) -> Rows:
        objects = self._live_objects(query)
        allocated = count_groups(self.blocks(), query.table, same_sites(self._frames))
        return add_live(allocated, objects)

    def _span_pinning(self, query: QueryArgs, by: str) -> SpanPinning:
        return self.pinning_of(self._live_objects(query), by)

    def pinning_of(self, objects: LiveObjects, by: str = "site") -> SpanPinning:
        """Return who pins spans among the objects of `live_objects`; `by` as in `span_pinning`."""
        keys = keys_of(by, objects, self.blocks())
        found = replace(span_pinning_of(objects, keys, by), imported=self.imported)
        if by != "site":
            return found
        ids = found.array["group"].tolist()
        sites = tuple(Site(one, 0, 0, self._frames.get(one, ())) for one in ids)
        return replace(found, sites=sites, build_ids=tuple(build_ids_of(self.modules).items()))

    def _map(self, query: QueryArgs) -> HeapMap:
        return self._run(query, map_at)

    def _maps(self, query: QueryArgs, samples: int) -> list[HeapMap]:
        spread = Spread(len(self), samples)
        peak_op = self._whole_run(query.table, query).peak_op
        with self._simulation(query.table, query) as simulation:
            return maps_through(simulation, spread, peak_op)

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """Return metadata and totals as a dict for JSON; `ops` has the operations."""
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

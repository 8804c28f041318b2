# SPDX-License-Identifier: Apache-2.0
"""Recordings of a program's allocations: their content, and simulations of them under any table."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import OPS_DTYPE
from spanwise.heap.handle import as_ops
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import MOMENTS, PEAK_RESIDENT, peak_resident_under
from spanwise.recordings import sources
from spanwise.recordings.live_sites import (
    LiveObjects,
    LiveSites,
    add_by_site,
    add_live,
    count_groups,
    live_at,
    objects_of,
)
from spanwise.recordings.names import FrameNames, build_ids_of, is_function, is_python
from spanwise.recordings.pooled import Pooled, of_sites
from spanwise.recordings.pooled import live_after as objects_live_after
from spanwise.recordings.process_memory import ProcessMemory, missing_memory, read_memory
from spanwise.recordings.programs import ADVICE, allocator_of, is_python_file, runtime_of
from spanwise.recordings.queries import Answer, QueryArgs, RecordingQueries
from spanwise.recordings.simulate import Moment, Simulation, account, visit
from spanwise.recordings.sites import Site, Sites, label_sites, merge_keys, same_sites
from spanwise.recordings.sources import (
    ArraySource,
    FileSource,
    Latest,
    Module,
    OneThread,
    Source,
    check_ops,
    slice_ops,
    summarize_ops,
)
from spanwise.recordings.span_pinning import SpanPinning, keys_of, span_pinning_of
from spanwise.recordings.summary import (
    Summary,
    count_sites,
    count_sizes,
    count_threads,
    histogram_of,
    take_lifetimes,
)
from spanwise.recordings.timeline import (
    MOMENTS_MAX,
    AfterPeak,
    Spread,
    WholeRun,
    is_after,
    map_at,
    maps_through,
    operation_of,
    parse_seconds,
    run_whole,
    timeline_of,
)
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import AnyRows, Result, Rows, Tabular, as_rows
from spanwise.tables.table import SizeClassTable

_KEPT_OPS = 1 << 21


class History(Result, Tabular):
    """A history of allocation events: metadata, operations, and counts of these.

    Attributes:
        path: the file; None for an array.
        name: its name in plots and ledgers.
    """

    def __init__(self, source: Source, *, path: str | None = None, name: str = "") -> None:
        if isinstance(source, str | os.PathLike):
            raise TypeError(f"to open a recording: spanwise.Recording.open({str(source)!r})")
        self.source = source
        self.path = path
        self.name = name
        self._whole_runs: dict[tuple[SizeClassTable, HeapOptions], WholeRun] = {}

    # --- metadata ---

    @cached_property
    def _head(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        if not isinstance(self.source, FileSource):
            return {}, []
        trace = self.source.open()
        return sources.read_info(trace), sources.read_meta(trace)

    @property
    def info(self) -> dict[str, int]:
        """The file header (sw_trace_info): version, pid, stack_depth, ...; {} for an array."""
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
        """The program's argv[0], or the name of the recording; the file is `executable`."""
        started = next(iter(self.arguments), "").lstrip("-")  # a login shell is "-bash"
        return started if started and not self.imported else self.executable

    @property
    def executable(self) -> str:
        """The file of the recorded program, perhaps a link; or the name of the recording."""
        return next((value for key, value in self.meta if key == "program"), self.name)

    @property
    def imported(self) -> bool:
        """Whether `convert` made it from another tool's file."""
        return any(key == "imported_from" for key, _ in self.meta)

    @cached_property
    def summary(self) -> Summary:
        """Totals. For a raw recording this takes one pass."""
        if isinstance(self.source, ArraySource):
            return Summary(**summarize_ops(self.source.ops))
        assert isinstance(self.source, FileSource)
        return Summary(**sources.read_summary(self.source.open(), self.path))

    def __len__(self) -> int:
        """Return the number of operations: events, and ends of threads."""
        return self.summary.ops

    @property
    def events(self) -> int:
        """Allocations, frees and reallocations."""
        return self.summary.events

    @cached_property
    def memory(self) -> ProcessMemory | None:
        """Resident memory of the process at its peak; None if the recorder could not read it."""
        return read_memory(self.meta)

    @cached_property
    def runtimes(self) -> tuple[str, ...]:
        """Runtimes in the process with their own heap: Go, Node.js, PHP, ..."""
        paths = {*(module.path for module in self.modules), os.path.realpath(self.executable)}
        found = {runtime_of(path) for path in paths}
        if any(pair == ("pythonmalloc", "0") for pair in self.meta) and any(
            map(is_python_file, paths)
        ):
            found.add("CPython")
        return tuple(sorted(found - {""}))

    @cached_property
    def switched_off(self) -> tuple[str, str]:
        """The runtime whose own heap was replaced by malloc, and the switch that users do not set.

        Two empty texts: there is none.
        """
        paths = (self.program, *(module.path for module in self.modules))
        if ("pythonmalloc", "1") in self.meta and any(map(is_python_file, paths)):
            return "CPython", "PYTHONMALLOC=malloc"
        if "PHP" in self.runtimes and self.memory is not None and not self.missing:
            return "PHP", "USE_ZEND_ALLOC=0"
        return "", ""

    @cached_property
    def allocator(self) -> str:
        """The allocator that served the program's malloc: "glibc", "jemalloc", ..."""
        return allocator_of(module.path for module in self.modules)

    @cached_property
    def missing(self) -> str:
        """A sentence about unrecorded memory, if it is more than half; else ""."""
        if self.memory is None:
            return ""
        runtime = self.runtimes[0] if self.runtimes else ""
        name = Path(self.program).name
        return missing_memory(self.memory, name, (runtime, ADVICE.get(runtime, "")))

    @property
    def remark(self) -> str:
        """A caveat for users of the recording; usually empty."""
        own = next((value for key, value in self.meta if key == "remark"), "")
        return "; ".join(filter(None, (own, self.missing)))

    # --- operations ---

    @property
    def ops(self) -> Rows:
        """All operations, read-only rows of `spanwise.OPS_DTYPE`, 32 bytes each.

        They are decoded directly into the array, which is cached if it is small. Use `blocks()` if
        they do not fit into memory.
        """
        if isinstance(self.source, ArraySource):
            view = as_rows(self.source.ops)
            view.flags.writeable = False
            return view
        return self._kept_ops if len(self) <= _KEPT_OPS else self._read_ops()

    @cached_property
    def _kept_ops(self) -> Rows:
        return self._read_ops()

    def _read_ops(self) -> Rows:
        block = next(self.source.blocks(len(self) + 1), np.empty(0, OPS_DTYPE))
        block.flags.writeable = False
        return as_rows(block)

    @property
    def array(self) -> Rows:
        """The same as `ops`."""
        return self.ops

    def blocks(self, rows: int = 65536) -> Iterator[NDArray[np.void]]:
        """Return the operations in order, as arrays of at most `rows` rows, in bounded memory."""
        rows = _lib.as_index(rows, "rows", 1 << 26)
        if rows == 0:
            raise errors.InvalidError("rows 0: give at least 1")
        return self.source.blocks(rows)

    # --- answers to the queries, of one recording ---

    def _histogram(self) -> Rows:
        return as_rows(count_sizes(self._watched_blocks("sizes")))

    def _live_histogram(self, at: str | float) -> Rows:
        """Answer `live_histogram`; a time after the end counts as the end."""
        if at == "peak-resident":
            raise errors.InvalidError(
                f"{self.name}: moment 'peak-resident' depends on a table; give peak, end, #N,"
                " or a time"
            )
        _, stop_op, stop_ns = self._moment(at)
        latest = Latest.until(
            self._blocks_until(stop_ns), len(self) if stop_op is None else stop_op
        )
        return as_rows(histogram_of(latest.size[latest.live]))

    def _blocks_until(self, stop_ns: int | None) -> Iterator[NDArray[np.void]]:
        """Yield blocks with the operations up to this time; None: all."""
        for block in self._watched_blocks("sizes"):
            if stop_ns is not None and int(block["time_ns"][-1]) > stop_ns:
                yield block[: int(np.searchsorted(block["time_ns"], stop_ns, side="right"))]
                return
            yield block

    # --- moments ---

    def _check_own_moment(self, at: str | float) -> None:
        """Raise InvalidError for a moment after the end, which would silently count as the end."""
        if at in MOMENTS or not is_after(at, self.summary.ops, self.summary.duration_ns):
            return
        has = (
            f"lasts {_format.seconds(self.summary.duration_ns)}"
            if operation_of(at) is None
            else f"has {_format.plural(self.summary.ops, 'operation')}"
        )
        raise errors.InvalidError(f"{self.name}: moment {at!r} is after its end; it {has}")

    def _moment(self, at: str | float) -> Moment:
        """Return the point of a run where the moment is."""
        if at == "peak":
            return Moment("peak", self.summary.peak_op)
        if at in MOMENTS:
            return Moment(str(at))
        operation = operation_of(at)
        if operation is not None:
            return Moment(f"operation {_format.number(operation)}", operation)
        seconds = parse_seconds(at)
        return Moment(f"{seconds:g} s", None, round(seconds * 1e9))

    # --- counts ---

    def _lifetimes(self, by: str, table: SizeClassTable) -> Rows:
        return as_rows(take_lifetimes(self._watched_blocks("lifetimes"), by, table))

    @cached_property
    def threads(self) -> Rows:
        """Counts per thread, rows of THREADS_DTYPE."""
        return as_rows(count_threads(self._watched_blocks("threads")))

    def _watched_blocks(self, what: str) -> Iterator[NDArray[np.void]]:
        with progress_bar(None, self._count_quickly(), what, "operations") as step:
            for block in self.blocks():
                yield block
                step(len(block))

    @cached_property
    def modules(self) -> list[Module]:
        """The recorded program's modules."""
        return [module for module in self._all_modules if not is_function(module)]

    @cached_property
    def _all_modules(self) -> list[Module]:
        """The modules, and the functions that are stored as modules."""
        if not isinstance(self.source, FileSource):
            return []
        return sources.read_modules(self.source.open())

    @property
    def has_python_lines(self) -> bool:
        """Whether any call site is a line of Python."""
        return any(map(is_python, self._all_modules))

    @cached_property
    def sites(self) -> Sites:
        """Call sites that allocated anything, most bytes first."""
        counts = count_sites(self._watched_blocks("sites"))
        same = same_sites(self._frames)
        sums: dict[int, tuple[int, int]] = {}
        for site, (allocs, allocated_bytes) in sorted(counts.items()):
            before = sums.get(same.get(site, site), (0, 0))
            sums[same.get(site, site)] = before[0] + allocs, before[1] + allocated_bytes
        sites = tuple(
            Site(site, allocs, allocated_bytes, self._frames.get(site, ()))
            for site, (allocs, allocated_bytes) in sums.items()
        )
        return Sites(sites, build_ids_of(self.modules), self.imported)

    @property
    def site_frames(self) -> Mapping[int, tuple[str, ...]]:
        """The frames of each call site, as addresses or names, by the site's number."""
        return self._frames

    @cached_property
    def _frames(self) -> dict[int, tuple[str, ...]]:
        if not isinstance(self.source, FileSource):
            return {}
        names = FrameNames(self._all_modules)
        return {
            site: tuple(map(names.name, frames))
            for site, frames in sources.read_sites(self.source.open()).items()
        }

    def _count_quickly(self) -> int:
        """Estimate the number of operations without reading them, for progress bars."""
        return self.info.get("ops", 0) or (len(self) if self.path is None else 0)


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

    def site_labels(self, sites: Iterable[int]) -> dict[int, str]:
        """Return the innermost callers of call sites, as text, by the sites' ids."""
        frames = {site: self._frames.get(site, ()) for site in sites}
        return label_sites(frames, build_ids_of(self.modules))

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

# SPDX-License-Identifier: Apache-2.0
"""The content of a recording or a sample: metadata, operations, and counts of these."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import OPS_DTYPE
from spanwise.heap.options import HeapOptions
from spanwise.ledger.parts import MOMENTS
from spanwise.recordings import sources
from spanwise.recordings.names import FrameNames, build_ids_of, is_function, is_python
from spanwise.recordings.process_memory import ProcessMemory, missing_memory, read_memory
from spanwise.recordings.programs import ADVICE, allocator_of, is_python_file, runtime_of
from spanwise.recordings.simulate import Moment
from spanwise.recordings.sites import Site, Sites, same_sites
from spanwise.recordings.sources import (
    ArraySource,
    FileSource,
    Latest,
    Module,
    Source,
    summarize_ops,
)
from spanwise.recordings.summary import (
    Summary,
    count_sites,
    count_sizes,
    count_threads,
    histogram_of,
    take_lifetimes,
)
from spanwise.recordings.timeline import (
    WholeRun,
    is_after,
    operation_of,
    parse_seconds,
)
from spanwise.results.jobs import progress_bar
from spanwise.results.rows import Result, Rows, Tabular, as_rows
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
    def attached(self) -> bool:
        """Whether it is of a window of a process that ran before (`record --pid`)."""
        return ("attached", "1") in self.meta

    @property
    def before(self) -> str:
        """The frees and reallocations of objects from before the window, in words; "": none."""
        counts = (
            (self.summary.unknown_frees, "free"),
            (self.summary.unknown_reallocs, "reallocation"),
        )
        found = [_format.plural(count, noun) for count, noun in counts if count]
        return f"{' and '.join(found)} of objects from before" if found and self.attached else ""

    @property
    def remark(self) -> str:
        """A caveat for users of the recording; usually empty."""
        own = next((value for key, value in self.meta if key == "remark"), "")
        window = "objects from before the recording are not included" if self.attached else ""
        return "; ".join(filter(None, (own, window, self.missing)))

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

# SPDX-License-Identifier: Apache-2.0
"""Queries about a recording or a set of recordings, and advice, exports and plots made from them.

A query checks its arguments, shows progress, queries each recording, and sums the results.
Methods with an underscore in `recording.py` query one recording. `summary.py` and the modules of
the result types sum results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from spanwise import _format, _lib, errors
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions, as_options
from spanwise.ledger.ledger import Comparison, Ledger, add_ledgers
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.recordings.live_sites import LiveSites, add_live_sites
from spanwise.recordings.sites import Sites
from spanwise.recordings.span_pinning import SpanPinning, check_by
from spanwise.recordings.summary import (
    Summary,
    add_histograms,
    add_lifetimes,
    add_timelines,
    check_group,
)
from spanwise.recordings.timeline import (
    MOMENTS_MAX,
    AfterPeak,
    add_after_peak,
    check_detail,
    operation_of,
    step_of,
)
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Rows, draw
from spanwise.tables.table import STOCK, SizeClassTable, as_table, as_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.measure.bench_result import BenchResult
    from spanwise.optimizer.result import OptimizeResult
    from spanwise.recordings.recording import Recording
    from spanwise.report.advice import AdviceList


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class QueryArgs:
    """The arguments that queries have in common, checked and converted."""

    table: SizeClassTable
    at: str | float
    options: HeapOptions
    progress: Step
    moment_of: SizeClassTable | None = None  # its peak is "peak-resident"; None: that of `table`


class RecordingQueries:
    """Queries about a recording or a set of recordings, and what is made from the answers."""

    name: str

    # --- recordings ---

    @property
    def summary(self) -> Summary:
        """Totals."""
        raise NotImplementedError

    @property
    def sites(self) -> Sites:
        """Call sites that allocated anything."""
        raise NotImplementedError

    def _each(self) -> Sequence[Recording]:
        """Return the recording itself, or those of the set."""
        raise NotImplementedError

    def _total(self, found: list[Answer], add: Callable[[list[Answer]], Answer]) -> Answer:
        """Combine the recordings' answers: the only one, or the sum for a set."""
        raise NotImplementedError

    def _only(self, what: str) -> Recording:
        """Return the only recording, for queries that a set of several cannot answer."""
        if len(self._each()) != 1:
            raise errors.InvalidError(f"{what} is for one recording; use one of the set")
        return self._each()[0]

    def _about_ops(self) -> int:
        """Estimate the number of operations without reading them, for progress bars."""
        return sum(one._count_quickly() for one in self._each())

    def _check_moment(self, at: str | float) -> None:
        """Raise InvalidError for a moment after the end, which would silently count as the end.

        In a set, the moment may be after the end of some recordings, which then count at their
        end, but not after the end of all.
        """
        last = "duration_ns" if operation_of(at) is None else "ops"
        max(self._each(), key=lambda one: getattr(one.summary, last))._check_own_moment(at)

    # --- sizes and lives ---

    def histogram(self) -> Rows:
        """Count the sizes of all requests, allocations and reallocations.

        Returns:
            Rows of HISTOGRAM_DTYPE (size_bytes, count, total_bytes), by rising size.
        """
        return self._total([one._histogram() for one in self._each()], add_histograms)

    def live_histogram(self, at: str | float = "peak") -> Rows:
        """Count the last requested sizes of the live objects at a moment.

        In a set, each process is at its own moment.

        Args:
            at: "peak", "end", "#N" (after N operations), or seconds since the start.

        Returns:
            Rows of HISTOGRAM_DTYPE (size_bytes, count, total_bytes), by rising size.

        Raises:
            InvalidError: "peak-resident", which depends on a table, or a moment after the end.
        """
        self._check_moment(at)
        return self._total([one._live_histogram(at) for one in self._each()], add_histograms)

    def lifetimes(self, by: str = "class", table: SizeClassTable | str = "c16") -> Rows:
        """Count lifetimes in powers of two of nanoseconds, by class, call site or size.

        A resized object lives on; it counts with its last size, for the site of its allocation.

        Args:
            by: "class", "site" or "size" (in powers of two).
            table: size classes, or a table's name.

        Returns:
            Rows of LIFETIMES_DTYPE: cls (0: large), site, size_bytes (of the class, or at least),
            lifetime_ns (at least), freed, count, total_bytes. Objects that are not freed have
            their age at the end of their process, so `recording[:n].lifetimes()` has the ages
            after n operations.

        Raises:
            InvalidError: `by` is invalid; or it is "site" for a set of several, each of which has
                its own numbers of sites.
        """
        check_group(by)
        made = as_table(table)
        each = [self._only("a count by site")] if by == "site" else self._each()
        return self._total([one._lifetimes(by, made) for one in each], add_lifetimes)

    # --- accounts ---

    def ledger(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Ledger:
        """Compute the ledger under a table, by running the operations through a dry heap.

        For a set it is the sum of the ledgers; `parts` has each of them.

        Args:
            table: size classes, or a table's name.
            at: "peak-resident" (of the operations with resident bytes within 1 % of their maximum
                the one after which most is requested; an additional run finds it, once per table
                and options), "peak" (after the first operation that brings requested bytes to
                their maximum, one moment for all tables), "end", "#N" (after N operations),
                or seconds since the start (after the last operation until then); in a set,
                recordings that have ended by then count at their end.
            options: of the heap; decay_ms uses the recording's clock.
            progress: a function to call with the number of operations done since its last
                call; True or False: a bar, or none; None: a bar on a terminal or in a notebook, if
                it takes more than a second.

        Returns:
            The ledger; `stats` and the Johnstone-Wilson ratios are for the whole recording. Its
            `resident` assumes that the program writes all of each object when it allocates it.

        Raises:
            InvalidError: an argument is not allowed, such as a moment after the end.
            TraceFormatError: the file is damaged.
        """
        with self._query("ledger", table, at, options, progress) as query:
            return self._ledger(query)

    def _ledger(self, query: QueryArgs) -> Ledger:
        found = [one._account(query) for one in self._each()]
        return self._total(found, lambda ledgers: add_ledgers(ledgers, self.name))

    @contextmanager
    def _query(
        self,
        what: str,
        table: SizeClassTable | str,
        at: str | float,
        options: HeapOptions | None,
        progress: Progress,
        *,
        passes: int = 1,
    ) -> Iterator[QueryArgs]:
        """Check the arguments and show a progress bar for `passes` over the operations."""
        self._check_moment(at)
        made, heap = as_table(table), as_options(options)
        steps = passes * self._about_ops() + self._peak_ops(made, at, heap)
        with progress_bar(progress, steps, f"{what}, {made.name}", "operations") as step:
            yield QueryArgs(made, at, heap, step)

    def _peak_ops(self, table: SizeClassTable, at: str | float, heap: HeapOptions) -> int:
        """About how many operations are run to find the moment."""
        if at != PEAK_RESIDENT:
            return 0
        return sum(one._count_quickly() for one in self._each() if not one._knows_peak(table, heap))

    def compare(
        self,
        tables: SizeClassTable | str | Iterable[SizeClassTable | str] = STOCK,
        at: str | float = PEAK_RESIDENT,
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Comparison:
        """Compare the ledgers under several tables at one moment; arguments as in `ledger`.

        "peak-resident" is the moment under the first table. `peak_resident_bytes` of each ledger,
        which ranks it, is at the moment of its own table.
        """
        made, heap = as_tables(tables), as_options(options)
        self._check_moment(at)
        steps = len(made) * self._about_ops() + self._peak_ops(made[0], at, heap)
        with progress_bar(progress, steps, "compare", "operations") as step:
            return Comparison(
                [self._ledger(QueryArgs(one, at, heap, step, made[0])) for one in made]
            )

    def after_peak(
        self,
        table: SizeClassTable | str = "c16",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> AfterPeak:
        """The most waste after the peak of resident bytes, and what is still held at the end.

        The arguments are those of `ledger`. A ledger at "peak-resident" makes the same pass over
        the operations, which is then not repeated.
        """
        with self._query("after the peak", table, PEAK_RESIDENT, options, progress, passes=0) as q:
            found = [one._after_peak(q) for one in self._each()]
        return self._total(found, add_after_peak)

    def blowup(
        self,
        table: SizeClassTable | str = "c16",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> float | None:
        """Return Hoard's blowup: peak held bytes over those of a single-threaded run.

        Berger and others, "Hoard: a scalable memory allocator" (2000). The ideal allocator is the
        same heap with all operations done by one thread. The arguments are those of `ledger`; None
        if nothing was ever held.
        """
        with self._query("blowup", table, "end", options, progress, passes=2) as query:
            found = [one._most_held(query) for one in self._each()]
        most, alone = (sum(held) for held in zip(*found, strict=True))
        return most / alone if alone else None

    def timeline(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 1000,
        step_s: float | None = None,
        detail: str = "sums",
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Rows:
        """Compute requested, held and other bytes over time under a table, in one pass.

        For a set it is the sum of the time lines, each process from its own start.

        Args:
            table: size classes, or a table's name.
            samples: approximate number of moments, at most 2048, evenly spread over the operations.
            step_s: seconds; instead of samples, a moment at each multiple of this time, after the
                last operation until then, and at the end. Steps in which nothing happened have no
                row. With "parts" or "classes", for at most 2048 moments.
            detail: "sums"; "parts": the whole ledger at each moment, with the resident bytes of
                each part; "classes": the same for each class that has spans at that moment.
            options: of the heap; decay_ms uses the recording's clock.
            progress: as in `ledger`.

        Returns:
            Rows with the columns op, time_ns, requested_bytes, live_objects,
            slot_bytes, held_bytes, free_page_bytes; with "parts" one per moment, with parts of a
            ledger and resident_bytes, resident_requested_bytes, ...; with "classes" one per moment
            and class (class 0: large objects).

        Raises:
            InvalidError: the detail is invalid, or is "classes" for a set, which has no single
                heap; or the step is not above 0, has too many moments, or is used with "sums".
            TypeError: the step is not a number.
        """
        wanted = max(1, _lib.as_index(samples, "samples", MOMENTS_MAX))
        check_detail(detail)
        step_ns = step_of(step_s, detail)
        each = [self._only("a time line of classes")] if detail == "classes" else self._each()
        with self._query("time line", table, "end", options, progress) as query:
            found = [one._timeline(query, wanted, step_ns, detail) for one in each]
        return self._total(found, add_timelines)

    def live_sites(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> LiveSites:
        """Return the live objects at a moment by call site, and the waste that they keep.

        The arguments are those of `ledger`. The bytes of sites, and those of no site, add up to the
        ledger of that moment exactly, unless a limit in `options` made the heap refuse a resize. A
        span's free bytes are divided evenly among its live objects. In a set, each process
        is at its own moment; sites with the same frames are merged and renumbered from 1.
        """
        with self._query("live sites", table, at, options, progress) as query:
            found = [one._live_sites(query) for one in self._each()]
        return self._total(found, lambda sites: add_live_sites(sites, self.name))

    def site_groups(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Rows:
        """Count allocations, and live objects at a moment, by call site, size class and thread.

        The arguments are those of `ledger`. `waste_bytes` add up to those of `live_sites`
        by site. An object counts for the site and the thread that last allocated or resized
        it, and for the class of its span.

        Returns:
            Rows of GROUPS_DTYPE by site, slot_bytes (0: whole pages) and thread: allocs,
            allocated_bytes, live_objects, requested_bytes, waste_bytes.

        Raises:
            InvalidError: this is a set of several recordings, each with its own numbers of sites.
        """
        with self._query("site groups", table, at, options, progress) as query:
            return self._only("a count by site, class and thread")._site_groups(query)

    def span_pinning(
        self,
        by: str = "site",
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> SpanPinning:
        """Return which objects pin the partial spans at a moment, and how many bytes they pin.

        `by` groups the live objects by "site" or "thread" (that last allocated or resized them),
        "size" (slots of their class), "age" (since that operation) or "lifetime" (from allocation
        to free). The other arguments are those of `ledger`.

        Raises:
            InvalidError: `by` is invalid, or this is a set of several recordings.
        """
        check_by(by)
        with self._query("pinned spans", table, at, options, progress) as query:
            return self._only("pinned spans")._span_pinning(query, by)

    def map(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> HeapMap:
        """Return a map of the simulated heap at a moment: its spans, slots and live objects.

        The arguments are those of `ledger`, and the tiles add up to that ledger.

        Raises:
            InvalidError: this is a set of several recordings, each of which has its own heap.
        """
        with self._query("heap map", table, at, options, progress) as query:
            return self._only("a heap map")._map(query)

    def maps(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 24,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> list[HeapMap]:
        """Return heap maps: at `samples` evenly spread operations, and at the peak resident.

        They have no slots and objects, to save memory; `spanwise.plots.save_frames` draws
        them as an animation. The other arguments, and errors, are those of `map`.
        """
        wanted = max(1, _lib.as_index(samples, "samples", 2048))
        with self._query("heap maps", table, PEAK_RESIDENT, options, progress) as query:
            return self._only("a heap map")._maps(query, wanted)

    # --- advice, reports, exports, plots ---

    def advice(
        self,
        table: SizeClassTable | str = "c16",
        *,
        fitted: OptimizeResult | None = None,
        runs: BenchResult | None = None,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> AdviceList:
        """Return what the program wastes and what to change, the greatest saving first.

        Args:
            table: size classes of the simulated heap.
            fitted: a result of `spanwise.optimize` for this recording; its table becomes advice if
                it holds.
            runs: a result of `spanwise.bench` for the recorded command; the allocator under which
                real runs need least becomes advice, in place of the simulated comparison.
            options: of the simulated heap.
            progress: as in `ledger`.
        """
        from spanwise.report.advice import advise  # noqa: PLC0415  reports know models

        only = self._only("advice")
        return advise(
            only, as_table(table), fitted=fitted, runs=runs, options=options, progress=progress
        )

    def to_html(
        self,
        path: str | os.PathLike[str],
        table: SizeClassTable | str = "c16",
        *,
        holdout: Iterable[Recording] = (),
        hide_frames: Iterable[str] = (),
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> str:
        """Writes a report: a self-contained HTML page with the answer first.

        Of a set it has the sums and the ledger of each process, but no heap map and no table
        advice.

        Args:
            path: of the page, which is written atomically and replaced.
            table: size classes, or a table's name.
            holdout: recordings to evaluate the table that is fitted to this one.
            hide_frames: as in `LiveSites.named`.
            options: of the heap; decay_ms uses the recording's clock.
            progress: as in `ledger`; the steps are passes over the recording.

        Returns:
            The sentence at the top of the page.

        Raises:
            OSError: the system refused to write.
            InvalidError: holdout for a set.
        """
        from spanwise.report import page  # noqa: PLC0415  reports know models

        each, made = self._each(), as_table(table)
        what: Any = each[0] if len(each) == 1 else self
        return page.write(
            *(what, path, made, tuple(holdout), options), hide_frames=hide_frames, progress=progress
        )

    def export(
        self,
        path: str | os.PathLike[str],
        to: str,
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        value: str = "inuse-bytes",
        full_stacks: bool = False,
        hide_frames: Iterable[str] = (),
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> None:
        """Writes a file in a format of another tool (docs/design/export.md).

        Args:
            path: of the file, which is written atomically and replaced.
            to: "pprof", "speedscope", "collapsed", "perfetto", "openmetrics", "npz" or "parquet"
                (with pyarrow, from the extra parquet).
            table: size classes, or a table's name.
            at: the moment, as in `ledger`; "npz", "parquet" and "perfetto" have the whole
                recording.
            value: of each call site, for "collapsed": "inuse-bytes", "waste-bytes", ...
            full_stacks: as in `LiveSites.named`.
            hide_frames: as in `LiveSites.named`.
            options: of the heap.
            progress: as in `ledger`.

        Raises:
            OSError: the system refused to write.
            InvalidError: the format, value or moment is invalid.
            UnsupportedError: "parquet" without pyarrow.
        """
        from spanwise.report import export  # noqa: PLC0415  reports know models

        names = {"full_stacks": full_stacks, "hide_frames": tuple(hide_frames)}
        wanted = export.Wanted(to, value, as_table(table), at, names)
        export.write(self._only("an export"), path, wanted, options, progress)

    def to_flame(
        self,
        path: str | os.PathLike[str],
        of: str = "waste",
        table: SizeClassTable | str = "c16",
        at: str | float = PEAK_RESIDENT,
        *,
        before: RecordingQueries | None = None,
        full_stacks: bool = False,
        hide_frames: Iterable[str] = (),
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> str:
        """Draws a flame graph of what live objects keep, as a self-contained file.

        The width of the root is the ledger's bytes. Bytes of no live object have their own frame.

        Args:
            path: of the file, which is written atomically and replaced: .svg for a picture, .html
                for a page with zoom, search and all quantities.
            of: "waste" (round-up and pinned spans), "round-up", "pinned" (free bytes that live
                objects keep), "resident" or "requested".
            table: size classes, or a table's name.
            at: the moment, as in `ledger`.
            before: an earlier recording; the page shows what grew and shrank since, by stack.
            full_stacks: as in `LiveSites.named`.
            hide_frames: as in `LiveSites.named`.
            options: of the heap.
            progress: as in `ledger`.

        Returns:
            A sentence with the total and the call site with the most bytes.

        Raises:
            OSError: the system refused to write.
            InvalidError: `of`, moment or file name is invalid; or no call sites are known.
        """
        from spanwise.report import export  # noqa: PLC0415  reports know models

        export.check_flame(path, of, is_difference=before is not None)
        both = (self, *([before] if before is not None else []))
        hidden = tuple(hide_frames)
        named, *earlier = (
            one.live_sites(table, at, options=options, progress=progress).named(
                full_stacks=full_stacks, hide_frames=hidden
            )
            for one in both
        )
        allocated = [
            one.sites.named(full_stacks=full_stacks, hide_frames=hidden).sites for one in both
        ]
        return export.write_flame(named, path, of, earlier[0] if earlier else None, allocated)

    def plot_timeline(self, table: SizeClassTable | str = "c16", ax: Axes | None = None) -> Axes:
        """Draws requested and held bytes over time; returns the matplotlib Axes."""
        name = as_table(table).name
        return draw(
            "timeline", self.timeline(table), ax, title=f"{self.name}: held bytes under {name}"
        )

    def plot_histogram(self, ax: Axes | None = None) -> Axes:
        """Draws requests by size; returns the matplotlib Axes."""
        return draw("histogram", self.histogram(), ax, title=f"{self.name}: requests by size")

    def _repr_html_(self) -> str:
        return _format.html_table(self.summary.text_rows(), (self.name, ""))

# SPDX-License-Identifier: Apache-2.0
"""Queries that a recording and a set of recordings answer, each defined once.

A query checks its arguments, shows progress, asks each recording, and adds up the answers.
`recording.py` and `history.py` answer for one recording, in methods with an underscore.
`summary.py` and the modules of the result types add answers up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from spanwise import _lib, errors
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions, as_options
from spanwise.ledger.comparison import Comparison
from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.recordings.lifetimes import add_lifetimes, check_group
from spanwise.recordings.live_sites import LiveSites, add_live_sites
from spanwise.recordings.span_pinning import SpanPinning, check_by
from spanwise.recordings.summary import Summary, add_histograms, add_timelines
from spanwise.recordings.timeline import MOMENTS_MAX, check_detail, operation_of, step_of
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Rows
from spanwise.tables.table import STOCK, SizeClassTable, as_table, as_tables

if TYPE_CHECKING:
    from spanwise.recordings.recording import Recording


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class QueryArgs:
    """The arguments that queries have in common, checked and converted."""

    table: SizeClassTable
    at: str | float
    options: HeapOptions
    progress: Step


class RecordingQueries:
    """Queries about allocation events, answered by a recording or by a set of recordings."""

    name: str

    # --- recordings ---

    @property
    def summary(self) -> Summary:
        """Totals."""
        raise NotImplementedError

    def _each(self) -> Sequence[Recording]:
        """The recording itself, or those of the set."""
        raise NotImplementedError

    def _total(self, found: list[Answer], add: Callable[[list[Answer]], Answer]) -> Answer:
        """The answer made of each recording's answer: its own, or the sum for a set."""
        raise NotImplementedError

    def _only(self, what: str) -> Recording:
        """The one recording, for queries that a set of several cannot answer.

        Raises:
            InvalidError: a set of several.
        """
        if len(self._each()) != 1:
            raise errors.InvalidError(f"{what} is that of one recording; ask one of the set")
        return self._each()[0]

    def _about_ops(self) -> int:
        """About how many operations there are, without reading them: for progress bars."""
        return sum(one._count_quickly() for one in self._each())

    def _check_moment(self, at: str | float) -> None:
        """Refuses a moment after the end, which would silently be taken as the end.

        In a set, the moment may be after the end of some recordings, which are then taken at their
        end, but not after the end of all.
        """
        last = "duration_ns" if operation_of(at) is None else "ops"
        max(self._each(), key=lambda one: getattr(one.summary, last))._check_own_moment(at)

    # --- sizes and lives ---

    def histogram(self) -> Rows:
        """Sizes of all requests, allocations and reallocations.

        Returns:
            Rows of HISTOGRAM_DTYPE (size_bytes, count, total_bytes), by rising size.
        """
        return self._total([one._histogram() for one in self._each()], add_histograms)

    def live_histogram(self, at: str | float = "peak") -> Rows:
        """Sizes of the objects that live at a moment, each with its last requested size.

        In a set each process is at its own moment.

        Args:
            at: "peak", "end", "#N" (after N operations), or seconds since the start.

        Returns:
            Rows of HISTOGRAM_DTYPE (size_bytes, count, total_bytes), by rising size.

        Raises:
            InvalidError: "peak-resident", which depends on a table; what is after the end.
        """
        self._check_moment(at)
        return self._total([one._live_histogram(at) for one in self._each()], add_histograms)

    def lifetimes(self, by: str = "class", table: SizeClassTable | str = "c16") -> Rows:
        """How long objects lived, in powers of two of nanoseconds, by class, call site or size.

        An object that is resized lives on; it counts with its last size, for the site of its birth.

        Args:
            by: "class"; "site"; "size": the size in powers of two.
            table: the classes, or the name of a table.

        Returns:
            Rows of LIFETIMES_DTYPE: cls (0: large), site, size_bytes (of the class, or at least),
            lifetime_ns (at least), freed, count, total_bytes. Objects that are not freed have
            their age at the end of their process, so `recording[:n].lifetimes()` has the ages
            after n operations.

        Raises:
            InvalidError: for another `by`; by "site" of a set of several, each of which numbers
                its sites for itself.
        """
        check_group(by)
        made = as_table(table)
        each = [self._only("a count by site")] if by == "site" else self._each()
        return self._total([one._lifetimes(by, made) for one in each], add_lifetimes)

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

        Of a set it is the sum of the ledgers; `parts` has each of them.

        Args:
            table: size classes, or a table's name.
            at: "peak" (after the first operation that brings requested bytes to their maximum),
                "peak-resident" (the same of resident bytes, which takes a run of its own to find),
                "end", "#N" (after N operations), or seconds since the start (after the last
                operation until then); of a set, recordings that are over by then are taken at
                their end.
            options: of the heap; of decay_ms the recording's clock counts.
            progress: a function that is called with the number of operations done since its last
                call; True or False: a bar, or none; None: a bar on a terminal or in a notebook, if
                it takes more than a second.

        Returns:
            The ledger; `stats` and the Johnstone-Wilson ratios are of the whole recording. Its
            `resident` takes the program to write all of each object at its birth.

        Raises:
            InvalidError: for an argument that is not allowed, such as a moment after the end.
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
        steps = passes * self._about_ops()
        with progress_bar(progress, steps, f"{what}, {made.name}", "operations") as step:
            yield QueryArgs(made, at, heap, step)

    def compare(
        self,
        tables: SizeClassTable | str | Iterable[SizeClassTable | str] = STOCK,
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Comparison:
        """Ledgers under several tables, side by side; the arguments as of `ledger`."""
        made, heap = as_tables(tables), as_options(options)
        self._check_moment(at)
        steps = len(made) * self._about_ops()
        with progress_bar(progress, steps, "compare", "operations") as step:
            return Comparison([self._ledger(QueryArgs(one, at, heap, step)) for one in made])

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
        """Requested, held and other bytes over time, under a table, in one pass.

        Of a set it is the sum of the time lines, each process from its own start.

        Args:
            table: size classes, or a table's name.
            samples: about so many moments, at most 2048, evenly spread over the operations.
            step_s: instead a moment at each multiple of so many seconds of the recording, after the
                last operation until then, and at the end; steps in which nothing happened have no
                row. With "parts" or "classes", for at most 2048 moments.
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
            InvalidError: for another detail; for "classes" of a set, which has no single
                heap; for a step that is not above 0, gives too many moments, or goes with "sums".
            TypeError: the step is no number.
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
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> LiveSites:
        """What is live at a moment by call site, and the waste that each site's objects keep.

        The arguments are those of `ledger`. Sites and what is of no site add up to the ledger of
        that moment, to the byte, but where a limit of `options` made the heap refuse a resize. A
        span's free bytes are shared evenly among the objects that live in it. In a set each process
        is at its own moment; sites with the same frames are added up and numbered anew from 1.
        """
        with self._query("live sites", table, at, options, progress) as query:
            found = [one._live_sites(query) for one in self._each()]
        return self._total(found, lambda sites: add_live_sites(sites, self.name))

    def site_groups(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Rows:
        """Allocations, and what is live at a moment, by call site, size class and thread.

        The arguments are those of `ledger`. `waste_bytes` add up to those of `live_sites`
        by site. An object counts for the site and the thread that last allocated or resized
        it, and for the class of its span.

        Returns:
            Rows of GROUPS_DTYPE by site, slot_bytes (0: whole pages) and thread: allocs,
            allocated_bytes, live_objects, requested_bytes, waste_bytes.

        Raises:
            InvalidError: a set of several recordings, each of which numbers its sites for itself.
        """
        with self._query("site groups", table, at, options, progress) as query:
            return self._only("a count by site, class and thread")._site_groups(query)

    def span_pinning(
        self,
        by: str = "site",
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> SpanPinning:
        """Who holds the partial spans of a moment, and what would come free without them.

        `by` is what the groups of live objects are: "site" and "thread" (that last allocated or
        resized them), "size" (slots of their class), "age" (since then), "lifetime" (from
        allocation to free). The other arguments are those of `ledger`.

        Raises:
            InvalidError: for another `by`; a set of several recordings.
        """
        check_by(by)
        with self._query("pinned spans", table, at, options, progress) as query:
            return self._only("pinned spans")._span_pinning(query, by)

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

        Raises:
            InvalidError: a set of several recordings, each of which has a heap of its own.
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
        """Maps through time, of one pass: at `samples` evenly spread operations, and at the peak.

        They are without slots and objects, so that many fit; `spanwise.plots.save_frames` draws
        them as an animation. The other arguments, and errors, are those of `map`.
        """
        wanted = max(1, _lib.as_index(samples, "samples", 2048))
        with self._query("heap maps", table, "end", options, progress) as query:
            return self._only("a heap map")._maps(query, wanted)

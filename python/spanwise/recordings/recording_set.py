# SPDX-License-Identifier: Apache-2.0
"""Recordings of several processes that are accounted together."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions, as_options
from spanwise.ledger.comparison import Comparison
from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.recordings.lifetimes import add_lifetimes
from spanwise.recordings.live_sites import LiveSites, add_live_sites
from spanwise.recordings.names import build_ids_of
from spanwise.recordings.recording import Recording
from spanwise.recordings.sites import Site, Sites
from spanwise.recordings.sources import Module
from spanwise.recordings.summary import Summary, count_threads
from spanwise.recordings.sums import add_histograms, add_summaries, add_timelines, apart
from spanwise.recordings.timeline import check_detail
from spanwise.results.progress import Progress, progress_bar
from spanwise.results.rows import Rows, Tabular, as_rows
from spanwise.results.values import Result
from spanwise.tables.table import STOCK, SizeClassTable, as_table, as_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 20


class RecordingSet(Sequence[Recording], Result, Tabular):
    """Recordings of several processes that are accounted together.

    Each process has a heap of its own. The sum takes each of them at its own moment: at "peak"
    it is what they would hold if all peaks fell together, an upper bound. It answers all that a
    `Recording` answers; an index gives a recording, a slice a set.

    Attributes:
        name: what pictures and ledgers call it.
        path: None; each recording has its own.
    """

    path = None

    def __init__(self, recordings: Iterable[Recording], name: str = "") -> None:
        self._recordings = tuple(recordings)
        if not self._recordings:
            raise errors.InvalidError("a set needs at least one recording")
        self.name = name or _format.plural(len(self._recordings), "recording")

    @classmethod
    def open(
        cls, paths: Iterable[str | os.PathLike[str]], valid_prefix: bool = False
    ) -> RecordingSet:
        """Opens files; a name with *, ? or [ that is no file stands for those that match.

        Raises:
            InvalidError: nothing matches. Else as `Recording.open`.
        """
        files = [name for path in paths for name in _matches(os.fspath(path))]
        return cls(Recording.open(name, valid_prefix) for name in files)

    def __getitem__(self, index: Any) -> Any:
        found = self._recordings[index]
        return RecordingSet(found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        return len(self._recordings)

    # --- what they say of themselves ---

    @property
    def program(self) -> str:
        """The program of the first recording, from which the others were started."""
        return self._recordings[0].program

    @property
    def arguments(self) -> list[str]:
        """The command line of the first recording's program."""
        return self._recordings[0].arguments

    @property
    def info(self) -> dict[str, int]:
        """The numbers of the heads of their files that are equal in all of them."""
        first = self._recordings[0].info
        same = {name for name in first if all(one.info.get(name) == first[name] for one in self)}
        return {name: first[name] for name in first if name in same}

    @property
    def meta(self) -> list[tuple[str, str]]:
        """The metadata of all, one recording after the other."""
        return [pair for one in self for pair in one.meta]

    @property
    def remark(self) -> str:
        """A sentence that every user of the recordings must know; mostly empty."""
        return next((one.remark for one in self if one.remark), "")

    @property
    def summary(self) -> Summary:
        """The totals added up; the time is that of the longest recording."""
        return add_summaries([one.summary for one in self])

    @property
    def events(self) -> int:
        """Events of all of them."""
        return sum(one.events for one in self)

    def highest(self) -> Recording:
        """The recording with the highest peak of requested bytes."""
        return max(self, key=lambda one: one.summary.peak_requested_bytes)

    # --- operations ---

    @property
    def ops(self) -> Rows:
        """The operations of all, as `blocks` numbers them."""
        return as_rows(np.concatenate(list(self.blocks(1 << 20)) or [self._recordings[0].ops[:0]]))

    @property
    def array(self) -> Rows:
        """The same as `ops`."""
        return self.ops

    def blocks(self, rows: int = 65536) -> Iterator[NDArray[np.void]]:
        """The operations, one recording after the other, each with the times of its own process.

        Objects, threads and sites of different recordings have different numbers.
        """
        return apart(self._recordings, rows)

    # --- accounts ---

    def ledger(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Ledger:
        """The sum of the ledgers; `parts` has each of them. Arguments as of `Recording.ledger`.

        A time may be after the end of some of them, which are taken at their end.
        """
        made, given = as_table(table), as_options(options)
        max(self, key=lambda one: one.summary.duration_ns)._check_moment(at)
        total = sum(one._about_ops() for one in self)
        with progress_bar(progress, total, f"ledger, {made.name}", "operations") as tell:
            return add_ledgers([one._ledger(made, at, given, tell) for one in self], self.name)

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
        total = len(made) * sum(one._about_ops() for one in self)
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
        """Hoard's blowup, of the sums over the recordings; as `Recording.blowup`."""
        made, given = as_table(table), as_options(options)
        total = 2 * sum(one._about_ops() for one in self)
        with progress_bar(progress, total, f"blowup, {made.name}", "operations") as tell:
            found = [one._most_held(made, given, tell) for one in self]
        alone = sum(one for _, one in found)
        return sum(most for most, _ in found) / alone if alone else None

    def timeline(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 1000,
        detail: str = "sums",
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> Rows:
        """The sum of the time lines, each process from its own start; as `Recording.timeline`."""
        check_detail(detail)
        if detail == "classes":
            raise errors.InvalidError(
                "classes over time are those of one recording; ask one of the set"
            )
        made = as_table(table)
        total = sum(len(one) for one in self)
        with progress_bar(progress, total, f"time line, {made.name}", "operations") as tell:
            found = [
                one.timeline(made, samples=samples, detail=detail, options=options, progress=tell)
                for one in self
            ]
        return add_timelines(found)

    def histogram(self) -> Rows:
        """Requests by size of all of them; as `Recording.histogram`."""
        return add_histograms([one.histogram() for one in self])

    def lifetimes(self, by: str = "class", table: SizeClassTable | str = "c16") -> Rows:
        """Lifetimes of all, each process's ages at its own end; as `Recording.lifetimes`.

        Raises:
            InvalidError: by "site", whose numbers are those of one recording.
        """
        if by == "site":
            raise errors.InvalidError("numbers of sites are those of one recording; ask one")
        made = as_table(table)
        return as_rows(add_lifetimes([np.asarray(one.lifetimes(by, made)) for one in self]))

    @property
    def threads(self) -> Rows:
        """What each thread did; they are numbered on from one recording to the next."""
        return as_rows(count_threads(self.blocks()))

    @property
    def modules(self) -> list[Module]:
        """The modules of all; each process has addresses of its own."""
        return list(dict.fromkeys(module for one in self for module in one.modules))

    @property
    def sites(self) -> Sites:
        """Call sites of all, those with the same frames added up, numbered anew from 1."""
        counts: dict[tuple[str, ...], tuple[int, int]] = {}
        for site in (site for one in self for site in one.sites):
            allocs, size = counts.get(site.frames, (0, 0))
            counts[site.frames] = allocs + site.allocs, size + site.allocated_bytes
        sites = (Site(i, *count, frames) for i, (frames, count) in enumerate(counts.items(), 1))
        return Sites(sites, build_ids_of(self.modules))

    def live_sites(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> LiveSites:
        """What is live by call site, each process at its own moment; as `Recording.live_sites`.

        Sites with the same frames are added up and numbered anew from 1.
        """
        made = as_table(table)
        max(self, key=lambda one: one.summary.duration_ns)._check_moment(at)
        total = sum(one._about_ops() for one in self)
        with progress_bar(progress, total, f"live sites, {made.name}", "operations") as tell:
            found = [one.live_sites(made, at, options=options, progress=tell) for one in self]
        return add_live_sites(found, self.name)

    def map(
        self,
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> HeapMap:
        """The map of the only recording; as `Recording.map`.

        Raises:
            InvalidError: there are several, each with a heap of its own.
        """
        return self._only("a heap map").map(table, at, options=options, progress=progress)

    def maps(
        self,
        table: SizeClassTable | str = "c16",
        *,
        samples: int = 24,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> list[HeapMap]:
        """Maps through time of the only recording; as `Recording.maps`.

        Raises:
            InvalidError: there are several, each with a heap of its own.
        """
        only = self._only("a heap map")
        return only.maps(table, samples=samples, options=options, progress=progress)

    def _only(self, what: str) -> Recording:
        if len(self) != 1:
            raise errors.InvalidError(f"{what} is that of one recording; ask one of the set")
        return self._recordings[0]

    def to_html(
        self,
        path: str | os.PathLike[str],
        table: SizeClassTable | str = "c16",
        *,
        holdout: Iterable[Recording] = (),
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> str:
        """Writes the report of the only recording; as `Recording.to_html`.

        Raises:
            InvalidError: there are several, each with a heap of its own.
        """
        only = self._only("a report")
        return only.to_html(path, table, holdout=holdout, options=options, progress=progress)

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
        """Writes the only recording in a format of another tool; as `Recording.export`.

        Raises:
            InvalidError: there are several, each with a heap of its own.
        """
        only = self._only("an export")
        only.export(path, to, table, at, value=value, options=options, progress=progress)

    # --- pictures and other forms ---

    def plot_timeline(self, table: SizeClassTable | str = "c16", ax: Axes | None = None) -> Axes:
        """Draws requested and held bytes over time; returns the matplotlib Axes."""
        name = as_table(table).name
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.timeline(self.timeline(table), ax, title=f"{self.name} under {name}")

    def plot_histogram(self, ax: Axes | None = None) -> Axes:
        """Draws requests by size; returns the matplotlib Axes."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.histogram(self.histogram(), ax, title=self.name)

    def to_dict(self) -> dict[str, Any]:
        """What they are and their totals, for JSON."""
        return {
            "name": self.name,
            "summary": self.summary.to_dict(),
            "recordings": [one.to_dict() for one in self],
        }

    def __repr__(self) -> str:
        lines = [f"<RecordingSet {self.name}>", *(f"  {one!r}" for one in self[:_SHOWN])]
        if len(self) > _SHOWN:
            lines.append(f"  ... {_format.plural(len(self) - _SHOWN, 'recording')} more")
        return _format.clipped("\n".join(lines))

    def _repr_html_(self) -> str:
        return _format.html_table(self.summary.text_rows(), (self.name, ""))


def _matches(path: str) -> list[str]:
    if Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))  # noqa: PTH207  the pattern may be absolute
    if not found:
        raise errors.InvalidError(f"{path}: no file matches")
    return found

# SPDX-License-Identifier: Apache-2.0
"""Advice, reports, exports and plots made from the queries."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.recordings.queries import RecordingQueries
from spanwise.results.jobs import Progress
from spanwise.results.rows import draw
from spanwise.tables.table import SizeClassTable, as_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.measure.bench_result import BenchResult
    from spanwise.measure.peers import PeerComparison
    from spanwise.optimizer.result import OptimizeResult
    from spanwise.recordings.recording import Recording
    from spanwise.report.advice import AdviceList


class ExportMixin(RecordingQueries):
    """Adds advice, reports, exports and plots to the queries."""

    def advice(
        self,
        table: SizeClassTable | str = "c16",
        *,
        fitted: OptimizeResult | None = None,
        peers: PeerComparison | None = None,
        runs: BenchResult | None = None,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> AdviceList:
        """Return what the program wastes and what to change, the greatest saving first.

        Args:
            table: size classes of the simulated heap.
            fitted: a result of `spanwise.optimize` for this recording; its table becomes advice if
                it holds.
            peers: a result of `spanwise.compare_peers` for this recording; the allocator with the
                lowest peak RSS becomes advice.
            runs: a result of `spanwise.bench` for the recorded command; the allocator under which
                real runs need least becomes advice, in place of the simulated comparison.
            options: of the simulated heap.
            progress: as of `ledger`.
        """
        from spanwise.report.advice import advise  # noqa: PLC0415  reports know models

        only = self._only("advice")
        return advise(
            only,
            as_table(table),
            fitted=fitted,
            peers=peers,
            runs=runs,
            options=options,
            progress=progress,
        )

    def to_html(
        self,
        path: str | os.PathLike[str],
        table: SizeClassTable | str = "c16",
        *,
        holdout: Iterable[Recording] = (),
        peers: PeerComparison | None = None,
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
            peers: result of `compare_peers` for this recording; None: no such section.
            hide_frames: as of `LiveSites.named`.
            options: of the heap; decay_ms uses the recording's clock.
            progress: as of `ledger`; the steps are passes over the recording.

        Returns:
            The sentence at the top of the page.

        Raises:
            OSError: the system refused to write.
            InvalidError: holdout or peers for a set.
        """
        from spanwise.report import page  # noqa: PLC0415  reports know models

        each, made = self._each(), as_table(table)
        what: Any = each[0] if len(each) == 1 else self
        return page.write(
            *(what, path, made, tuple(holdout), options),
            hide_frames=hide_frames,
            progress=progress,
            peers=peers,
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
            at: the moment, as of `ledger`; "npz", "parquet" and "perfetto" have the whole
                recording.
            value: of each call site, for "collapsed": "inuse-bytes", "waste-bytes", ...
            full_stacks: as of `LiveSites.named`.
            hide_frames: as of `LiveSites.named`.
            options: of the heap.
            progress: as of `ledger`.

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
        before: ExportMixin | None = None,
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
            at: the moment, as of `ledger`.
            before: an earlier recording; the page shows what grew and shrank since, by stack.
            full_stacks: as of `LiveSites.named`.
            hide_frames: as of `LiveSites.named`.
            options: of the heap.
            progress: as of `ledger`.

        Returns:
            A sentence with the total and the call site with the most bytes.

        Raises:
            OSError: the system refused to write.
            InvalidError: `of`, moment or file name is invalid; or no call sites are known.
        """
        from spanwise.report import export  # noqa: PLC0415  reports know models

        export.check_flame(path, of, is_difference=before is not None)
        named, *earlier = (
            one.live_sites(table, at, options=options, progress=progress).named(
                full_stacks=full_stacks, hide_frames=hide_frames
            )
            for one in (self, *([before] if before is not None else []))
        )
        return export.write_flame(named, path, of, *earlier)

    def plot_timeline(self, table: SizeClassTable | str = "c16", ax: Axes | None = None) -> Axes:
        """Draws requested and held bytes over time; returns the matplotlib Axes."""
        name = as_table(table).name
        return draw("timeline", self.timeline(table), ax, title=f"{self.name} under {name}")

    def plot_histogram(self, ax: Axes | None = None) -> Axes:
        """Draws requests by size; returns the matplotlib Axes."""
        return draw("histogram", self.histogram(), ax, title=self.name)

    def _repr_html_(self) -> str:
        return _format.html_table(self.summary.text_rows(), (self.name, ""))

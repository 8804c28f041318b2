# SPDX-License-Identifier: Apache-2.0
"""Reports, files of other tools and pictures, made from the queries."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.recordings.queries import RecordingQueries
from spanwise.results.drawing import draw
from spanwise.results.jobs import Progress
from spanwise.tables.table import SizeClassTable, as_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.measure.peers import PeerComparison
    from spanwise.recordings.recording import Recording


class ExportMixin(RecordingQueries):
    """Pages, files and pictures made from the queries."""

    def to_html(
        self,
        path: str | os.PathLike[str],
        table: SizeClassTable | str = "c16",
        *,
        holdout: Iterable[Recording] = (),
        peers: PeerComparison | None = None,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> str:
        """Writes a report: one page that needs no network, with the answer first.

        Args:
            path: of the page, which appears whole; what is there is replaced.
            table: size classes, or a table's name.
            holdout: recordings on which the table that is fitted to this one is tried.
            peers: other allocators on this recording, of `compare_peers`; None: no such section.
            options: of the heap; of decay_ms the recording's clock counts.
            progress: as of `ledger`; the steps are passes over the recording.

        Returns:
            The answer: the sentence at the head of the page.

        Raises:
            OSError: the system refused to write.
        """
        from spanwise.report import page  # noqa: PLC0415  reports know models

        made, only = as_table(table), self._only("a report")
        return page.write(only, path, made, tuple(holdout), options, progress=progress, peers=peers)

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
            to: "pprof", "speedscope", "collapsed", "perfetto", "openmetrics", "npz" or "parquet"
                (with pyarrow, of the extra parquet).
            table: size classes, or a table's name.
            at: the moment, as of `ledger`; "npz", "parquet" and "perfetto" are of the whole
                recording.
            value: of each call site, for "collapsed": "inuse-bytes", "waste-bytes", ...
            options: of the heap.
            progress: as of `ledger`.

        Raises:
            OSError: the system refused to write.
            InvalidError: for another format, value or moment.
            UnsupportedError: "parquet" without pyarrow.
        """
        from spanwise.report import export  # noqa: PLC0415  reports know models

        wanted = export.Wanted(to, value, as_table(table), at)
        export.write(self._only("an export"), path, wanted, options, progress)

    def to_flame(
        self,
        path: str | os.PathLike[str],
        of: str = "waste",
        table: SizeClassTable | str = "c16",
        at: str | float = "peak",
        *,
        options: HeapOptions | None = None,
        progress: Progress = None,
    ) -> str:
        """Draws what live objects keep by stack: a flame graph, a self-contained SVG file.

        The root is as wide as the ledger's bytes; what no live object keeps is a frame of its own.

        Args:
            path: of the file, which appears whole; what is there is replaced.
            of: "waste" (round-up and pinned spans), "round-up", "pinned" (free bytes that live
                objects keep), "resident" or "requested".
            table: size classes, or a table's name.
            at: the moment, as of `ledger`.
            options: of the heap.
            progress: as of `ledger`.

        Returns:
            What it says in one sentence: all bytes, and the call with most of them.

        Raises:
            OSError: the system refused to write.
            InvalidError: for another `of`, moment or file name; no call sites are known.
        """
        from spanwise.report import export  # noqa: PLC0415  reports know models

        export.check_flame(path, of)
        found = self.live_sites(table, at, options=options, progress=progress)
        return export.write_flame(found, path, of)

    def plot_timeline(self, table: SizeClassTable | str = "c16", ax: Axes | None = None) -> Axes:
        """Draws requested and held bytes over time; returns the matplotlib Axes."""
        name = as_table(table).name
        return draw("timeline", self.timeline(table), ax, title=f"{self.name} under {name}")

    def plot_histogram(self, ax: Axes | None = None) -> Axes:
        """Draws requests by size; returns the matplotlib Axes."""
        return draw("histogram", self.histogram(), ax, title=self.name)

    def _repr_html_(self) -> str:
        return _format.html_table(self.summary.text_rows(), (self.name, ""))

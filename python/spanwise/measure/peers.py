# SPDX-License-Identifier: Apache-2.0
"""Compare the real memory of other allocators with the model's peak resident under their tables.

The model has their size classes and span lengths, but our placement, caches and metadata. So it
models the table, not the allocator; this comparison shows the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any

from spanwise import _format, errors
from spanwise.measure.replayer import PEERS, allocator_named
from spanwise.measure.replays import replay_many
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import as_recording
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Result, Rows, Tabular, Value, rows_of
from spanwise.tables.table import SizeClassTable

ALL = ("spanwise", *PEERS)
TABLE_OF = {
    "spanwise": "c16",
    "jemalloc": "jemalloc",
    "mimalloc": "mimalloc",
    "tcmalloc": "tcmalloc",
}
"""The table that represents an allocator. glibc has no size classes."""


@dataclass(frozen=True)
class PeerRow(Result):
    """The figures of an allocator in bytes.

    Attributes:
        name: of the allocator.
        rss_bytes: peak RSS of each replay.
        startup_rss_bytes: its part before the first operation (median).
        table: name of the table that represents it; "": none.
        model_resident_bytes: peak resident bytes of the simulator under that table, or None.
        own_rss_bytes: peak RSS of our heap with that table (median), the process included.
        missing: why there is no replay, or "".
    """

    name: str
    rss_bytes: tuple[int, ...]
    startup_rss_bytes: int
    table: str
    model_resident_bytes: int | None
    own_rss_bytes: int | None = None
    missing: str = ""

    @property
    def peak_rss_bytes(self) -> int | None:
        """Median peak RSS; None: no replay."""
        return int(median(self.rss_bytes)) if self.rss_bytes else None

    @property
    def error(self) -> float | None:
        """Model / real - 1; None if one is unknown."""
        if self.peak_rss_bytes is None or self.model_resident_bytes is None:
            return None
        return self.model_resident_bytes / self.peak_rss_bytes - 1

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        value = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**value, "peak_rss_bytes": self.peak_rss_bytes, "error": self.error}


@dataclass(frozen=True, repr=False, eq=False)
class PeerComparison(Result, Value, Tabular):
    """Allocators on the same operations, and the model of each.

    Attributes:
        source: name of the recording.
        peak_requested_bytes: peak of live requested bytes.
        peers: one per allocator.
    """

    source: str
    peak_requested_bytes: int
    peers: tuple[PeerRow, ...]

    @property
    def ordered_pairs(self) -> tuple[int, int]:
        """Number of pairs that the model ranks like the real peaks, and number of all pairs."""
        known = [
            (row.peak_rss_bytes, row.model_resident_bytes)
            for row in self.peers
            if row.error is not None
        ]
        pairs = list(combinations(known, 2))
        same = sum((a[0] - b[0]) * (a[1] - b[1]) >= 0 for a, b in pairs)  # type: ignore[operator]
        return same, len(pairs)

    @property
    def mean_error(self) -> float | None:
        """Mean of the absolute errors; None if there is none."""
        found = [abs(row.error) for row in self.peers if row.error is not None]
        return sum(found) / len(found) if found else None

    @property
    def array(self) -> Rows:
        """One row per allocator: name, table, peaks in bytes (NaN: unknown), error, missing."""
        names = (
            *("name", "table", "peak_rss_bytes", "startup_rss_bytes"),
            *("model_resident_bytes", "own_rss_bytes", "error", "missing"),
        )
        return rows_of([{name: getattr(row, name) for name in names} for row in self.peers])

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "source": self.source,
            "peak_requested_bytes": self.peak_requested_bytes,
            "ordered_pairs": list(self.ordered_pairs),
            "mean_error": self.mean_error,
            "peers": [row.to_dict() for row in self.peers],
        }

    def __str__(self) -> str:
        ranked = sorted(
            self.peers, key=lambda row: (row.peak_rss_bytes is None, row.peak_rss_bytes or 0)
        )
        head = ("allocator", "real peak", "over live", "table", "our heap", "model", "error")
        title = (
            f"{self.source}: peak RSS on the same replay, of our heap with the table"
            " of each, and of the model"
        )
        table = _format.table([self._cells(row) for row in ranked], head, indent="  ")
        lines = [title, table, f"  {self.verdict()}"]
        lines += [f"  {row.name}: {row.missing}" for row in ranked if row.missing]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _cells(self, row: PeerRow) -> tuple[str, ...]:
        peak = row.peak_rss_bytes
        over = "-" if peak is None else f"{peak / max(self.peak_requested_bytes, 1):.3f}"
        error = "-" if row.error is None else f"{100 * row.error:+.1f} %"
        real, ours, model = map(_size, (peak, row.own_rss_bytes, row.model_resident_bytes))
        return (row.name, real, over, row.table or "-", ours, model, error)

    def verdict(self) -> str:
        """Return a sentence about ranking and error."""
        same, pairs = self.ordered_pairs
        if self.mean_error is None or pairs == 0:
            return "fewer than two allocators have both numbers: nothing to rank"
        return (
            f"the model puts {same} of {_format.plural(pairs, 'pair')} in the real order;"
            f" mean error {100 * self.mean_error:.1f} %"
        )


def _size(count: int | None) -> str:
    return "-" if count is None else _format.size(count)


def compare_peers(
    recording: Recording | str | os.PathLike[str],
    peers: Iterable[str] = ALL,
    *,
    repeat: int = 1,
    touch: str = "pages",
    progress: Progress = None,
) -> PeerComparison:
    """Replay under allocators, and simulate the tables that represent them.

    Args:
        recording: a recording or its file.
        peers: names of `ALL`.
        repeat: replays per allocator, in fresh processes.
        touch: as of `replay`.
        progress: as of `Recording.ledger`.

    Raises:
        InvalidError: an unknown name. A peer that is not installed is a row without numbers.
    """
    source = as_recording(recording)
    names = list(dict.fromkeys(peers))
    unknown = [name for name in names if name not in ALL]
    if unknown or not names:
        what = f"peer {unknown[0]!r} is unknown" if unknown else "no peers"
        raise errors.InvalidError(f"{what}; use {', '.join(ALL)}")
    total = len(source) * len(names) * max(repeat, 1)
    with progress_bar(progress, total, "replay", "operations") as step:
        rows = [_row(source, name, repeat, touch, step) for name in names]
    return PeerComparison(source.name, source.summary.peak_requested_bytes, tuple(rows))


def parse_peers(words: Sequence[str]) -> list[str]:
    """Split comma-separated names."""
    return [name for word in words for name in word.split(",") if name]


def _row(source: Recording, name: str, repeat: int, touch: str, progress: Step) -> PeerRow:
    table = TABLE_OF.get(name, "")
    model = ours = None
    given: dict[str, Any] = {"repeat": repeat, "touch": touch, "drain": ()}
    if table:
        made = SizeClassTable.named(table)
        ledger = source.ledger(made, "end", progress=False)
        model = ledger.peak_resident_bytes
        (own,) = replay_many(source, [allocator_named("spanwise", made)], progress=False, **given)
        ours = own.peak_rss_bytes
    try:
        (seen,) = replay_many(source, [allocator_named(name)], progress=progress, **given)
    except (errors.ProgramError, errors.UnsupportedError) as error:
        return PeerRow(name, (), 0, table, model, ours, missing=str(error))
    peaks = tuple(run.peak_rss_bytes for run in seen.runs)
    startup = int(median(run.startup_rss_bytes for run in seen.runs))
    return PeerRow(name, peaks, startup, table, model, ours)

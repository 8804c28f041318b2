# SPDX-License-Identifier: Apache-2.0
"""Other allocators' real memory beside what the model holds under their tables.

The model has their size classes and span lengths, and our placement, caches and metadata. So it
tells what a table does, not what an allocator does: this says how far apart the two are.
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
from spanwise.recording.recording import Recording
from spanwise.recording.simulate import Progress
from spanwise.tables.table import SizeClassTable

ALL = ("spanwise", *PEERS)
TABLE_OF = {
    "spanwise": "c16",
    "jemalloc": "jemalloc",
    "mimalloc": "mimalloc",
    "tcmalloc": "tcmalloc",
}
"""The table that stands for an allocator; glibc has no size classes of that kind."""


@dataclass(frozen=True)
class PeerRow:
    """One allocator. Bytes.

    Attributes:
        name: of the allocator.
        real_bytes: peak of resident memory in the replay, each run.
        startup_bytes: of it, resident before the first operation (median).
        table: name of the table that stands for it; "" where there is none.
        model_bytes: peak of held bytes of the simulator under that table; None without one.
        ours_bytes: peak of resident memory of our own heap with that table (median): what lies
            between it and model_bytes was held but never touched.
        missing: why there is no replay, or "".
    """

    name: str
    real_bytes: tuple[int, ...]
    startup_bytes: int
    table: str
    model_bytes: int | None
    ours_bytes: int | None = None
    missing: str = ""

    @property
    def real(self) -> int | None:
        """Median peak of resident memory; None where it could not be replayed."""
        return int(median(self.real_bytes)) if self.real_bytes else None

    @property
    def error(self) -> float | None:
        """Model over real, less 1; None where one of them is not known."""
        if self.real is None or self.model_bytes is None:
            return None
        return self.model_bytes / self.real - 1

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        value = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**value, "real": self.real, "error": self.error}


@dataclass(frozen=True, repr=False)
class PeerComparison:
    """Allocators on the same operations, and the model of each.

    Attributes:
        source: name of the recording.
        peak_live_bytes: most requested bytes live at once.
        rows: one an allocator.
    """

    source: str
    peak_live_bytes: int
    rows: tuple[PeerRow, ...]

    @property
    def ordered_pairs(self) -> tuple[int, int]:
        """Pairs of allocators that the model puts in the order of their real peaks; all pairs."""
        known = [(row.real, row.model_bytes) for row in self.rows if row.error is not None]
        pairs = list(combinations(known, 2))
        same = sum((a[0] - b[0]) * (a[1] - b[1]) >= 0 for a, b in pairs)  # type: ignore[operator]
        return same, len(pairs)

    @property
    def mean_error(self) -> float | None:
        """Mean of the errors' sizes; None without any."""
        found = [abs(row.error) for row in self.rows if row.error is not None]
        return sum(found) / len(found) if found else None

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "source": self.source,
            "peak_live_bytes": self.peak_live_bytes,
            "ordered_pairs": list(self.ordered_pairs),
            "mean_error": self.mean_error,
            "rows": [row.to_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        ranked = sorted(self.rows, key=lambda row: (row.real is None, row.real or 0))
        head = ("allocator", "real peak", "over live", "table", "our heap", "model held", "error")
        title = (
            f"{self.source}: peaks of resident memory on the same replay; our heap's with the table"
            " that stands for each, and the model's"
        )
        table = _format.table([self._cells(row) for row in ranked], head, indent="  ")
        lines = [title, table, f"  {self.verdict()}"]
        lines += [f"  {row.name}: {row.missing}" for row in ranked if row.missing]
        return "\n".join(lines)

    __repr__ = __str__

    def _cells(self, row: PeerRow) -> tuple[str, ...]:
        real = "-" if row.real is None else _format.size(row.real)
        over = "-" if row.real is None else f"{row.real / max(self.peak_live_bytes, 1):.3f}"
        model = "-" if row.model_bytes is None else _format.size(row.model_bytes)
        error = "-" if row.error is None else f"{100 * row.error:+.1f} %"
        ours = "-" if row.ours_bytes is None else _format.size(row.ours_bytes)
        return (row.name, real, over, row.table or "-", ours, model, error)

    def verdict(self) -> str:
        """One sentence: ranking and error."""
        same, pairs = self.ordered_pairs
        if self.mean_error is None or pairs == 0:
            return "fewer than two allocators have both numbers: nothing to rank"
        return (
            f"the model puts {same} of {_format.plural(pairs, 'pair')} in the real order;"
            f" mean error {100 * self.mean_error:.1f} %"
        )


def compare_peers(
    recording: Recording | str | os.PathLike[str],
    peers: Iterable[str] = ALL,
    *,
    repeat: int = 1,
    touch: str = "pages",
    progress: Progress | None = None,
) -> PeerComparison:
    """Replays under allocators, and accounts under the tables that stand for them.

    Args:
        recording: what is replayed, or its file.
        peers: names of `ALL`.
        repeat: replays of each, in fresh processes.
        touch: as of `replay`.
        progress: called with the number of operations done since its last call.

    Raises:
        InvalidError: for an unknown name. A peer that is not installed is a row without numbers.
    """
    source = recording if isinstance(recording, Recording) else Recording.open(recording)
    names = list(dict.fromkeys(peers))
    unknown = [name for name in names if name not in ALL]
    if unknown or not names:
        what = f"peer {unknown[0]!r} is unknown" if unknown else "no peers"
        raise errors.InvalidError(f"{what}; use {', '.join(ALL)}")
    rows = [_row(source, name, repeat, touch, progress) for name in names]
    return PeerComparison(source.name, source.summary.peak_requested_bytes, tuple(rows))


def parse_peers(words: Sequence[str]) -> list[str]:
    """Names out of words with commas."""
    return [name for word in words for name in word.split(",") if name]


def _row(
    source: Recording, name: str, repeat: int, touch: str, progress: Progress | None
) -> PeerRow:
    table = TABLE_OF.get(name, "")
    model = ours = None
    knobs: dict[str, Any] = {"repeat": repeat, "touch": touch, "drain": ()}
    if table:
        made = SizeClassTable.named(table)
        ledger = source.ledger(made)
        model = ledger.stats.peak_held_bytes if ledger.stats else None
        (own,) = replay_many(source, [allocator_named("spanwise", made)], **knobs)
        ours = own.peak_rss_bytes
    try:
        (seen,) = replay_many(source, [allocator_named(name)], progress=progress, **knobs)
    except (errors.ProgramError, errors.UnsupportedError) as error:
        return PeerRow(name, (), 0, table, model, ours, missing=str(error))
    peaks = tuple(run.peak_rss_bytes for run in seen.runs)
    startup = int(median(run.startup_bytes for run in seen.runs))
    return PeerRow(name, peaks, startup, table, model, ours)

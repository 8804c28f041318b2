# SPDX-License-Identifier: Apache-2.0
"""Sets of recordings of several processes, which are summed."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Comparison, Ledger
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.recordings.names import build_ids_of
from spanwise.recordings.queries import Answer, RecordingQueries
from spanwise.recordings.recording import Recording
from spanwise.recordings.sites import Site, Sites, number_sites
from spanwise.recordings.sources import Module
from spanwise.recordings.summary import Summary, add_summaries, apart, count_threads
from spanwise.results.jobs import Progress
from spanwise.results.rows import Result, Rows, Tabular, as_rows
from spanwise.tables.table import STOCK, SizeClassTable

_SHOWN = 20


class RecordingSet(Sequence[Recording], RecordingQueries, Result, Tabular):
    """Recordings of several processes, which queries sum.

    Each process has its own heap. The sum takes each of them at its own moment: at a peak it is
    what they would hold if all peaks coincided, an upper bound. A set answers all queries of a
    `Recording`; an index returns a recording, a slice a set.

    Attributes:
        name: its name in plots and ledgers.
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
        """Opens files; a name with *, ? or [ that is not a file is a glob pattern.

        Raises:
            InvalidError: nothing matches. Others as in `Recording.open`.
        """
        files = [name for path in paths for name in _matches(os.fspath(path))]
        return cls(Recording.open(name, valid_prefix) for name in files)

    def __getitem__(self, index: Any) -> Any:
        found = self._recordings[index]
        return RecordingSet(found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        return len(self._recordings)

    # --- metadata ---

    @property
    def program(self) -> str:
        """The program of the first recording, which started the others."""
        return self._recordings[0].program

    @property
    def executable(self) -> str:
        """The file of the first recording's program."""
        return self._recordings[0].executable

    @property
    def arguments(self) -> list[str]:
        """The command line of the first recording's program."""
        return self._recordings[0].arguments

    @property
    def info(self) -> dict[str, int]:
        """The fields of the file headers that are equal in all recordings."""
        first = self._recordings[0].info
        same = {name for name in first if all(one.info.get(name) == first[name] for one in self)}
        return {name: first[name] for name in first if name in same}

    @property
    def meta(self) -> list[tuple[str, str]]:
        """The metadata of all recordings in order."""
        return [pair for one in self for pair in one.meta]

    @property
    def remark(self) -> str:
        """A caveat for users of the recordings; usually empty."""
        return next((one.remark for one in self if one.remark), "")

    @property
    def summary(self) -> Summary:
        """The sum of the totals; the time is that of the longest recording."""
        return add_summaries([one.summary for one in self])

    @property
    def events(self) -> int:
        """Number of events of all recordings."""
        return sum(one.events for one in self)

    def highest(self) -> Recording:
        """Return the recording with the highest peak of requested bytes."""
        return max(self, key=lambda one: one.summary.peak_requested_bytes)

    # --- operations ---

    @property
    def ops(self) -> Rows:
        """The operations of all recordings, numbered as by `blocks`."""
        return as_rows(np.concatenate(list(self.blocks(1 << 20)) or [self._recordings[0].ops[:0]]))

    @property
    def array(self) -> Rows:
        """The same as `ops`."""
        return self.ops

    def blocks(self, rows: int = 65536) -> Iterator[NDArray[np.void]]:
        """Yield the operations of each recording in turn, with the times of its own process.

        Objects, threads and sites of different recordings have different numbers.
        """
        return apart(self._recordings, rows)

    # --- accounts ---

    def _each(self) -> Sequence[Recording]:
        return self._recordings

    def _total(self, found: list[Answer], add: Callable[[list[Answer]], Answer]) -> Answer:
        return add(found)

    @property
    def threads(self) -> Rows:
        """Counts per thread; threads are numbered consecutively across recordings."""
        return as_rows(count_threads(self.blocks()))

    @property
    def modules(self) -> list[Module]:
        """The modules of all recordings; each process has its own addresses."""
        return list(dict.fromkeys(module for one in self for module in one.modules))

    @property
    def has_python_lines(self) -> bool:
        """Whether call sites of any of them are lines of Python."""
        return any(one.has_python_lines for one in self)

    @property
    def imported(self) -> bool:
        """Whether `convert` made all of them from other tools' files."""
        return all(one.imported for one in self)

    @property
    def sites(self) -> Sites:
        """Call sites of all recordings, merged by frames and renumbered from 1."""
        counts: dict[tuple[str, ...], tuple[int, int]] = {}
        for site in (site for one in self for site in one.sites):
            allocs, size = counts.get(site.frames, (0, 0))
            counts[site.frames] = allocs + site.allocs, size + site.allocated_bytes
        ids = number_sites(counts)
        sites = tuple(Site(ids[frames], *count, frames) for frames, count in counts.items())
        return Sites(sites, build_ids_of(self.modules), self.imported)

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """Return metadata and totals as a dict for JSON."""
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


def _matches(path: str) -> list[str]:
    if Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))  # noqa: PTH207  the pattern may be absolute
    if not found:
        raise errors.InvalidError(f"{path}: no file matches")
    return found


# --- arguments that are recordings ----------------------------------------------------------------

Recordings = Recording | str | os.PathLike[str] | Iterable[Recording | str | os.PathLike[str]]
"""The argument type of recordings: a recording, a file, or an iterable of them."""


def compare(
    recordings: Recordings,
    tables: SizeClassTable | str | Iterable[SizeClassTable | str] = STOCK,
    at: str | float = PEAK_RESIDENT,
    *,
    options: HeapOptions | None = None,
    progress: Progress = None,
) -> Comparison:
    """Compare the ledgers of one recording, or of the sum of several, under several tables.

    To compare existing ledgers, use `spanwise.Comparison(ledgers)`.

    Args:
        recordings: one or more recordings.
        tables: size classes, or names of tables.
        at: as in `Recording.compare`.
        options: of the heap, as in `Recording.ledger`.
        progress: as in `Recording.ledger`.

    Raises:
        InvalidError, TraceFormatError: as in `Recording.ledger`.
    """
    opened = as_recordings(recordings)
    source = opened[0] if len(opened) == 1 else RecordingSet(opened)
    return source.compare(tables, at, options=options, progress=progress)


_LEDGERS = "recordings must be Recording objects; for ledgers: spanwise.Comparison(ledgers)"


def as_recordings(recordings: Recordings) -> list[Recording]:
    """Return a list of one or more recordings; files are opened."""
    if isinstance(recordings, Ledger):
        raise TypeError(_LEDGERS)
    given = [recordings] if isinstance(recordings, Recording | str | os.PathLike) else recordings
    return [as_recording(one) for one in given]


def as_recording(recording: Recording | str | os.PathLike[str]) -> Recording:
    """Return the recording, opened if it is a file."""
    if isinstance(recording, Recording):
        return recording
    if isinstance(recording, str | os.PathLike):
        return Recording.open(recording)
    if isinstance(recording, Ledger):
        raise TypeError(_LEDGERS)
    raise TypeError(f"recordings must be Recording objects, not {type(recording).__name__}")

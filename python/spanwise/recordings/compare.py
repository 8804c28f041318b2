# SPDX-License-Identifier: Apache-2.0
"""Recordings under several tables, side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable

from spanwise.heap.options import HeapOptions
from spanwise.ledger.comparison import Comparison
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.results.progress import Progress
from spanwise.tables.table import STOCK, SizeClassTable

Recordings = Recording | str | os.PathLike[str] | Iterable[Recording | str | os.PathLike[str]]
"""The argument type of recordings: a recording, a file, or any number of them."""


def compare(
    recordings: Recordings,
    tables: SizeClassTable | str | Iterable[SizeClassTable | str] = STOCK,
    at: str | float = "peak",
    *,
    options: HeapOptions | None = None,
    progress: Progress = None,
) -> Comparison:
    """Ledgers of a recording, or of several added up, under several tables, side by side.

    To compare ledgers that exist already, use `spanwise.Comparison(ledgers)`.

    Args:
        recordings: what is accounted.
        tables: size classes, or names of tables.
        at: as of `Recording.ledger`.
        options: of the heap, as of `Recording.ledger`.
        progress: as of `Recording.ledger`.

    Raises:
        InvalidError, TraceFormatError: as `Recording.ledger`.
    """
    opened = as_recordings(recordings)
    source = opened[0] if len(opened) == 1 else RecordingSet(opened)
    return source.compare(tables, at, options=options, progress=progress)


def as_recordings(recordings: Recordings) -> list[Recording]:
    """One recording or many, as they are or by file.

    Raises:
        TypeError: something else.
    """
    given = [recordings] if isinstance(recordings, Recording | str | os.PathLike) else recordings
    return [as_recording(one) for one in given]


def as_recording(recording: Recording | str | os.PathLike[str]) -> Recording:
    """A recording as it is, or opened.

    Raises:
        TypeError: something else.
    """
    if isinstance(recording, Recording):
        return recording
    if isinstance(recording, str | os.PathLike):
        return Recording.open(recording)
    raise TypeError(f"recordings must be Recording objects, not {type(recording).__name__}")

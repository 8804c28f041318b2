# SPDX-License-Identifier: Apache-2.0
"""Recordings of several processes that are accounted together."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise.ledger.comparison import Comparison
from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.recording.recording import Recording
from spanwise.recording.summary import HISTOGRAM_DTYPE
from spanwise.tables.table import SizeClassTable, as_table


class RecordingSet(Sequence[Recording]):
    """Recordings of several processes that are accounted together.

    Each process has a heap of its own. The sum takes each of them at its own moment: at "peak"
    it is what they would hold if all peaks fell together, an upper bound.
    """

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
        return self._recordings[index]

    def __len__(self) -> int:
        return len(self._recordings)

    def ledger(
        self, table: SizeClassTable | str = "c16", at: str | float = "peak", **knobs: Any
    ) -> Ledger:
        """The sum of the ledgers; `parts` has each of them. Arguments as of `Recording.ledger`.

        A time may be after the end of some of them, which are taken at their end.
        """
        made = as_table(table)
        max(self, key=lambda one: one.summary.duration_ns)._check_moment(at)
        return add_ledgers([one._ledger(made, at, **knobs) for one in self], self.name)

    def compare(
        self, tables: Iterable[SizeClassTable | str], at: str | float = "peak", **knobs: Any
    ) -> Comparison:
        """Ledgers under several tables, side by side; knobs as of `Recording.ledger`."""
        return Comparison([self.ledger(table, at, **knobs) for table in tables])

    def histogram(self) -> NDArray[np.void]:
        """Requests by size of all of them; as `Recording.histogram`."""
        rows = np.concatenate([one.histogram() for one in self])
        sizes, inverse = np.unique(rows["size"], return_inverse=True)
        total = np.zeros(len(sizes), HISTOGRAM_DTYPE)
        total["size"] = sizes
        np.add.at(total["count"], inverse, rows["count"])
        total["bytes"] = total["size"] * total["count"]
        return total

    @property
    def events(self) -> int:
        """Events of all of them."""
        return sum(one.events for one in self)

    def largest(self) -> Recording:
        """The recording with the highest peak of requested bytes."""
        return max(self, key=lambda one: one.summary.peak_requested_bytes)

    def __repr__(self) -> str:
        lines = "\n".join(f"  {one!r}" for one in self)
        return f"<RecordingSet {self.name}>\n{lines}"


def _matches(path: str) -> list[str]:
    if Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))  # noqa: PTH207  the pattern may be absolute
    if not found:
        raise errors.InvalidError(f"{path}: no file matches")
    return found

# SPDX-License-Identifier: Apache-2.0
"""What is seen of a program at one input: predicted beside measured, with what runs differ by."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import spanwise as sw


@dataclass(frozen=True)
class OtherRuns:
    """Resident bytes predicted from recordings, and measured in runs that were not recorded."""

    predicted: list[int]
    measured: list[int]

    def error(self) -> float:
        """The median predicted against the median measured, a signed share."""
        return statistics.median(self.predicted) / statistics.median(self.measured) - 1

    def interval(self) -> tuple[float, float]:
        """The errors of the least prediction beside the highest run, and the other way around."""
        low = min(self.predicted) / max(self.measured) - 1
        return low, max(self.predicted) / min(self.measured) - 1


@dataclass(frozen=True)
class SameRuns:
    """Resident bytes of runs, each predicted from the recording of that very run."""

    predicted: list[int]
    measured: list[int]

    def errors(self) -> list[float]:
        """The error of each run, a signed share."""
        pairs = zip(self.predicted, self.measured, strict=True)
        return [predicted / measured - 1 for predicted, measured in pairs]

    def error(self) -> float:
        """The error that is furthest from 0."""
        return max(self.errors(), key=abs)


@dataclass
class Figures:
    """What was seen of a program at one input. Sizes are in bytes.

    Attributes:
        case: program and input.
        differs: whether two recordings of it differ in the bytes that they allocate.
        large_shares: of its large objects the percent that tracked runs had written when most was
            requested (`written`), and of all the run (`fitted`).
        peak: the ledger predicted for the moment at which most is resident.
        at_end: resident bytes of the heap at the end of plain runs in which no page goes back by
            the clock.
        all_written: as at_end, but each large object is taken to be written whole.
        by_clock: as at_end, where pages go back by the clock.
        same_end: as at_end, of runs that were recorded.
        same_held: bytes held at the end of the same runs.
        same_peak: resident bytes when most is requested, in tracked runs that were recorded.
        process: peak RSS of the whole process.
        outside: resident bytes outside of the heap at the end of each plain run, and when most of
            the process was resident in a plain run that was watched.
        peers: peak RSS under other allocators; None: it did not end well.
    """

    case: str
    differs: bool
    large_shares: tuple[float, float]
    peak: sw.Ledger
    at_end: OtherRuns
    all_written: OtherRuns
    by_clock: OtherRuns
    same_end: SameRuns
    same_held: SameRuns
    same_peak: SameRuns
    process: OtherRuns
    outside: list[int]
    peers: dict[str, int | None]

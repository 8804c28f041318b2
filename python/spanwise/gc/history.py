# SPDX-License-Identifier: Apache-2.0
"""What a collected heap remembers of its cycles."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import as_iterable
from spanwise.gc.cycle import PAUSE_DTYPE, Cycle
from spanwise.gc.pauses import mutator_utilisation, pause_histogram
from spanwise.results.rows import Rows, as_rows, rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class History:
    """Cycles that have ended, and calls that worked on one, since the heap was made."""

    __slots__ = ("_born_ns", "_cycles", "_events", "_lost_events", "_pauses")

    def __init__(self) -> None:
        self._cycles: list[Cycle] = []
        self._pauses: list[tuple[int, str, int, int, int]] = []
        self._events: list[NDArray[np.void]] = []
        self._lost_events = 0
        self._born_ns = time.perf_counter_ns()

    def _now_ns(self) -> int:
        return time.perf_counter_ns() - self._born_ns

    def _keep_call(
        self, cycle: Cycle, phase: str, spent_ns: int, ended_ns: int, held_bytes: int
    ) -> None:
        begun = max(ended_ns - spent_ns, 0)
        self._pauses.append((cycle.number, phase, begun, spent_ns, held_bytes))

    def _keep_cycle(self, cycle: Cycle) -> None:
        self._cycles.append(cycle)

    @property
    def cycles(self) -> Rows:
        """The cycles that have ended: a row each, with the fields of `Cycle`."""
        dicts = [cycle.to_dict() for cycle in list(self._cycles)]
        return rows_of(dicts, tuple(Cycle.__dataclass_fields__))

    @property
    def pauses(self) -> Rows:
        """The calls that worked on cycles: `cycle`, `phase` before, `at_ns`, `ns`, `held_bytes`."""
        return as_rows(np.array(list(self._pauses), PAUSE_DTYPE))

    def pause_histogram(self) -> Rows:
        """How many of those calls took how long, as `spanwise.pause_histogram` tells it."""
        return pause_histogram(self.pauses["ns"])

    def utilisation(self, windows_ns: Iterable[float] | None = None) -> Rows:
        """The least share of any window of time that was left to the program, until now.

        Args:
            windows_ns: lengths of windows; None: from the shortest call to the heap's whole life.

        Returns:
            `window_ns`, `utilisation` (0 to 1), one row a window; see
            `spanwise.mutator_utilisation`.

        Raises:
            InvalidError: a window is not above 0, or longer than the heap's life.
        """
        if windows_ns is not None:
            as_iterable(windows_ns, "windows_ns")
        pauses = self.pauses
        total = self._now_ns()
        return mutator_utilisation(pauses["at_ns"], pauses["ns"], total, windows_ns)

    def plot_pauses(self, ax: Axes | None = None) -> Axes:
        """How long the calls took that worked on cycles: their share up to each time."""
        from spanwise.plots.collectors import pauses  # noqa: PLC0415

        return pauses(self.pauses, ax)

    def plot_pause_histogram(self, ax: Axes | None = None) -> Axes:
        """How many calls that worked on cycles took how long."""
        from spanwise.plots.collectors import pause_histogram as draw  # noqa: PLC0415

        return draw(self.pause_histogram(), ax)

    def plot_utilisation(self, ax: Axes | None = None) -> Axes:
        """The least share of windows of time that was left to the program, by their length."""
        from spanwise.plots.collectors import utilisation as draw  # noqa: PLC0415

        return draw(self.utilisation(), ax)

    def plot_cycles(self, ax: Axes | None = None) -> Axes:
        """What each cycle kept and freed."""
        from spanwise.plots.collectors import cycles  # noqa: PLC0415

        return cycles(self.cycles, ax)

# SPDX-License-Identifier: Apache-2.0
"""Pictures of latencies: what share of messages waits how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spanwise.plots.style import LINES, in_style, new_axes, time_scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS = (0.0, 90.0, 99.0, 99.9, 99.99, 99.999)


class _Run(Protocol):
    """What is drawn, such as a ServiceRun."""

    @property
    def strategy(self) -> str: ...

    @property
    def messages(self) -> int: ...

    def latency_ns(self, percent: float) -> float:
        """The latency that so many percent do not exceed."""
        ...


@in_style
def latencies(runs: Sequence[_Run], ax: Axes | None = None) -> Axes:
    """Latency against the percentage of messages that do not exceed it, a line a run.

    The axis of percentages is that of HdrHistogram: each step to the right has a tenth of the
    messages of the one before above it, as far as there is one message. Lines differ
    in their dashes, too.

    Args:
        runs: with latencies.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    lines = []
    for run in runs:
        above = np.logspace(0, -np.log10(max(run.messages, 2)), 200)
        lines.append((run.strategy, 1 / above, [run.latency_ns(100 * (1 - x)) for x in above]))
    scale, unit = time_scale_of(max((max(times) for _, _, times in lines), default=1.0))
    for i, (label, ranks, times) in enumerate(lines):
        line = LINES[i % len(LINES)]
        ax.step(ranks, np.array(times) / scale, where="post", ls=line, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    last = max((ranks[-1] for _, ranks, _ in lines), default=10.0)
    shown = [percent for percent in TICKS if 1 / (1 - percent / 100) <= last * 1.01]
    ax.set_xticks([1 / (1 - percent / 100) for percent in shown], [f"{p:g}" for p in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("messages that took no longer, %")
    ax.set_ylabel(f"latency, {unit}")
    ax.set_title("latency of messages")
    if lines:
        ax.legend()
    return ax

# SPDX-License-Identifier: Apache-2.0
"""The picture: what each policy saves of the input held out, simulated, measured, and in time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from runner.drawing import OURS
from spanwise.results.intervals import Interval

from studies import savings_picture
from studies.policies.duel import CPU, RSS
from studies.policies.page import Policies, knob_of

TITLES = ("peak resident of the heap, simulated", "peak RSS, measured", "processor time, measured")
NAMED_FROM = 3.0
"""Percent of memory from which on the program that is farthest from 0 is named."""


def draw(told: Policies) -> Any:
    """A row a policy, of one knob together; a panel for memory simulated, measured, and for time.

    Returns:
        The figure.
    """
    names = list(told.called)
    figure, axes = savings_picture.panels(names, TITLES, _heading(told))
    for knob, every in groupby(range(len(names)), lambda i: knob_of(names[i])):
        savings_picture.begin_group(axes, next(every), knob)
    _panel(axes[0], told, [[one.saved(name, 1) for one in told.programs] for name in names], True)
    for ax, field in zip(axes[1:], (RSS, CPU), strict=True):
        _panel(ax, told, [_medians(told, name, field) for name in names], field == RSS)
    held: list[list[Interval | None]] = [[told.simulated(name, 1) for name in names]]
    held += [[told.measured(name, field) for name in names] for field in (RSS, CPU)]
    for ax, found in zip(axes, held, strict=True):
        savings_picture.marks(
            ax, range(len(names)), found, _label(told), fmt="D", color=OURS, markersize=5, zorder=3
        )
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return figure


def _heading(told: Policies) -> str:
    rounds = 1 + max((row["round"] for row in told.found), default=0)
    return (
        "What policies save of the default's, input held out:"
        f" {len(told.programs)} programs, {rounds} rounds in turns"
    )


def _label(told: Policies) -> str:
    sure = told.simulated(next(iter(told.called)), 1).sure
    return f"median of the programs, its {100 * sure:.0f} % interval"


def _medians(told: Policies, policy: str, field: str) -> list[float | None]:
    found = (told.of_program(policy, one, field) for one in told.programs)
    return [None if one is None else one.median for one in found]


def _panel(ax: Any, told: Policies, values: Sequence[Sequence[float | None]], memory: bool) -> None:
    """Draws a ring for each program; in panels of memory the farthest ring is named."""
    label: str | None = "a program (median of its rounds)"
    for row, every in enumerate(values):
        known = [
            (value, one.name)
            for value, one in zip(every, told.programs, strict=True)
            if value is not None
        ]
        if not known:
            continue
        x = [value for value, _ in known]
        ax.plot(
            *(x, [row] * len(x), "o"),
            markersize=5,
            markerfacecolor="none",
            markeredgecolor="#777777",
            label=label,
        )
        label = None
        value, name = max(known, key=lambda pair: abs(pair[0]))
        if memory and abs(value) >= NAMED_FROM:
            side = 1 if value > 0 else -1
            ax.annotate(
                name,
                (value, row),
                xytext=(5 * side, 0),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
                va="center",
                fontsize=7,
            )
    if memory:
        ax.margins(x=0.2)

# SPDX-License-Identifier: Apache-2.0
"""The picture: by program, what its table saves, other tables, and other allocators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.drawing import DARK, OURS
from spanwise.measure.field_cases import EVERYBODY, SPANWISE
from spanwise.measure.field_result import Field
from spanwise.results.intervals import Interval

from studies import savings_picture
from studies.tables_save.saved import Program, limit_share, saved_of, share

TITLES = (
    "fitted table: peak RSS, measured",
    "other tables: heap, simulated, held out",
    "other allocators: peak RSS, held out",
)
TABLES = ("go", "best 16", "best 32", "best 67")
LIMIT = "perfect packing"
LEGEND_INCHES = 0.5
"""How far the legends lie below the panels: under their labels."""

LOOKS: tuple[dict[str, Any], ...] = (
    {"fmt": "s", "color": OURS},
    {"fmt": "v", "color": "#D55E00", "markerfacecolor": "none"},
    {"fmt": "D", "color": "#000000"},
    {"fmt": "o", "color": "#009E73", "markerfacecolor": "none"},
    {"fmt": "|", "color": DARK, "markersize": 11},
)
"""Marks by shape, full and hollow, which can be told apart in grey."""


def draw(found: Field, programs: Sequence[Program]) -> Any:
    """A row a program; the figure."""
    heading = "What is saved beside the installed malloc (table c16), by program"
    figure, axes = savings_picture.panels([one.name for one in programs], TITLES, heading)
    fitted = [
        (name, [Interval(*saved_of(found, one, number), 0.0) for one in programs])
        for number, name in enumerate(("input it was fitted to", "input held out"))
    ]
    _marks(axes[0], fitted, LOOKS[1:])
    tables = [(name, [_exactly(share(one, 1, name)) for one in programs]) for name in TABLES]
    tables.append((LIMIT, [_exactly(limit_share(one)) for one in programs]))
    _marks(axes[1], tables, LOOKS)
    _marks(axes[2], [(name, _others(found, programs, name)) for name in _names(found)], LOOKS)
    below = -LEGEND_INCHES / savings_picture.panel_inches(len(programs))
    for ax in axes:
        ax.legend(loc="upper left", bbox_to_anchor=(0, below), ncols=2)
    return figure


def _names(found: Field) -> list[str]:
    return [name for name in EVERYBODY if name != SPANWISE and name in found.allocators]


def _others(found: Field, programs: Sequence[Program], name: str) -> list[Interval | None]:
    cases = [one.cases[1] for one in programs]
    return [found.saving(one.program, one.input, allocator=name) for one in cases]


def _exactly(value: float) -> Interval:
    return Interval(value, value, value, 1.0)


def _marks(
    ax: Any, series: Sequence[tuple[str, Sequence[Interval | None]]], looks: Sequence[Any]
) -> None:
    """Each series below the one before it, so that no mark of a row hides another."""
    for i, (name, found) in enumerate(series):
        shift = (i - (len(series) - 1) / 2) * 0.7 / len(series)
        places = [row + shift for row in range(len(found))]
        savings_picture.marks(ax, places, found, name, **{"markersize": 4.5, **looks[i]})

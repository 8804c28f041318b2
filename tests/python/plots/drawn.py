# SPDX-License-Identifier: Apache-2.0
"""Reads the data of pictures back from figures, and makes rows to draw."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import spanwise as sw
from spanwise.ledger.parts import PARTS
from spanwise.results.rows import as_rows

KIB, MIB = 1 << 10, 1 << 20


def rows(columns: str, *given: tuple[Any, ...]) -> sw.Rows:
    """Return rows of named columns; text columns are `phase`, `kind`, `sizes`, ..."""
    names = columns.split()
    made = [np.array(column) for column in zip(*given, strict=True)]
    found = np.zeros(len(given), [(n, c.dtype) for n, c in zip(names, made, strict=True)])
    for name, column in zip(names, made, strict=True):
        found[name] = column
    return as_rows(found)


def ledger(**parts: int) -> Any:
    """Return the parts of a ledger that pictures need."""
    known = {name: parts.get(name.removesuffix("_bytes"), 0) for name in PARTS}
    held = sum(known.values())
    waste, resident = held - known["requested_bytes"], parts["resident"]
    more: dict[str, Any] = {"table": "t", "at": "peak", "source": "s", "resident_bytes": resident}
    return SimpleNamespace(**known, held_bytes=held, waste_bytes=waste, **more)


def bars(ax: Any) -> dict[str, list[tuple[float, ...]]]:
    """Return left, bottom, width and height of the bars, by label."""
    return {
        one.get_label(): [
            tuple(
                round(float(value), 6)
                for value in (bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height())
            )
            for bar in one
        ]
        for one in ax.containers
    }


def segments(collection: Any) -> list[list[list[float]]]:
    """The ends of each line of hlines, vlines or broken_barh."""
    return [np.round(np.asarray(path.vertices), 6).tolist() for path in collection.get_paths()]


def line(ax: Any, label: str) -> list[list[float]]:
    (found,) = (one for one in ax.lines if one.get_label() == label)
    return [np.round(np.asarray(data, float), 6).tolist() for data in found.get_data()]


def legend(ax: Any) -> list[str]:
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def steps(ax: Any, label: str) -> list[tuple[float, ...]]:
    """Return start, end, baseline and height of each step of stairs."""
    (found,) = (one for one in ax.patches if one.get_label() == label)
    heights, edges, base = found.get_data()
    low = np.broadcast_to(0 if base is None else base, heights.shape)
    return [
        tuple(round(float(value), 6) for value in each)
        for each in zip(edges[:-1], edges[1:], low, heights, strict=True)
    ]


def marked(ax: Any) -> dict[str, tuple[float, float]]:
    """Return the extents of broken bars by label."""
    corners = {
        one.get_label(): np.asarray(path.vertices)[:, 0]
        for one in ax.collections
        for path in one.get_paths()
    }
    return {name: (float(x.min()), float(x.max())) for name, x in corners.items()}

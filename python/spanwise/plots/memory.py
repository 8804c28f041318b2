# SPDX-License-Identifier: Apache-2.0
"""Pictures of memory: bytes by part, by class and over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.ledger.parts import PARTS, common_moment
from spanwise.plots.style import (
    LINES,
    add_legend,
    new_axes,
    picture,
    scale_of,
    stacked_parts,
    time_scale_of,
    when,
)
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.ledger.ledger import Ledger
    from spanwise.measure.replay_result import Replay


_ROOM = 1.2
"""The x axis beyond the longest bar of `ledgers`, for the text at its end."""


@picture
def ledgers(
    rows: Sequence[Ledger],
    ax: Axes | None = None,
    *,
    labels: Sequence[str] = (),
    waste_only: bool = False,
) -> Axes:
    """Draw a stacked bar per ledger; parts of 0 bytes in all ledgers are omitted.

    A black line in each bar shows how many of the held bytes are resident, if all ledgers have that
    number: its distance from the left end. Resident bytes may belong to any part, also to those on
    the right of the line.

    Args:
        rows: the ledgers.
        ax: where to draw; None makes a new figure.
        labels: names of the bars; default: the tables' names. With labels, the title names the
            table, if it is the same in all ledgers.
        waste_only: omit requested bytes, to enlarge the other parts.
    """
    own = ax is None
    ax = ax or new_axes(height=1.5 + 0.55 * len(rows))
    names = list(labels) or [ledger.table for ledger in rows]
    field = "waste_bytes" if waste_only else "held_bytes"
    scale, unit = scale_of(max((getattr(ledger, field) for ledger in rows), default=0))
    places = np.arange(len(rows))
    parts = {
        name: np.array([getattr(ledger, name) for ledger in rows]) / scale
        for name in PARTS
        if not (waste_only and name == "requested_bytes")
    }
    left = stacked_parts(ax, parts, 0.62)
    resident = [ledger.resident_bytes for ledger in rows]
    known = np.array([count for count in resident if count is not None]) / scale
    if len(known) == len(rows) > 0 and not waste_only:
        ax.vlines(
            known,
            places - 0.31,
            places + 0.31,
            colors="black",
            lw=1.5,
            label="resident bytes, of all parts together",
        )
    notes = []
    for place, ledger, end in zip(places, rows, left, strict=True):
        wasted = _format.share(ledger.waste_bytes, ledger.held_bytes)
        waste = _format.size(ledger.waste_bytes)
        held = _format.size(ledger.held_bytes)
        said = f"{waste}\n{wasted} of held" if waste_only else f"{held}\n{wasted} of it waste"
        notes.append(_beside(ax, said, end, place))
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlim(0, max(left.max(initial=0) * _ROOM, 1e-9))
    if not own:
        _make_room(ax, notes)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"held beyond requested, {unit}" if waste_only else f"held, {unit}")
    first = rows[0] if rows else None
    if first is not None:
        moments = {ledger.at for ledger in rows}
        at = when(first.at) if len(moments) == 1 else common_moment([each.at for each in rows])
        same = labels and len({ledger.table for ledger in rows}) == 1
        table = f", table {first.table}" if same else ""
        ax.set_title(f"{first.source or 'where the bytes are'} {at}{table}")
    add_legend(ax, own, columns=5)
    return ax


@picture
def occupancy(one: Ledger, ax: Axes | None = None) -> Axes:
    """Draw the number of spans by share of live slots, in tenths; full spans have their own bar."""
    ax = ax or new_axes(height=3.4)
    counts = np.array(one.occupancy)
    bars = ax.bar(np.arange(len(counts)), counts, color="#0072B2", width=0.86)
    bars[-1].set_hatch("//")
    bars[-1].set_edgecolor("white")
    for place, count in enumerate(counts.tolist()):
        if count:
            ax.annotate(f"{count:,}", (place, count), ha="center", va="bottom", fontsize=8)
    names = [f"{10 * k}-{10 * k + 10}" for k in range(len(counts) - 1)]
    ax.set_xticks(np.arange(len(counts)), [*names, "full"], fontsize=8)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("slots in use, % of the span's slots")
    ax.set_ylabel("spans")
    spans = _format.plural(int(counts.sum()), "span")
    ax.set_title(f"{one.source or 'heap'} {when(one.at)}, table {one.table}: {spans} of slots")
    return ax


@picture
def timeline(samples: AnyRows, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw committed bytes over time: requested, round-up, other slots and metadata, free pages.

    Args:
        samples: rows of `Recording.timeline()`.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
    """
    own = ax is None
    ax = ax or new_axes(height=4.4)
    x = _over_time(samples, ax)
    scale, unit = scale_of(float(samples["held_bytes"].max(initial=0)), ax.yaxis)
    used = samples["held_bytes"] - samples["free_page_bytes"]
    below = np.zeros(len(samples))
    for top, label, colour, hatch in (
        (samples["requested_bytes"], "requested", "#0072B2", ""),
        (samples["slot_bytes"], "round-up", "#E69F00", "////"),
        (used, "free slots, caches, metadata", "#9DCBE8", ""),
        (samples["held_bytes"], "free pages", "#E4E4E4", ".."),
    ):
        ax.fill_between(
            x,
            below / scale,
            top / scale,
            facecolor=colour,
            edgecolor="white",
            hatch=hatch,
            label=label,
            step="post",
            linewidth=0,
        )
        below = top
    ax.set_ylabel(f"held, {unit}")
    ax.set_ylim(bottom=0)
    ax.set_title(title or "bytes over time")
    add_legend(ax, own)
    return ax


@picture
def replays(rows: Sequence[Replay], ax: Axes | None = None) -> Axes:
    """Draw the resident bytes of replays over the recording's time, and the live bytes.

    `rows`: replays of one recording.
    """
    own = ax is None
    ax = ax or new_axes(height=4.4)
    most = max(row.samples["rss_bytes"].max(initial=0) for row in rows)
    scale, unit = scale_of(float(most), ax.yaxis)
    for i, row in enumerate(rows):
        x = _over_time(row.samples, ax)
        line = LINES[i % len(LINES)]
        ax.plot(x, row.samples["rss_bytes"] / scale, label=row.allocator, linestyle=line)
    first = rows[0].samples
    ax.fill_between(
        _over_time(first, ax),
        first["requested_bytes"] / scale,
        color="#CCCCCC",
        label="requested, live",
        linewidth=0,
    )
    ax.set_ylabel(f"resident, {unit}")
    ax.set_ylim(bottom=0)
    ax.set_title(f"replay of {rows[0].source}")
    add_legend(ax, own)
    return ax


def _over_time(samples: AnyRows, ax: Axes) -> NDArray[Any]:
    """Label the time axis; return the samples' times, or their operations if they have no times."""
    times = samples["time_ns"]
    if not len(times) or times[-1] == times[0]:
        ax.set_xlabel("operations")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        places: NDArray[Any] = samples["op"]
    else:
        scale, unit = time_scale_of(float(times[-1]), ax.xaxis)
        ax.set_xlabel(f"time of the recording, {unit}")
        places = times / scale
    if len(places) > 1 and places[0] < places[-1]:
        ax.set_xlim(places[0], places[-1])
    return places


def _beside(ax: Axes, text: str, x: Any, y: Any) -> Any:
    """Label a bar at its end, and return the label."""
    return ax.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center")


def _make_room(ax: Axes, notes: Sequence[Any]) -> None:
    """Extend the x axis of a caller's Axes for the labels at the ends of bars.

    A layout may still make the Axes narrower, so that labels have a larger share of it.
    """
    width = 0.85 * ax.get_window_extent().width
    shares = [min(note.get_window_extent().width / width, 0.7) for note in notes]
    ends = [note.xy[0] / (1 - share) for note, share in zip(notes, shares, strict=True)]
    ax.set_xlim(0, max([ax.get_xlim()[1], *ends]))


# --- classes --------------------------------------------------------------------------------------

_OF_CLASSES = (
    *("roundup_bytes", "large_rounding_bytes", "tail_bytes"),
    *("free_slot_bytes", "cached_bytes"),
)
"""The parts of the waste of a class. Rounding of large objects is a separate part."""


@picture
def waste_by_class(one: Ledger, ax: Axes | None = None, *, classes: int = 12) -> Axes:
    """Draw a stacked bar for each class with the most waste; large objects count as a class.

    Bars are labelled with their bytes and their share of the ledger's total waste, which includes
    metadata and free pages.

    Args:
        one: the ledger.
        ax: where to draw; None makes a new figure.
        classes: the maximum number of bars.

    Raises:
        InvalidError: no class wastes a byte, or `classes` is less than 1.
    """
    if classes < 1:
        raise InvalidError(f"classes {classes}: at least one class must be drawn")
    rows = np.asarray(one.classes)
    parts = {name: _wasted(rows, name) for name in _OF_CLASSES}
    total: NDArray[np.int64] = np.sum(list(parts.values()), axis=0)
    wasting = int(np.count_nonzero(total))
    if not wasting:
        raise InvalidError("no waste to draw: no size class of the ledger has any")
    shown = np.argsort(-total, kind="stable")[: min(classes, wasting)]
    own = ax is None
    ax = ax or new_axes(height=1.6 + 0.3 * len(shown))
    scale, unit = scale_of(float(total[shown[0]]))
    stacked_parts(ax, {name: column[shown] / scale for name, column in parts.items()}, 0.72)
    notes = []
    for place, size in enumerate(total[shown].tolist()):
        text = f"{_format.size(size)}, {_format.share(size, one.waste_bytes)}"
        notes.append(_beside(ax, text, size / scale, place))
    ax.set_yticks(np.arange(len(shown)), [_name(rows[i]) for i in shown])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.25 * float(total[shown[0]]) / scale)
    if not own:
        _make_room(ax, notes)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"held beyond requested, {unit}; and the share of all waste")
    ax.set_ylabel("slots of the class")
    rest = f"; the {len(shown)} of {wasting} with the most" if len(shown) < wasting else ""
    ax.set_title(
        f"{one.source or 'heap'} {when(one.at)}, table {one.table}:\n"
        f"classes have {_format.size(int(total.sum()))} of {_format.size(one.waste_bytes)}"
        f" waste{rest}"
    )
    add_legend(ax, own, columns=5)
    return ax


def _wasted(rows: NDArray[np.void], name: str) -> NDArray[np.int64]:
    """Return the bytes of a part by class. Row 0 has the rounding of large objects."""
    large = np.asarray(rows["cls"]) == 0
    if name == "large_rounding_bytes":
        return np.where(large, rows["roundup_bytes"], 0).astype(np.int64)
    if name == "roundup_bytes":
        return np.where(large, 0, rows["roundup_bytes"]).astype(np.int64)
    found: NDArray[np.int64] = rows[name].astype(np.int64)
    return found


def _name(row: Any) -> str:
    return f"{int(row['size_bytes']):,} B" if row["cls"] else "large objects"

# SPDX-License-Identifier: Apache-2.0
"""Pictures. Each function draws on an Axes, or on one of a new figure, and returns it.

One style (spanwise.mplstyle) for all; the user's own settings are not changed. The colours are of
the palette of Okabe and Ito, "Color universal design" (2008), told apart by colour-blind readers.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise._outputs import check_output
from spanwise._parts import PARTS
from spanwise.errors import InvalidError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.frontier import Frontier
    from spanwise.ledger import Ledger
    from spanwise.replay import Replay
    from spanwise.sizeclass import SizeClassTable

_P = ParamSpec("_P")

STYLE = str(Path(__file__).with_name("spanwise.mplstyle"))
"""Path of the style: `matplotlib.style.use(spanwise.plots.STYLE)`."""

PART_COLOURS = {
    "requested_bytes": "#0072B2",
    "roundup_bytes": "#D55E00",
    "tail_bytes": "#E69F00",
    "free_slot_bytes": "#56B4E9",
    "cached_bytes": "#009E73",
    "metadata_bytes": "#7F7F7F",
    "large_rounding_bytes": "#CC79A7",
    "arena_slack_bytes": "#8B6F47",
    "quarantine_bytes": "#444444",
    "free_page_bytes": "#CCCCCC",
}
_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def _pyplot() -> Any:
    """matplotlib.pyplot, imported at the first picture: it takes longer than all else."""
    return importlib.import_module("matplotlib.pyplot")


@functools.cache
def _style() -> dict[str, Any]:
    """The settings of the shipped style, and no others."""
    matplotlib = importlib.import_module("matplotlib")
    return dict(matplotlib.rc_params_from_file(STYLE, use_default_template=False))


@contextmanager
def _styled() -> Iterator[None]:
    """The shipped style; at the end the user's own values of its settings are put back.

    Only of these: matplotlib loads a notebook's backend at the first figure, and what that turns on
    (`interactive`, without which later figures are not shown) must stay, so `style.context`, which
    puts everything back, does not serve.
    """
    settings = _pyplot().rcParams
    before = {name: settings[name] for name in _style()}
    settings.update(_style())
    try:
        yield
    finally:
        settings.update(before)


def _in_style(draw: Callable[_P, Axes]) -> Callable[_P, Axes]:
    """Draws in the shipped style and puts the user's settings back."""

    @functools.wraps(draw)
    def styled(*args: _P.args, **kwargs: _P.kwargs) -> Axes:
        with _styled():
            return draw(*args, **kwargs)

    return styled


def new_axes(width: float = 7.0, height: float = 4.0) -> Axes:
    """The Axes of a new figure in the shipped style; sizes in inches."""
    plt = _pyplot()
    with _styled():
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    made: Axes = ax
    return made


def _scale(most: float) -> tuple[int, str]:
    """Bytes a unit, and its name, for values up to `most` bytes."""
    return next((scale, name) for scale, name in _SCALES if most >= 2 * scale or scale == 1)


@_in_style
def waste(
    tables: Sequence[SizeClassTable], ax: Axes | None = None, *, largest: int | None = None
) -> Axes:
    """Waste of each size, in percent of its slot, under one or more tables.

    Args:
        tables: the tables.
        ax: where to draw; None makes a new figure.
        largest: last size, bytes; None: the largest class of all.
    """
    ax = ax or new_axes()
    most = largest or max(table.max_bytes for table in tables)
    sizes = np.arange(1, most + 1)
    for i, table in enumerate(tables):
        rounded = table.round_up(sizes)
        width = 2.2 if i == 0 and len(tables) > 1 else 0.9  # seen under the others
        ax.plot(sizes, 100 * (rounded - sizes) / rounded, label=table.name, linewidth=width)
    ax.set_xscale("log", base=2)
    ax.set_xlim(1, most)
    ax.set_ylim(0, 100)
    ax.xaxis.set_major_formatter(lambda value, _: _format.size(value).replace(".0", ""))
    ax.set_xlabel("requested size")
    ax.set_ylabel("waste, % of the slot")
    ax.set_title("round-up of each size")
    if len(tables) > 1:
        ax.legend()
    return ax


@_in_style
def ledgers(rows: Sequence[Ledger], ax: Axes | None = None, *, labels: Sequence[str] = ()) -> Axes:
    """Ledgers as stacked bars, one a ledger; parts of 0 bytes in all of them are left out.

    Args:
        rows: the ledgers.
        ax: where to draw; None makes a new figure.
        labels: names of the bars; none: the tables' names.
    """
    own = ax is None
    ax = ax or new_axes(height=1.5 + 0.55 * len(rows))
    names = list(labels) or [ledger.table for ledger in rows]
    scale, unit = _scale(max((ledger.held_bytes for ledger in rows), default=0))
    places = np.arange(len(rows))
    left = np.zeros(len(rows))
    for name, title in PARTS.items():
        lengths = np.array([getattr(ledger, name) for ledger in rows]) / scale
        if lengths.any():
            ax.barh(places, lengths, left=left, color=PART_COLOURS[name], label=title, height=0.62)
            left += lengths
    for place, ledger, end in zip(places, rows, left, strict=True):
        wasted = _format.share(ledger.waste_bytes, ledger.held_bytes)
        ax.annotate(
            f"{_format.size(ledger.held_bytes)}, {wasted} waste",
            (end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlim(0, max(left.max(initial=0) * 1.32, 1e-9))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"held, {unit}")
    first = rows[0] if rows else None
    if first is not None:
        when = f" at {first.at}" if first.at in ("peak", "end") else ""
        ax.set_title(f"{first.source or 'where the bytes are'}{when}")
    if own:
        ax.figure.legend(loc="outside lower left", ncols=5)
    else:
        ax.legend()
    return ax


@_in_style
def live(samples: NDArray[np.void], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Requested and held bytes over time.

    Args:
        samples: rows of `Recording.timeline`.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
    """
    ax = ax or new_axes()
    seconds = samples["time_ns"] / 1e9
    over_time = bool(len(seconds)) and seconds[-1] > seconds[0]
    x: NDArray[Any] = seconds if over_time else samples["op"]
    scale, unit = _scale(float(samples["held_bytes"].max(initial=0)))
    for name, label, colour in (
        ("held_bytes", "held", "#CCCCCC"),
        ("slot_bytes", "in slots", "#E69F00"),
        ("requested_bytes", "requested", "#0072B2"),
    ):
        ax.fill_between(
            x, samples[name] / scale, color=colour, label=label, step="post", linewidth=0
        )
    ax.set_xlabel("time, s" if over_time else "operations")
    ax.set_ylabel(unit)
    ax.set_ylim(bottom=0)
    if len(x) > 1:
        ax.set_xlim(x[0], x[-1])
    ax.set_title(title or "bytes over time")
    ax.legend(loc="upper left")
    return ax


@_in_style
def replays(rows: Sequence[Replay], ax: Axes | None = None) -> Axes:
    """Resident bytes of replays over the operations, above what the recording has live.

    Args:
        rows: replays of one recording.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    scale, unit = _scale(float(max(row.samples["rss_bytes"].max(initial=0) for row in rows)))
    for row in rows:
        ax.plot(row.samples["op"], row.samples["rss_bytes"] / scale, label=row.allocator)
    first = rows[0].samples
    ax.fill_between(
        first["op"], first["live_bytes"] / scale, color="#CCCCCC", label="live", linewidth=0
    )
    ax.set_xlabel("operations")
    ax.set_ylabel(f"resident, {unit}")
    ax.set_xlim(0, max(int(first["op"].max(initial=1)), 1))
    ax.set_ylim(bottom=0)
    ax.set_title(f"replay of {rows[0].source}")
    ax.legend(loc="upper left")
    return ax


@_in_style
def histogram(rows: NDArray[np.void], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Requests by size, on logarithmic scales.

    Args:
        rows: what `Recording.histogram` gave.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
    """
    ax = ax or new_axes()
    ax.vlines(np.maximum(rows["size"], 1), 0.5, rows["count"], color="#0072B2", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    ax.xaxis.set_major_formatter(lambda value, _: _format.size(value).replace(".0", ""))
    ax.set_xlabel("requested size")
    ax.set_ylabel("requests")
    ax.set_title(title or "requests by size")
    return ax


@_in_style
def frontier(points: Frontier, ax: Axes | None = None) -> Axes:
    """Held beyond requested against the number of classes: one U for each kind of heap.

    Args:
        points: the frontier.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    curves = [(pair, points.curve(*pair)) for pair in points.curves()]
    most = max((float((c["held"] - c["requested"]).max()) for _, c in curves), default=1.0)
    scale, unit = _scale(most)
    for (span_scale, caches), curve in curves:
        waste_bytes = (curve["held"] - curve["requested"]) / scale
        spans = "" if span_scale == 1 else f", spans x{span_scale}"
        caches_text = "caches as recorded" if caches == 0 else _format.plural(caches, "cache")
        (line,) = ax.plot(
            curve["classes"],
            waste_bytes,
            label=caches_text + spans,
            marker=".",
            linewidth=1.2,
            linestyle="-" if span_scale == 1 else "--",
        )
        least = int(np.argmin(waste_bytes))
        ax.plot(
            curve["classes"][least], waste_bytes[least], marker="o", color=line.get_color(), ms=8
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("classes")
    ax.set_ylabel(f"held beyond requested, {unit}")
    ax.set_title("waste at the peak; the least of each curve is marked")
    ax.legend(fontsize="small", ncols=2)
    return ax


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuses, before there is a picture, a place where `save` could not put it.

    Raises:
        OSError, InvalidError: as `save`.
    """
    check_output(path)
    _check_ending(Path(path))


def _check_ending(place: Path) -> None:
    bases = importlib.import_module("matplotlib.backend_bases")
    known = sorted(bases.FigureCanvasBase.get_supported_filetypes())
    if place.suffix[1:].lower() not in known:
        raise InvalidError(f"{place}: no picture has this ending; use one of {', '.join(known)}")


def save(ax: Axes, path: str | os.PathLike[str]) -> None:
    """Writes the picture that an Axes is part of, and closes it; the file appears whole.

    Raises:
        OSError: the system refused to write.
        InvalidError: the ending of the name is no format that matplotlib knows.
    """
    plt = _pyplot()
    figure: Any = ax.figure
    place = Path(path)
    growing = place.with_name(f".{place.stem}.{os.getpid()}{place.suffix}")
    try:
        _check_ending(place)
        with _styled():
            figure.savefig(growing)
        growing.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        with suppress(OSError):
            growing.unlink()
        plt.close(figure)

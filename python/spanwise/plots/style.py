# SPDX-License-Identifier: Apache-2.0
"""The style and the registry of all pictures, and shared drawing functions.

The user's settings are not changed. The colours are from the palette of Okabe and Ito, "Color
universal design" (2008), which colour-blind readers can distinguish.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from spanwise.errors import InvalidError
from spanwise.ledger.parts import PARTS
from spanwise.results.files import check_output, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


_P = ParamSpec("_P")

PICTURES: dict[str, Callable[..., Any]] = {}
"""The functions that draw pictures, by name."""

STYLE = str(Path(__file__).with_name("spanwise.mplstyle"))
"""Path of the style sheet: `matplotlib.style.use(spanwise.plots.STYLE)`."""

PART_COLOURS = {
    "requested_bytes": "#0072B2",
    "roundup_bytes": "#D55E00",
    "tail_bytes": "#D55E00",
    "free_slot_bytes": "#56B4E9",
    "cached_bytes": "#009E73",
    "metadata_bytes": "#7F7F7F",
    "large_rounding_bytes": "#D55E00",
    "free_page_bytes": "#CCCCCC",
}
"""Colours of parts: all rounding has one colour."""

PART_HATCHES = {
    "roundup_bytes": "////",
    "free_slot_bytes": "....",
    "cached_bytes": "||||",
    "large_rounding_bytes": "xxxx",
    "free_page_bytes": "----",
}
"""Hatches distinguish parts of the same colour, and of equally light colours in greyscale."""

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The colours of lines in order; the eighth line has the first colour with another marker."""

LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Dashes and markers distinguish lines in greyscale."""

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def pyplot() -> Any:
    """Import matplotlib.pyplot at the first picture, and return it."""
    return importlib.import_module("matplotlib.pyplot")


@functools.cache
def _style() -> dict[str, Any]:
    """Return the settings of the shipped style, and no others."""
    matplotlib = importlib.import_module("matplotlib")
    return dict(matplotlib.rc_params_from_file(STYLE, use_default_template=False))


@contextmanager
def styled() -> Iterator[None]:
    """Apply the shipped style; restore the user's values of its settings at the end.

    `style.context` restores all settings, so it cannot be used: at the first figure matplotlib
    loads a notebook's backend, which turns `interactive` on, and that must stay.
    """
    settings = pyplot().rcParams
    before = {name: settings[name] for name in _style()}
    settings.update(_style())
    try:
        yield
    finally:
        settings.update(before)


def picture(draw: Callable[_P, Axes]) -> Callable[_P, Axes]:
    """Register a function that draws, and apply the shipped style in it.

    If the first parameter is annotated with a class, an argument of another class is a TypeError,
    and so is a single object where a sequence is wanted. Classes are compared by name, because
    pictures import models for type checkers only. `ax` must be one Axes or None.
    """
    signature = inspect.signature(draw)
    argument = next(iter(signature.parameters))
    wanted = draw.__annotations__[argument]

    @functools.wraps(draw)
    def drawn(*args: _P.args, **kwargs: _P.kwargs) -> Axes:
        if args and wanted.isidentifier() and wanted != "AnyRows":
            kind = type(args[0])
            if wanted not in [one.__name__ for one in kind.__mro__]:
                raise TypeError(f"{argument} must be {wanted}, not {kind.__name__}")
        if args and wanted.startswith("Sequence[") and not isinstance(args[0], Iterable):
            one = type(args[0]).__name__
            raise TypeError(f"{argument} must be a list, not {one}; for a single one pass [it]")
        given = signature.bind_partial(*args, **kwargs).arguments.get("ax")
        if given is not None:
            check_axes(given, "one Axes or None")
        with styled():
            ax = draw(*args, **kwargs)
            if given is not None:
                fit(ax)
            return ax

    PICTURES[draw.__name__] = drawn
    return drawn


def check_axes(ax: Any, wanted: str = "one Axes") -> None:
    """Raises TypeError unless the argument `ax` is an Axes."""
    if not isinstance(ax, importlib.import_module("matplotlib.axes").Axes):
        several = isinstance(ax, np.ndarray | list | tuple)
        first = f"; pass axes[{', '.join('0' * np.ndim(ax))}]" if several else ""
        raise TypeError(f"ax must be {wanted}, not {type(ax).__name__}{first}")


def new_axes(width: float = 7.0, height: float = 4.0) -> Axes:
    """Return the Axes of a new figure in the shipped style; sizes are in inches."""
    plt = pyplot()
    with styled():
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    made: Axes = ax
    return made


def when(at: str) -> str:
    """Name the moment of a ledger in a title: "at the end", but "now" of a live heap."""
    return at if at == "now" else f"at {at}"


def add_legend(ax: Axes, own: bool, columns: int = 4) -> None:
    """Put the legend below a figure of our own, or at the top of the caller's Axes."""
    if own:
        ax.figure.legend(loc="outside lower left", ncols=columns)
    elif ax.get_legend_handles_labels()[1]:
        legend_on_top(ax, columns)


def legend_on_top(ax: Axes, columns: int, **options: Any) -> None:
    """Add a framed legend with at most `columns`, fewer if it would be wider than the Axes.

    A linear y axis is extended at the top, so that the legend covers no data. On a logarithmic one
    the legend is where it covers the least. A layout may make the Axes lower later.
    """
    looks: dict[str, Any] = {
        "frameon": True,
        "framealpha": 0.9,
        "columnspacing": 1,
        "handlelength": 1.5,
        "handletextpad": 0.5,
    }
    for count in range(columns, 0, -1):
        legend: Any = ax.legend(loc="upper left", ncols=count, **looks, **options)
        if legend.get_window_extent().width <= 0.98 * ax.get_window_extent().width:
            break
    if ax.get_yscale() != "linear":
        ax.legend(loc="best", ncols=count, **looks, **options)
        return
    share = 1.3 * legend.get_window_extent().height / ax.get_window_extent().height
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, bottom + (top - bottom) / (1 - min(share, 0.75)))


def fit(ax: Axes) -> None:
    """Wrap title and x label at the width of a caller's Axes, and thin out a logarithmic x axis."""
    for text in (ax.title, ax.xaxis.label):
        text.set_text("\n".join(_wrapped(text, 0.93 * ax.get_window_extent().width)))
    ticker = importlib.import_module("matplotlib.ticker")
    locator = ax.xaxis.get_major_locator()
    if isinstance(locator, ticker.LogLocator):
        locator.set_params(numticks=ticks_in(ax))


def _wrapped(text: Any, width: float) -> Iterator[str]:
    """Yield the lines of a text, wrapped at a width in pixels."""
    measured = text.figure.text(0, 0, "", fontproperties=text.get_fontproperties())
    for line in text.get_text().split("\n"):
        measured.set_text(line)
        wide = measured.get_window_extent().width
        fitting = max(int(len(line) * width / wide), 10) if wide > width else len(line) or 1
        yield from textwrap.wrap(line, fitting, break_long_words=False) or [""]
    measured.remove()


def ticks_in(ax: Axes) -> int:
    """Return the number of labels of numbers for which the x axis has room: 4 in 3 inches."""
    figure: Any = ax.figure
    return min(max(int(ax.get_window_extent().width / figure.dpi / 0.75), 2), 7)


def log_ticks(low: float, high: float, most: int) -> NDArray[np.float64]:
    """Return at most `most` round numbers from `low` to `high`, evenly spread over a log axis."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    powers = np.power(10.0, np.arange(first, last + 1), dtype=np.float64)
    fine = (np.outer(powers, steps).ravel() for steps in _STEPS)
    coarse = (powers[::stride] for stride in range(1, len(powers) + 1))
    for ticks in (*fine, *coarse):
        found: NDArray[np.float64] = ticks[(ticks >= low) & (ticks <= high)]
        if len(found) <= most:
            return found
    return powers[:0]


_STEPS = (
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
)
"""The ticks in a decade, from fine to coarse."""


def set_log_x(ax: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers that do not overlap.

    matplotlib labels ten or more ticks of an axis of less than a decade.
    """
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(_few_ticks()())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.set_xticks([], minor=True)


@functools.cache
def _few_ticks() -> Any:
    """Return a class of locators; matplotlib is imported at the first picture."""
    ticker = importlib.import_module("matplotlib.ticker")

    class FewTicks(ticker.Locator):  # type: ignore[misc, name-defined]
        """As many round numbers as the axis has room for."""

        def __call__(self) -> Any:
            return self.tick_values(*self.axis.get_view_interval())

        def tick_values(self, vmin: float, vmax: float) -> Any:
            most = ticks_in(self.axis.axes)
            found = log_ticks(vmin, vmax, most)
            few = ticker.MaxNLocator(max(most - 1, 1))
            return found if len(found) > 1 else few.tick_values(vmin, vmax)

    return FewTicks


def add_colour_bar(ax: Axes, colours: Any, label: str) -> Any:
    """Add a colour bar for a mesh or a mappable."""
    figure: Any = ax.figure
    bar = figure.colorbar(colours, ax=ax, fraction=0.04, pad=0.02)
    bar.set_label(label)
    return bar


def stacked_parts(
    ax: Axes, parts: dict[str, NDArray[np.float64]], height: float
) -> NDArray[np.float64]:
    """Stack the parts of horizontal bars, omitting parts that are 0; return the bars' ends."""
    left = np.zeros(len(next(iter(parts.values()), np.zeros(0))))
    for name, lengths in parts.items():
        if lengths.any():
            part_bars(
                ax, np.arange(len(lengths)), lengths, name, height, left=left, label=PARTS[name]
            )
            left += lengths
    return left


def part_bars(
    ax: Axes, places: Any, lengths: Any, name: str, height: float, **options: Any
) -> None:
    """Draw horizontal bars in the colour and hatch of a part; `options` are those of `barh`."""
    colour, hatch = PART_COLOURS[name], PART_HATCHES.get(name)
    looks: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
    ax.barh(places, lengths, height, **looks, **options)


def time_scale_of(most_ns: float, axis: Axis | None = None) -> tuple[int, str]:
    """Return the unit for times up to `most_ns`, or that of the axis: its nanoseconds and name."""
    return _unit_of(most_ns, _TIMES, axis)


def scale_of(most: float, axis: Axis | None = None) -> tuple[int, str]:
    """Return the unit for values up to `most` bytes, or that of the axis: its bytes and name."""
    return _unit_of(most, _SIZES, axis)


def _unit_of(most: float, units: tuple[tuple[int, str], ...], axis: Axis | None) -> tuple[int, str]:
    """Return the unit in the label of an axis or of one that it is shared with, or else the best.

    So pictures that are drawn on the same Axes, or with a shared axis, have the same unit.
    """
    if axis is not None:
        x = axis is axis.axes.xaxis
        group = axis.axes.get_shared_x_axes() if x else axis.axes.get_shared_y_axes()
        for ax in group.get_siblings(axis.axes):
            name = (ax.get_xlabel() if x else ax.get_ylabel()).rpartition(", ")[2]
            for scale, unit in units:
                if unit == name:
                    return scale, unit
    return next((scale, name) for scale, name in units if most >= 2 * scale or scale == 1)


# --- files ----------------------------------------------------------------------------------------


def check_place(path: str | os.PathLike[str]) -> None:
    """Check in advance that `save` can write to this path.

    Raises:
        OSError, InvalidError: as in `save`.
    """
    check_output(path)
    _check_ending(Path(path))


def _check_ending(place: Path) -> None:
    bases = importlib.import_module("matplotlib.backend_bases")
    known = sorted(bases.FigureCanvasBase.get_supported_filetypes())
    if place.suffix[1:].lower() not in known:
        raise InvalidError(f"{place}: unsupported picture format; use one of {', '.join(known)}")


def save(ax: Axes, path: str | os.PathLike[str]) -> None:
    """Write the figure of an Axes, and close it.

    Raises:
        TypeError: `ax` is no Axes.
        OSError: the system refused to write.
        InvalidError: matplotlib does not support the file extension.
    """
    check_axes(ax)
    figure: Any = ax.figure
    try:
        _check_ending(Path(path))
        with whole_file(path) as growing, styled():
            figure.savefig(growing)
    finally:
        pyplot().close(figure)

# SPDX-License-Identifier: Apache-2.0
"""The style that all pictures share, and what every picture needs to be drawn in it.

The user's own settings are not changed. The colours are of the palette of Okabe and Ito, "Color
universal design" (2008), told apart by colour-blind readers.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from spanwise.ledger.parts import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_P = ParamSpec("_P")


STYLE = str(Path(__file__).with_name("spanwise.mplstyle"))
"""Path of the style: `matplotlib.style.use(spanwise.plots.STYLE)`."""


PART_COLOURS = {
    "requested_bytes": "#0072B2",
    "roundup_bytes": "#D55E00",
    "tail_bytes": "#D55E00",
    "free_slot_bytes": "#56B4E9",
    "cached_bytes": "#009E73",
    "metadata_bytes": "#7F7F7F",
    "large_rounding_bytes": "#D55E00",
    "arena_slack_bytes": "#8B6F47",
    "quarantine_bytes": "#8B6F47",
    "free_page_bytes": "#CCCCCC",
}
"""Seven colours for ten parts: the parts that rounding costs share one, and so do those of
arenas."""


PART_HATCHES = {
    "roundup_bytes": "////",
    "free_slot_bytes": "....",
    "cached_bytes": "||||",
    "large_rounding_bytes": "xxxx",
    "quarantine_bytes": "////",
    "free_page_bytes": "----",
}
"""Parts of one colour, or of one as light as another's, are told apart by these, also in grey."""


_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def pyplot() -> Any:
    """matplotlib.pyplot, imported at the first picture: it takes longer than all else."""
    return importlib.import_module("matplotlib.pyplot")


@functools.cache
def _style() -> dict[str, Any]:
    """The settings of the shipped style, and no others."""
    matplotlib = importlib.import_module("matplotlib")
    return dict(matplotlib.rc_params_from_file(STYLE, use_default_template=False))


@contextmanager
def styled() -> Iterator[None]:
    """The shipped style; at the end the user's own values of its settings are put back.

    Other settings stay as they are: at the first figure matplotlib loads a notebook's backend,
    which turns `interactive` on, and without that later figures are not shown. So `style.context`,
    which restores every setting, cannot be used.
    """
    settings = pyplot().rcParams
    before = {name: settings[name] for name in _style()}
    settings.update(_style())
    try:
        yield
    finally:
        settings.update(before)


def in_style(draw: Callable[_P, Axes]) -> Callable[_P, Axes]:
    """Draws in the shipped style and puts the user's settings back.

    A first argument that is annotated with a class must be of that class: TypeError names it. The
    annotation is compared by name, since pictures import their models for type checkers only.
    """
    argument = next(iter(inspect.signature(draw).parameters))
    wanted = draw.__annotations__[argument]

    @functools.wraps(draw)
    def drawn(*args: _P.args, **kwargs: _P.kwargs) -> Axes:
        if args and wanted.isidentifier() and wanted != "AnyRows":
            kind = type(args[0])
            if wanted not in [one.__name__ for one in kind.__mro__]:
                raise TypeError(f"{argument} must be {wanted}, not {kind.__name__}")
        with styled():
            return draw(*args, **kwargs)

    return drawn


def new_axes(width: float = 7.0, height: float = 4.0) -> Axes:
    """The Axes of a new figure in the shipped style; sizes in inches."""
    plt = pyplot()
    with styled():
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    made: Axes = ax
    return made


_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The colours of lines, in this order; the eighth line has the first colour with another mark."""

LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Lines are told apart by these as well as by colour: also in grey."""


def stacked_parts(
    ax: Axes, parts: dict[str, NDArray[np.float64]], height: float
) -> NDArray[np.float64]:
    """Stacks the parts of each bar; a part that no bar has is left out. Returns where bars end.

    Args:
        ax: where to draw.
        parts: lengths by the part's name, one a bar.
        height: of a bar; bars are 1 apart.
    """
    left = np.zeros(len(next(iter(parts.values()), np.zeros(0))))
    for name, lengths in parts.items():
        if lengths.any():
            ax.barh(
                np.arange(len(lengths)),
                lengths,
                left=left,
                color=PART_COLOURS[name],
                hatch=PART_HATCHES.get(name),
                edgecolor="white",
                linewidth=0,
                label=PARTS[name],
                height=height,
            )
            left += lengths
    return left


def time_scale_of(most_ns: float) -> tuple[int, str]:
    """Nanoseconds a unit, and its name, for times up to `most_ns`."""
    return next((scale, name) for scale, name in _TIMES if most_ns >= 2 * scale or scale == 1)


def scale_of(most: float) -> tuple[int, str]:
    """Bytes a unit, and its name, for values up to `most` bytes."""
    return next((scale, name) for scale, name in _SCALES if most >= 2 * scale or scale == 1)

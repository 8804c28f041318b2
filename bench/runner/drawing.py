# SPDX-License-Identifier: Apache-2.0
"""What all pictures of bench/ share: the style, its colours, bars with intervals, whole files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.errors import BenchError
from runner.stats import Interval

STYLE = Path(__file__).resolve().parents[2] / "python/spanwise/plots/spanwise.mplstyle"
OURS, OTHERS, DARK = "#0072B2", "#B8BCC2", "#444444"
MIDDLE = "#56B4E9"  # the colour between ours and the others'


def pyplot() -> Any:
    """matplotlib.pyplot, without a screen, in the one style of all pictures.

    Raises:
        BenchError: matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415  (only pictures need it)
    except ImportError as error:
        raise BenchError("--plot needs matplotlib: pip install matplotlib") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    plt.style.use(STYLE)
    return plt


def save(figure: Any, path: Path, measured: str = "") -> Path:
    """Writes a picture that is either complete or not there.

    Args:
        figure: matplotlib's.
        path: the PNG.
        measured: below the picture: date, commit and machine, as of `measured_on`.

    Raises:
        BenchError: it cannot be written; the message names the path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.stem + ".part.png")
    if measured:
        _write_below(figure, measured)
    try:
        figure.savefig(part, bbox_inches="tight")
        part.replace(path)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _write_below(figure: Any, line: str) -> None:
    """Writes a small line below all that is drawn, legends outside of the axes as well."""
    figure.canvas.draw()
    figure.set_layout_engine("none")  # the layout is frozen here, and so are these legends:
    for legend in figure.legends:
        if legend.get_bbox_to_anchor() is figure.bbox:
            legend.set_bbox_to_anchor((0, 0, 1, 1), transform=figure.transFigure)
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())
    width, height = figure.get_size_inches()
    place = drawn.x0 / width, (drawn.y0 - 0.08) / height
    figure.text(*place, line, fontsize=7, color=DARK, va="top")


def bars(
    axis: Any, names: Sequence[str], found: Sequence[Interval], colours: Sequence[str]
) -> None:
    """Bars from bottom to top, medians with their intervals.

    Args:
        axis: matplotlib's.
        names: of the bars.
        found: as many.
        colours: as many.
    """
    places = range(len(names))
    axis.barh(
        places,
        [each.median for each in found],
        xerr=[
            [each.median - each.low for each in found],
            [each.high - each.median for each in found],
        ],
        color=colours,
        ecolor=DARK,
    )
    axis.set_yticks(places, names)

# SPDX-License-Identifier: Apache-2.0
"""Saves figures, whole or not at all, in the format of the file extension."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanwise.errors import InvalidError
from spanwise.plots.style import pyplot, styled
from spanwise.results.files import check_output, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        OSError: the system refused to write.
        InvalidError: matplotlib does not support the file extension.
    """
    figure: Any = ax.figure
    try:
        _check_ending(Path(path))
        with whole_file(path) as growing, styled():
            figure.savefig(growing)
    finally:
        pyplot().close(figure)

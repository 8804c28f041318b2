# SPDX-License-Identifier: Apache-2.0
"""Pictures are written whole or not at all, in a format that their name tells."""

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
    plt = pyplot()
    figure: Any = ax.figure
    try:
        _check_ending(Path(path))
        with whole_file(path) as growing, styled():
            figure.savefig(growing)
    finally:
        plt.close(figure)

# SPDX-License-Identifier: Apache-2.0
"""Pictures are written whole or not at all, in a format that their name tells."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanwise.errors import InvalidError
from spanwise.plots.style import pyplot, styled
from spanwise.recordings.outputs import check_output

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
    place = Path(path)
    growing = place.with_name(f".{place.stem}.{os.getpid()}{place.suffix}")
    try:
        _check_ending(place)
        with styled():
            figure.savefig(growing)
        growing.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        with suppress(OSError):
            growing.unlink()
        plt.close(figure)

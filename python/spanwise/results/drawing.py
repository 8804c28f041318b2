# SPDX-License-Identifier: Apache-2.0
"""Draw results by the name of the picture; the first call imports `spanwise.plots`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(picture: str, *args: Any, **options: Any) -> Axes:
    """Call the function of that name in `spanwise.plots`."""
    plots = importlib.import_module("spanwise.plots")
    made: Axes = plots.PICTURES[picture](*args, **options)
    return made

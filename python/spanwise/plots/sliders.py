# SPDX-License-Identifier: Apache-2.0
"""A notebook widget with sliders that redraws a picture; see docs/design/inspect.md.

It needs anywidget (the extra `widget`). Without it, or in a front end without widgets, the same
call shows the picture of the middle values.
"""

from __future__ import annotations

import base64
import functools
import importlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spanwise.errors import InvalidError
from spanwise.plots.style import pyplot, styled

Drawing = Callable[..., Any]
"""Draws for one value of each parameter, given by name, and returns the Axes."""

_SCRIPT = Path(__file__).with_name("sliders.js")
_INSTALL = "a picture only: pip install 'spanwise[widget]' adds the sliders"


class Exploration:
    """A picture for each combination of values, drawn when it is first needed.

    Attributes:
        choices: name of each parameter -> its values.
        chosen: the index of the shown value of each parameter.
    """

    def __init__(self, draw: Drawing, choices: dict[str, Sequence[Any]]) -> None:
        self._draw = draw
        self.choices = {name: list(values) for name, values in choices.items()}
        self.chosen = [len(values) // 2 for values in self.choices.values()]
        self._pictures: dict[tuple[int, ...], bytes] = {}

    @property
    def values(self) -> dict[str, Any]:
        """The shown value of each parameter."""
        pairs = zip(self.choices.items(), self.chosen, strict=True)
        return {name: values[at] for (name, values), at in pairs}

    def _repr_png_(self) -> bytes:
        key = tuple(self.chosen)
        if key not in self._pictures:
            with styled():
                self._pictures[key] = png_of(self._draw(**self.values))
        return self._pictures[key]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in self.values.items())
        return f"<picture of {shown}>\n({_INSTALL})"


def explore(draw: Drawing, **choices: Sequence[Any]) -> Any:
    """Return a Jupyter widget with a slider per parameter and the picture of the chosen values.

    Pictures are drawn when their values are first chosen.

    Args:
        draw: called as `draw(name=value, ...)`; returns the Axes of a new figure.
        **choices: the values of each parameter, in the order of its slider. It starts in the
            middle.

    Returns:
        An `anywidget.AnyWidget` with the trait `chosen`, the index of each value; without
        anywidget an `Exploration`. Both show a picture in front ends without widgets.

    Raises:
        InvalidError: no parameter, or one without values.

    Example:
        explore(lambda table: SizeClassTable.named(table).plot_waste(), table=["go", "c16"])
    """
    if not choices or not all(map(len, choices.values())):
        raise InvalidError("explore: give at least one parameter, each with values")
    pictures = Exploration(draw, dict(choices))
    try:
        made = _widget_type()
    except ImportError:
        return pictures
    return made(pictures)


@functools.cache
def _widget_type() -> Any:
    """Return the widget's class, which can only be created if anywidget is installed."""
    anywidget, traits = (importlib.import_module(name) for name in ("anywidget", "traitlets"))

    class ExploreWidget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        """Sliders and a picture."""

        _esm = _SCRIPT
        labels = traits.List().tag(sync=True)
        chosen = traits.List().tag(sync=True)
        picture = traits.Bytes().tag(sync=True)

        def __init__(self, pictures: Exploration) -> None:
            labels = [[name, list(map(str, each))] for name, each in pictures.choices.items()]
            super().__init__(labels=labels, chosen=pictures.chosen, picture=pictures._repr_png_())
            self._pictures = pictures
            self.observe(self._redraw, "chosen")

        def _redraw(self, change: Any) -> None:
            self._pictures.chosen = list(change["new"])
            self.picture = self._pictures._repr_png_()

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            """Return the widget, and the picture for front ends without widgets."""
            data, metadata = super()._repr_mimebundle_(**kwargs)
            png = base64.b64encode(self.picture).decode("ascii")
            return {**data, "image/png": png}, metadata

    return ExploreWidget


def png_of(ax: Any) -> bytes:
    """Return the picture of the Axes' figure as PNG, leaving no figure open."""
    room = io.BytesIO()
    try:
        with styled():
            ax.figure.savefig(room, format="png")
    finally:
        pyplot().close(ax.figure)
    return room.getvalue()

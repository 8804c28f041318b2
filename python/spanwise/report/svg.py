# SPDX-License-Identifier: Apache-2.0
"""SVG as text: elements, scales and axes. Colours are classes of report.css."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

WIDTH = 820
LEFT, RIGHT = 64, 26


def element(name: str, text: str = "", **attributes: object) -> str:
    """One element; `_` in an attribute's name stands for `-`, a last `_` for nothing."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_plain(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{text}</{name}>"


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def words(x: float, y: float, text: str, anchor: str = "start", class_: str = "label") -> str:
    """A text, escaped."""
    return element("text", html.escape(text), x=x, y=y, text_anchor=anchor, class_=class_)


def figure(height: int, parts: Iterable[str], title: str, id_: str = "") -> str:
    """A picture; screen readers read its `title`."""
    name = html.escape(title, quote=True)
    mark = f' id="{id_}"' if id_ else ""
    return (
        f'<svg{mark} viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">'
        f"{''.join(parts)}</svg>"
    )


@dataclass(frozen=True)
class Scale:
    """Values to places.

    Attributes:
        low: the value at `start`.
        high: the value at `end`.
        log: logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of a value; values outside of the scale lie at its edge."""
        low, high, one = self.low, self.high, value
        if self.log:
            low, high, one = math.log(low), math.log(high), math.log(max(value, self.low))
        part = (one - low) / (high - low) if high > low else 0.0
        return self.start + (self.end - self.start) * min(max(part, 0.0), 1.0)


def ticks(high: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to `high`, about so many."""
    if high <= 0:
        return [0.0]
    raw = high / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [i * step for i in range(int(high / step + 1e-9) + 1)]


def y_axis(scale: Scale, marks: Sequence[float], text: Callable[[float], str], unit: str) -> str:
    """Lines across the picture with their values, and the unit above them."""
    made = [words(4, scale.end - 8, unit, class_="unit")]
    for mark in marks:
        y = scale.at(mark)
        made.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        made.append(words(LEFT - 6, y + 3.5, text(mark), "end"))
    return "".join(made)


def x_axis(
    scale: Scale, marks: Sequence[float], text: Callable[[float], str], y: float, unit: str
) -> str:
    """Ticks below the picture with their values, and the unit below them."""
    made = [element("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    for mark in marks:
        x = scale.at(mark)
        made.append(element("line", x1=x, x2=x, y1=y, y2=y + 4, class_="axis"))
        made.append(words(x, y + 16, text(mark), "middle"))
    made.append(words(WIDTH - RIGHT, y + 31, unit, "end", class_="unit"))
    return "".join(made)


def legend(entries: Sequence[tuple[str, str]], y: float) -> str:
    """Names beside patches: (class, name)."""
    made, x = [], float(LEFT)
    for class_, name in entries:
        wide = 34 + 7.0 * len(name)
        if x + wide > WIDTH:
            x, y = float(LEFT), y + 18
        made.append(element("rect", x=x, y=y - 9, width=14, height=11, class_=f"{class_} patch"))
        made.append(words(x + 19, y, name))
        x += wide
    return "".join(made)

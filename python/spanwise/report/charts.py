# SPDX-License-Identifier: Apache-2.0
"""Charts of the report, as SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.results.rows import Rows
from spanwise.tables.table import SizeClassTable

# --- SVG ------------------------------------------------------------------------------------------

WIDTH = 820
NARROW = 376
"""A page has each chart twice: of this width for screens that are not wider than a phone's."""
LEFT, RIGHT = 64, 26
_NARROW_ENDS = (52, NARROW - 14)


def _ends(width: int) -> tuple[int, int]:
    """Return the coordinates between which a chart of this width has its axis."""
    return (LEFT, width - RIGHT) if width == WIDTH else _NARROW_ENDS


def both(draw: Callable[[int], str]) -> str:
    """Return a chart in both widths; style sheets show one of them."""
    return draw(WIDTH) + draw(NARROW)


def element(name: str, text: str = "", **attributes: object) -> str:
    """Return an element; `_` in an attribute's name becomes `-`, a trailing `_` is dropped."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_plain(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{text}</{name}>"


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def words(x: float, y: float, text: str, anchor: str = "start", class_: str = "label") -> str:
    """Return a text element, escaped."""
    return element("text", html.escape(text), x=x, y=y, text_anchor=anchor, class_=class_)


def figure(
    height: float,
    parts: Iterable[str],
    title: str,
    id_: str = "",
    data: Mapping[str, float] | None = None,
    *,
    width: int = WIDTH,
) -> str:
    """Return an svg element; screen readers read its `title`, and scripts its `data`."""
    name = html.escape(title, quote=True)
    class_ = "wide broad" if width == WIDTH else "narrow"
    mark = f' id="{id_}"' if id_ and width == WIDTH else ""
    mark += f' class="{id_}"' if id_ else ""
    mark += "".join(f' data-{key}="{value}"' for key, value in (data or {}).items())
    return (
        f'<div class="{class_}"><svg{mark} viewBox="0 0 {width} {height:g}" role="img"'
        f' aria-label="{name}">{"".join(parts)}</svg></div>'
    )


@dataclass(frozen=True)
class Scale:
    """Maps values to coordinates."""

    low: float  # the value at `start`
    high: float  # the value at `end`
    start: float
    end: float
    log: bool = False  # logarithmic

    def at(self, value: float) -> float:
        """Return the coordinate of a value, clamped to the ends of the scale."""
        low, high, one = self.low, self.high, value
        if self.log:
            low, high, one = math.log(low), math.log(high), math.log(max(value, self.low))
        part = (one - low) / (high - low) if high > low else 0.0
        return self.start + (self.end - self.start) * min(max(part, 0.0), 1.0)


def ticks(high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from 0 to `high`."""
    if high <= 0:
        return [0.0]
    raw = high / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [i * step for i in range(int(high / step + 1e-9) + 1)]


def y_axis(
    scale: Scale,
    marks: Sequence[float],
    text: Callable[[float], str],
    unit: str,
    width: int = WIDTH,
) -> str:
    """Draw lines across the picture with their values, and the unit above them."""
    left, right = _ends(width)
    made = [words(4, scale.end - 8, unit, class_="unit")]
    for mark in marks:
        y = scale.at(mark)
        made.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        made.append(words(left - 6, y + 3.5, text(mark), "end"))
    return "".join(made)


_AFTER_AXIS, _HALF_LETTER = 12, 3.5


def x_axis(
    scale: Scale, marks: Sequence[float], text: Callable[[float], str], y: float, unit: str
) -> str:
    """Draw ticks below the picture with their values, and the unit below them.

    A value that would be cut at the end of the picture ends there instead of below its tick.
    """
    made = [element("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    for mark in marks:
        x = scale.at(mark)
        made.append(element("line", x1=x, x2=x, y1=y, y2=y + 4, class_="axis"))
        value, end = text(mark), scale.end + _AFTER_AXIS
        is_cut = x + _HALF_LETTER * len(value) > end
        made.append(words(end if is_cut else x, y + 16, value, "end" if is_cut else "middle"))
    made.append(words(scale.end, y + 31, unit, "end", class_="unit"))
    return "".join(made)


def legend(
    entries: Sequence[tuple[str, str]], y: float, left: float = LEFT, end: float = WIDTH
) -> tuple[str, float]:
    """Draw a patch and a name for each entry (class, name); return it and the y of its end."""
    made, x = [], float(left)
    for class_, name in entries:
        wide = 34 + 7.0 * len(name)
        if x + wide > end and x > left:
            x, y = float(left), y + 18
        made.append(element("rect", x=x, y=y - 9, width=14, height=11, class_=f"{class_} patch"))
        made.append(words(x + 19, y, name))
        x += wide
    return "".join(made), y + 14


# --- charts ---------------------------------------------------------------------------------------

_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))
_THOUSANDS = ((10**9, " G"), (10**6, " M"), (10**3, " k"))
_WASTE = ("roundup_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes")
MOST_CLASSES = 12
MOST_BARS = 320


def _unit(most: float, units: Sequence[tuple[int, str]]) -> tuple[int, str]:
    return next((scale, name) for scale, name in units if most >= 2 * scale or scale == 1)


def css_class(part: str) -> str:
    """Return the CSS class of a part of a ledger: roundup_bytes is part-roundup."""
    return f"part-{part.removesuffix('_bytes').replace('_', '-')}"


def _shown(value: float) -> str:
    return f"{value:,.6g}"


def _brief(value: float) -> str:
    """Return a power of ten in at most five characters."""
    scale, name = next((one for one in _THOUSANDS if value >= one[0]), (1, ""))
    return f"{value / scale:g}{name}"


def _used(ledgers: Sequence[Any]) -> list[str]:
    """Return the parts that are not 0 in all ledgers."""
    return [name for name in PARTS if any(np.any(np.asarray(one[name]) > 0) for one in ledgers)]


_Parts = Sequence[tuple[str, str, int]]
"""Parts of a bar: CSS class, name, bytes."""


def own_bar(own: _Parts, most: int, width: int = WIDTH) -> str:
    """Draw the parts of the program's own heap; `most` bytes are the end of the axis."""
    left, right, count = _bar_axis(width)
    scale, unit = _unit(most, _BYTES)
    x = Scale(0, max(most, 1) / scale, left, right)
    total = sum(size for _, _, size in own)
    parts = [*_bar(own, x, scale, 6)]
    parts.append(x_axis(x, ticks(x.high, count), _shown, 48, f"resident, {unit}; % of resident"))
    named = [(css, f"{name} {_format.size(size)}") for css, name, size in own if size > 0]
    key, height = legend(named, 104, left, width)
    title = f"the program's own heap: {_format.size(total)} resident"
    return figure(height, [*parts, key], title, width=width)


def _bar_axis(width: int) -> tuple[int, int, int]:
    """Return the coordinates between which a bar's axis is, and its number of ticks."""
    return (LEFT, width - RIGHT, 8) if width == WIDTH else (10, width - 20, 4)


def _parts_of(ledger: Ledger, *, waste: bool = False) -> _Parts:
    """Return the parts of a ledger that are not 0; those of its waste only."""
    return [
        (css_class(name), text, int(getattr(ledger, name)))
        for name, text in PARTS.items()
        if getattr(ledger, name) > 0 and not (waste and name == "requested_bytes")
    ]


def ledger_bar(ledger: Ledger, most: int = 0, width: int = WIDTH) -> str:
    """Draw two bars: the ledger with a line where its resident bytes end, and its waste alone.

    The axis of the first ends at the held bytes, or at `most` bytes if they are more.
    """
    left, right, count = _bar_axis(width)
    most = max(ledger.held_bytes, most, 1)
    scale, unit = _unit(most, _BYTES)
    x = Scale(0, most / scale, left, right)
    parts = [*_bar(_parts_of(ledger), x, scale, 22)]
    if ledger.resident_bytes is not None:
        end = x.at(ledger.resident_bytes / scale)
        text = f"resident {_format.size(ledger.resident_bytes)}"
        anchor = "end" if end > width / 2 else "start"
        parts.append(element("line", x1=end, x2=end, y1=14, y2=64, class_="resident"))
        parts.append(words(end + (-4 if anchor == "end" else 4), 12, text, anchor))
    text = f"held at the simulated peak, {unit}; % of held"
    parts.append(x_axis(x, ticks(x.high, count), _shown, 64, text))
    bottom = 128
    if ledger.waste_bytes > 0:
        scale, unit = _unit(ledger.waste_bytes, _BYTES)
        x = Scale(0, ledger.waste_bytes / scale, left, right)
        parts += _bar(_parts_of(ledger, waste=True), x, scale, 106)
        parts.append(
            x_axis(x, ticks(x.high, count), _shown, 138, f"its waste alone, {unit}; % of waste")
        )
        bottom = 194
    named = [(css, f"{name} {_format.size(size)}") for css, name, size in _parts_of(ledger)]
    key, height = legend(named, bottom, left, width)
    title = f"ledger of the simulated peak: {_format.size(ledger.held_bytes)} held"
    return figure(height, [*parts, key], title, width=width)


def _bar(parts: _Parts, x: Scale, scale: int, y: int) -> Iterator[str]:
    """Draw parts side by side; wide ones are labelled with their share."""
    begin, total = 0, sum(size for _, _, size in parts)
    for css, name, size in parts:
        left, right = x.at(begin / scale), x.at((begin + size) / scale)
        begin += size
        if size == 0:
            continue
        title = element("title", f"{name}: {_format.size(size)}")
        yield element("rect", title, x=left, y=y, width=right - left, height=32, class_=css)
        if right - left > 46:
            share = _format.share(size, total)
            yield words((left + right) / 2, y + 21, share, "middle", "inside")


def timeline(
    rows: Rows,
    peak_op: int,
    own: tuple[str, Sequence[tuple[int, int]]] = ("", ()),
    width: int = WIDTH,
) -> str:
    """Draw held bytes over time, stacked by part, with resident bytes as a line and the peak.

    Each moment's values are drawn until the next moment. `own` is the program's allocator, and
    times (ns) with its resident bytes: a second line.
    """
    if not len(rows):
        return ""
    most = max(float(rows["held_bytes"].max()), *(float(size) for _, size in own[1]), 0.0)
    scale, unit = _unit(most, _BYTES)
    y = Scale(0, most / scale or 1.0, 250, 24)
    x, places, marks, x_unit = _over_time(rows, width)
    at = np.array([x.at(float(place)) for place in places])
    made = [y_axis(y, ticks(y.high), _shown, unit, width)]
    below = np.zeros(len(rows))
    used = _used([rows])
    for name in used:
        top = below + rows[name] / scale
        made.append(element("path", d=_area(at, below, top, y), class_=css_class(name)))
        below = top
    corners = _steps(at, rows["resident_bytes"] / scale)
    line = " ".join(f"{a:.1f},{y.at(value):.1f}" for a, value in corners)
    made.append(element("polyline", points=line, class_="resident"))
    shown = [one for one in own[1] if one[0] <= rows["time_ns"][-1] and x_unit != "operations"]
    own_at = np.array([place_in_time(rows, 0, ns, width) for ns, _ in shown])
    corners = _steps(own_at, np.array([size / scale for _, size in shown]))
    line = " ".join(f"{a:.1f},{y.at(value):.1f}" for a, value in corners)
    made.append(element("polyline", points=line, class_="own") if line else "")
    peak = at.tolist()[min(int(np.searchsorted(rows["op"], peak_op)), len(at) - 1)]
    made.append(element("line", x1=peak, x2=peak, y1=24, y2=250, class_="peak"))
    anchor = "end" if peak > width / 2 else "start"
    made.append(words(peak + (-4 if anchor == "end" else 4), 20, "peak", anchor))
    now = {"id": "now"} if width == WIDTH else {}
    made.append(
        element("line", **now, x1=peak, x2=peak, y1=24, y2=250, class_="now", visibility="hidden")
    )
    made.append(x_axis(x, marks, _shown, 250, x_unit))
    names = [(css_class(name), PARTS[name]) for name in used]
    lines = [("resident-patch", "resident (line)")]
    lines += [("own-patch", f"{own[0]}, as it ran (line)")] if line else []
    left, right = _ends(width)
    key, height = legend([*names, *lines], 304, left, width)
    data = {"left": left, "right": right, "top": 24, "bottom": 250}
    title = "bytes held over time by the simulated heap, by part"
    return figure(height, [*made, key], title, "timeline", data, width=width)


def _over_time(rows: Rows, width: int) -> tuple[Scale, NDArray[Any], list[float], str]:
    """Return the axis of times, or of operations if the recording has no times."""
    times = np.asarray(rows["time_ns"], np.float64)
    if times[-1] > times[0]:
        scale, unit = _unit(float(times[-1]), _TIMES)
        places, name = times / scale, f"time of the recording, {unit}"
    else:
        places, name = np.asarray(rows["op"], np.float64), "operations"
    low, high = float(places[0]), float(places[-1])
    marks = [mark for mark in ticks(high, 8 if width == WIDTH else 4) if mark >= low]
    return Scale(low, high, *_ends(width)), places, marks, name


def place_in_time(rows: Rows, op: int, time_ns: int, width: int = WIDTH) -> float:
    """Return the x coordinate in `timeline` of an operation and its time."""
    if not len(rows):
        return float(LEFT)
    x, _, _, name = _over_time(rows, width)
    if name == "operations":
        return x.at(op)
    times = np.asarray(rows["time_ns"], np.float64)
    return x.at(time_ns / _unit(float(times[-1]), _TIMES)[0])


def values_over_time(
    rows: Rows, own: tuple[str, Sequence[tuple[int, int]]] = ("", ())
) -> dict[str, Any]:
    """Return what `timeline` shows as data: x coordinates, moments, and the values by name."""
    if not len(rows):
        return {"x": [], "when": [], "of": []}
    x, places, _, unit = _over_time(rows, WIDTH)
    is_timed = unit != "operations"
    columns = {PARTS[name]: rows[name].tolist() for name in _used([rows])}
    columns |= {"held": rows["held_bytes"].tolist(), "resident": rows["resident_bytes"].tolist()}
    if is_timed and own[1]:
        before = np.searchsorted([ns for ns, _ in own[1]], rows["time_ns"], side="right") - 1
        columns[f"{own[0]} as it ran"] = [own[1][i][1] if i >= 0 else None for i in before.tolist()]
    ops, times = rows["op"].tolist(), rows["time_ns"].tolist()
    return {
        "x": [round(x.at(place), 1) for place in places.tolist()],
        "when": [_format.seconds(ns) for ns in times] if is_timed else [f"#{op:,}" for op in ops],
        "of": list(columns.items()),
    }


def _steps(at: NDArray[Any], values: NDArray[Any]) -> list[tuple[float, float]]:
    """Return the corners of a line that changes at each place and is level between them."""
    return list(zip(np.repeat(at, 2)[1:], np.repeat(values, 2)[:-1], strict=True))


def _area(at: NDArray[Any], below: NDArray[Any], top: NDArray[Any], y: Scale) -> str:
    """Return the path of the area between two lines of steps."""
    (x, first), *there = _steps(at, top)[:-1] or [(at[0], top[0])]
    back = _steps(at, below)[-2::-1]
    made = [f"M{x:.1f} {y.at(first):.1f}"]
    made += [f"{'HV'[i % 2]}{(a, y.at(b))[i % 2]:.1f}" for i, (a, b) in enumerate(there)]
    made += [f"{'VH'[i % 2]}{(y.at(b), a)[i % 2]:.1f}" for i, (a, b) in enumerate(back)]
    return f"{''.join(made)}Z"


def sizes(
    rows: Rows,
    table: SizeClassTable,
    live: Mapping[int, int] | None = None,
    most_live: int = 0,
    width: int = WIDTH,
) -> str:
    """Draw requests by size on logarithmic scales, with the table's classes as ticks below."""
    if not len(rows):
        return ""
    requested, counts = _binned(rows)
    left, right = _ends(width)
    high = float(max(requested[-1], table.largest_bytes))
    x = Scale(1, 2 ** np.ceil(np.log2(high)), left, right, log=True)
    most = float(max(counts.max(), most_live))
    y = Scale(0.5, most * 1.3, 220, 24, log=True)
    decades = [10.0**i for i in range(int(np.log10(max(most, 1))) + 1)]
    made = [y_axis(y, decades, _brief, "requests, objects" if live else "requests", width)]
    classes = table.classes["size_bytes"].tolist()
    if live:
        made += _boxes(live, [*classes, 0], x, y)
    for size, count in zip(requested.tolist(), counts.tolist(), strict=True):
        title = element("title", f"{size:,.0f} B: {count:,.0f} requests") if width == WIDTH else ""
        place = x.at(size)
        made.append(
            element("line", title, x1=place, x2=place, y1=220, y2=y.at(count), class_="bar")
        )
    made += [
        element("line", x1=x.at(size), x2=x.at(size), y1=224, y2=236, class_="boundary")
        for size in classes
    ]
    made.append(words(left - 6, 234, "classes", "end", class_="unit"))
    step = 2 if width == WIDTH else 4
    powers = [2.0**i for i in range(int(np.log2(x.high)) + 1) if i % step == 0]
    text = f"requested size; the ticks above are the {len(classes)} classes of {table.name}"
    if width != WIDTH:
        text = f"requested size; ticks: the classes of {_format.shortened(table.name, 12)}"
    made.append(x_axis(x, powers, lambda value: _format.size(value).replace(".0", ""), 238, text))
    data = {"bottom": 220, "height": 196, "most": y.high}
    title = f"requests by size, and the classes of {table.name}"
    return figure(276, made, title, "size-chart", data, width=width)


def _boxes(live: Mapping[int, int], slots: Sequence[int], x: Scale, y: Scale) -> Iterator[str]:
    """Draw the live objects of each class; 0 is the class of large objects."""
    for before, slot in zip([0, *slots], slots, strict=False):
        left, right = x.at(before), x.at(slot or x.high)
        count = live.get(slot, 0)
        top = y.at(count) if count else 220
        title = element("title", f"{count:,} live in slots of {slot:,} B" if slot else "large")
        yield element(
            "rect",
            title,
            x=left,
            y=top,
            width=right - left,
            height=220 - top,
            class_="live",
            data_slot=slot,
        )


def _binned(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sizes and counts; more than MOST_BARS sizes are binned."""
    requested = np.maximum(np.asarray(rows["size_bytes"], np.float64), 1)
    counts = np.asarray(rows["count"], np.float64)
    if len(requested) <= MOST_BARS:
        return requested, counts
    step = np.log2(requested[-1]) / MOST_BARS
    place = np.floor(np.log2(requested) / step).astype(int)
    bins, first = np.unique(place, return_index=True)
    total = np.bincount(place, weights=counts)[bins]
    return requested[first], total


def waste_by_class(ledger: Ledger, width: int = WIDTH) -> str:
    """Draw the classes with the most waste, by part; rounding of large objects is round-up."""
    classes = np.asarray(ledger.classes)
    wasted = np.sum([classes[name].astype(np.int64) for name in _WASTE], axis=0)
    order = np.argsort(-wasted, kind="stable")[:MOST_CLASSES]
    shown = [int(i) for i in order if wasted[i] > 0]
    if not shown:
        return ""
    scale, unit = _unit(float(wasted[shown[0]]), _BYTES)
    start, end = _ends(width)
    room = 1.22 if width == WIDTH else 1.7  # for the text after the longest bar
    x = Scale(0, float(wasted[shown[0]]) / scale * room, start + 20, end)
    made = []
    for row, i in enumerate(shown):
        y, begin = 8 + 20 * row, 0.0
        name = f"{int(classes['size_bytes'][i]):,} B" if classes["cls"][i] else "large"
        made.append(words(start + 14, y + 12, name, "end"))
        for part in _WASTE:
            value = int(classes[part][i]) / scale
            left, right = x.at(begin), x.at(begin + value)
            if value > 0:
                title = element("title", f"{PARTS[part]}: {_format.size(value * scale)}")
                made.append(
                    element(
                        "rect",
                        title,
                        x=left,
                        y=y,
                        width=right - left,
                        height=15,
                        class_=css_class(part),
                    )
                )
            begin += value
        share = _format.share(int(wasted[i]), ledger.waste_bytes)
        made.append(words(x.at(begin) + 5, y + 12, f"{_format.size(int(wasted[i]))}, {share}"))
    bottom = 12 + 20 * len(shown)
    made.append(
        x_axis(x, _ticks_of(x, width), _shown, bottom, f"waste at the peak, {unit}; % of all waste")
    )
    used = [part for part in _WASTE if classes[part].any()]
    names = [(css_class(part), PARTS[part]) for part in used]
    key, height = legend(names, bottom + 52, start, width)
    return figure(height, [*made, key], "waste by size class", width=width)


def _ticks_of(x: Scale, width: int) -> list[float]:
    return ticks(x.high, 6 if width == WIDTH else 3)

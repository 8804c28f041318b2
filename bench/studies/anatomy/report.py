# SPDX-License-Identifier: Apache-2.0
"""What the anatomy prints and draws: the table of parts, folded stacks, the flame graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from runner.drawing import DARK, pyplot, save
from runner.stats import Interval, interval
from runner.text import text_table

from studies.anatomy import parts
from studies.anatomy.profile import Stack

STACK_IT2 = "stackIt2 "
TITLES = {
    "value": "stackIt",
    "inline": STACK_IT2 + "inline",
    "special": STACK_IT2 + "specialised",
    "generic": STACK_IT2 + "generic",
    "pointer": STACK_IT2 + "pointer",
    "tracked": STACK_IT2 + "tracked",
}
MIXED = "#E8EAED"
DARK_PARTS = ("call and cache", "class lookup", "free")
PANELS = (("value", "special"), ("inline", "generic"))
LABEL_POINTS = 6.5
# The width of a letter of the labels' font over the font's size, roughly.
LETTER = 0.56


@dataclass(frozen=True)
class Anatomy:
    """One case taken apart.

    Attributes:
        case: name in anatomy.c.
        objects: allocated an operation.
        bytes: of slots, an operation.
        stacks: instructions an operation by stack, outermost frame first.
        ns: an operation, one value a timed process; may be empty.
    """

    case: str
    objects: int
    bytes: int
    stacks: Mapping[Stack, float]
    ns: Sequence[float] = ()

    @property
    def title(self) -> str:
        """What tables and pictures call it."""
        return TITLES[self.case]

    @property
    def instructions(self) -> float:
        """All of an operation, its loop included."""
        return sum(self.stacks.values())

    @property
    def time(self) -> Interval | None:
        """Median ns an operation with its interval; None when nothing was timed."""
        return interval(self.ns) if self.ns else None

    @property
    def ns_an_instruction(self) -> float | None:
        """The median over the instructions: a mean, since these are not timed one by one."""
        return None if self.time is None else self.time.median / self.instructions

    def by_part(self) -> dict[str, float]:
        """Instructions an operation of each part, in the order of tables; the collector has 0."""
        found = dict.fromkeys(parts.names(), 0.0)
        for stack, count in self.stacks.items():
            found[parts.part_of(stack)] += count
        return found

    def unknown(self) -> dict[str, float]:
        """Instructions an operation of functions that no part names, most first."""
        found: dict[str, float] = {}
        for stack, count in self.stacks.items():
            if parts.part_of(stack) == parts.OTHER:
                name = stack[-1].function
                found[name] = found.get(name, 0.0) + count
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    @property
    def other_share(self) -> float:
        """`other` over all instructions, 0 to 1."""
        return self.by_part()[parts.OTHER] / self.instructions

    def as_json(self) -> dict[str, Any]:
        """For --json; instructions to three decimals."""
        found = self.time
        return {
            "case": self.case,
            "title": self.title,
            "allocs_per_op": self.objects,
            "bytes_per_op": self.bytes,
            "instructions": round(self.instructions, 3),
            "parts": {name: round(count, 3) for name, count in self.by_part().items()},
            "other_functions": {name: round(count, 3) for name, count in self.unknown().items()},
            "ns": None
            if found is None
            else {"median": found.median, "low": found.low, "high": found.high},
        }


def table(found: Sequence[Anatomy]) -> str:
    """Instructions an operation by part, with the share of all; a column a case."""
    split = [each.by_part() for each in found]
    rows = []
    for name in parts.names():
        cells = []
        for each, by_part in zip(found, split, strict=True):
            count = by_part[name]
            share = f"{count / each.instructions:.0%}"
            nothing = "0   0%" if name in (parts.COLLECTOR, parts.OTHER) else "-"
            cells.append(f"{count:.2f} {share:>4}" if count else nothing)
        rows.append([name, *cells])
    rows.append(["all", *(f"{each.instructions:.2f} 100%" for each in found)])
    rows.append(["B/op", *(str(each.bytes) for each in found)])
    rows.append(["allocs/op", *(str(each.objects) for each in found)])
    if any(each.ns for each in found):
        rows.append(["ns/op", *(_time_cell(each.time) for each in found)])
    titles = [each.title.removeprefix(STACK_IT2) for each in found]
    return text_table(["instructions/op", *titles], rows)


def _time_cell(found: Interval | None) -> str:
    return "-" if found is None else f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def folded(found: Sequence[Anatomy], operations: int) -> str:
    """Stacks as flame graph tools read them: `case;outer;inner COUNT`, instructions of the run."""
    lines = []
    for each in found:
        counts: dict[str, float] = {}
        for stack, count in each.stacks.items():
            name = ";".join([each.title, *(frame.function for frame in stack)])
            counts[name] = counts.get(name, 0.0) + count * operations
        lines += [f"{name} {round(count)}" for name, count in counts.items() if round(count) > 0]
    return "\n".join(sorted(lines)) + "\n"


# --- the flame graph ------------------------------------------------------------------------------


@dataclass
class Node:
    """A box of the flame graph.

    Attributes:
        name: the function, or the case.
        count: instructions an operation, those of the boxes above it included.
        parts: the same by part.
        above: what it calls or has inlined, by name.
    """

    name: str
    count: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    above: dict[str, Node] = field(default_factory=dict)

    def add(self, names: Sequence[str], part: str, count: float) -> None:
        """Adds an instruction whose frames above this one are `names`."""
        self.count += count
        self.parts[part] = self.parts.get(part, 0.0) + count
        if names:
            self.above.setdefault(names[0], Node(names[0])).add(names[1:], part, count)

    @property
    def depth(self) -> int:
        """Boxes on top of each other, this one included."""
        return 1 + max((node.depth for node in self.above.values()), default=0)

    @property
    def part(self) -> str:
        """The part of most of its instructions."""
        return max(self.parts.items(), key=lambda pair: pair[1])[0]

    @property
    def pure(self) -> bool:
        """Whether at least nine tenths of it are one part."""
        return self.parts[self.part] >= 0.9 * self.count

    def shown(self) -> list[Node]:
        """The boxes on top of it, in the order of parts, unless they only repeat its colour."""
        order = parts.names()
        boxes = [node for node in self.above.values() if not (self.pure and _is_part(node.name))]
        return sorted(boxes, key=lambda node: order.index(node.part))


def _is_part(name: str) -> bool:
    return name.startswith("[")


def tree(each: Anatomy) -> Node:
    """The boxes of a case. A function's own instructions stand on it as boxes named [PART]."""
    root = Node(each.title)
    for stack, count in each.stacks.items():
        part = parts.part_of(stack)
        root.add([*(frame.function for frame in stack), f"[{part}]"], part, count)
    return root


def plot(found: Sequence[Anatomy], about: str, path: Path) -> Path:
    """Flame graphs: stackIt beside stackIt2, and below them inline beside generic, on one scale.

    Args:
        found: the cases; panels of those that are missing stay away.
        about: what was compiled, for the title.
        path: the PNG.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    known = {each.case: each for each in found}
    panels = [(y, x, name) for y, row in enumerate(PANELS) for x, name in enumerate(row)]
    panels = [panel for panel in panels if panel[2] in known]
    trees = {name: tree(known[name]) for _, _, name in panels}
    widest = max(node.count for node in trees.values())
    depth = max(node.depth for node in trees.values()) - 1
    width, height = 15.0, 2 * (0.19 * depth + 0.8) + 0.3
    figure, axes = plt.subplots(2, 2, figsize=(width, height), squeeze=False)
    figure.subplots_adjust(0.02, 0.55 / height, 0.98, 1 - 0.6 / height, 0.08, 0.42)
    for axis in axes.flat:
        axis.set_visible(False)
    for y, x, name in panels:
        axis = axes[y, x]
        axis.set(visible=True, xlim=(0, widest), ylim=(0, depth), yticks=[])
        axis.grid(False)
        axis.tick_params(labelsize=8)
        axis.set_title(_panel_title(known[name]), loc="left", fontsize=10)
        ns = known[name].ns_an_instruction
        if ns is not None:
            axis.xaxis.set_major_formatter(partial(_count_and_ns, ns=ns))
        axis.set_xlabel(
            "instructions an operation" + ("" if ns is None else "; below, their share of its ns"),
            fontsize=8,
        )
        letters = axis.get_position().width * width * 72 / (LABEL_POINTS * LETTER)
        _draw(axis, trees[name], 0.0, 0, widest / letters)
    figure.suptitle(f"One allocation taken apart: {about}", x=0.01, y=0.995, ha="left", fontsize=11)
    _legend(plt, axes[0, 0], trees.values())
    saved = save(figure, path)
    plt.close(figure)
    return saved


def _count_and_ns(count: float, _: object = None, *, ns: float) -> str:
    """A tick's label: instructions, and the nanoseconds of so many average ones."""
    return f"{count:g}\n{count * ns:.1f} ns"


def _panel_title(each: Anatomy) -> str:
    found = each.time
    spent = "" if found is None else f", {found.median:.2f} ns [{found.low:.2f}, {found.high:.2f}]"
    return f"{each.title}: {each.instructions:.1f} instructions, {each.bytes} B/op{spent}"


def _draw(axis: Any, node: Node, left: float, level: int, letter: float) -> None:
    """A box, its label if three letters of it fit, and what stands on it."""
    colour, hatch = parts.looks()[node.part] if node.pure else (MIXED, "")
    axis.broken_barh(
        [(left, node.count)], (level, 1), facecolors=colour, hatch=hatch, edgecolors="white",
        linewidth=0.6,
    )  # fmt: skip
    room = int(node.count / letter) - 1
    name = node.name.strip("[]")
    if room >= 3:
        axis.text(
            left + letter / 2,
            level + 0.45,
            name if len(name) <= room else name[: room - 1] + "…",
            fontsize=LABEL_POINTS,
            style="italic" if _is_part(node.name) else "normal",
            va="center",
            color="white" if node.pure and node.part in DARK_PARTS else DARK,
            clip_on=True,
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.6} if hatch else None,
        )
    for above in node.shown():
        _draw(axis, above, left, level + 1, letter)
        left += above.count


def _legend(plt: Any, axis: Any, trees: Iterable[Node]) -> None:
    used = {name for node in trees for name, count in node.parts.items() if count > 0}
    handles = [
        plt.Rectangle((0, 0), 1, 1, fc=colour, hatch=hatch, ec="white", lw=0, label=name)
        for name, (colour, hatch) in parts.looks().items()
        if name in used
    ]
    handles.append(plt.Rectangle((0, 0), 1, 1, color=MIXED, label="several parts"))
    handles.append(
        plt.Rectangle((0, 0), 0, 0, alpha=0, label=f"{parts.COLLECTOR}: 0, {parts.NO_COLLECTOR}")
    )
    axis.legend(handles=handles, loc="upper right", fontsize=8, frameon=False)

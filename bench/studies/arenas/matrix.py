# SPDX-License-Identifier: Apache-2.0
"""When an arena pays: heap, arena, pool and both, by size of objects, lifetime and threads.

Tasks make eight objects each, write them, and drop them when so many later tasks have come. The
lifetime of an object is measured: live tasks times the time of one. The article's rule is that
arenas pay for objects of at most 128 B that live less than 1 ms; its own matrix is of 1,000 and
10,000 tasks.

    ./dev study arena-matrix -o docs/measurements/FILE.md --plot docs/arena-matrix.png    2 minutes
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.drawing import OTHERS, OURS, pyplot, save
from runner.provenance import measured_here

from studies.arenas.program import (
    STRATEGIES,
    command_of,
    parser_of,
    picture_of,
    run,
    table,
    tell,
    where_and_when,
)
from studies.arenas.surface import Cell, cell_of, verdict

SIZES = (16, 32, 64, 128, 256, 512, 1024)
LIVES = (1, 10, 100, 1000, 10_000)
THREADS = (1, 2)
TASKS = 10_000
COLOURS = {"heap": "#FFFFFF", "arena": "#56B4E9", "pool": "#F5B967", "arena_pool": "#C7E9C0"}
"""Of the cheapest strategy; their lightness differs as well, so that they are told in grey."""

EDGE: dict[str, Any] = {"edgecolor": OTHERS, "linewidth": 0.5}


def measure(build: Path, rounds: int, quick: bool) -> list[Cell]:
    """Measures all points; each round goes through all of them."""
    sizes, lives = ((64, 512), (1, 1000)) if quick else (SIZES, LIVES)
    points = [(size, live, count) for count in THREADS for size in sizes for live in lives]
    tasks = 200 if quick else TASKS
    found: dict[tuple[int, int, int], list[list[list[str]]]] = {point: [] for point in points}
    for _ in range(1 if quick else rounds):
        for point in points:
            found[point].append(run(build, "tasks", *point, tasks))
    return [cell_of(*point, lines) for point, lines in found.items()]


def article_rows(cells: Sequence[Cell], live: int) -> list[list[str]]:
    """Of 64 B in one thread: a row a strategy, ns of an object with so many tasks."""
    own = [one for one in cells if one.live == live and one.threads == 1 and one.size_bytes == 64]
    return [
        [name.replace("_", " + "), f"{live:,}", f"{cell.cost_ns[name]:.1f}"]
        for cell in own
        for name in STRATEGIES
    ]


def page(cells: Sequence[Cell], how: str) -> str:
    """The page: the article's matrix, the verdict, and all points."""
    rows = [row for live in (1000, 10_000) for row in article_rows(cells, live)]
    points = [
        [
            f"{cell.size_bytes} B, {cell.live:,} tasks, {cell.threads} threads",
            f"{cell.life_ns['heap'] / 1e6:.4f}",
            *(f"{cell.cost_ns[name]:.1f}" for name in STRATEGIES),
            cell.cheapest.replace("_", " + "),
        ]
        for cell in cells
    ]
    header = ["", "lives ms", *(name.replace("_", " + ") for name in STRATEGIES), "cheapest"]
    parts = (
        "# When an arena pays: heap, arena, pool and both",
        how,
        "Processor nanoseconds of an object that a task makes, writes, reads once and drops, eight"
        " objects a task; an arena is one of a task. Lifetimes are those of the heap's objects.",
        verdict(cells),
        "## 64 B, one thread, by tasks that live at once",
        table(["strategy", "tasks", "ns an object"], rows),
        "## All points",
        table(header, points),
    )
    return "\n\n".join(parts) + "\n"


def draw(cells: Sequence[Cell]) -> Any:
    """A panel for each number of threads: what is cheapest at each size and lifetime."""
    plt = pyplot()
    counts = sorted({cell.threads for cell in cells})
    sizes, lives = (
        sorted({getattr(cell, key) for cell in cells}) for key in ("size_bytes", "live")
    )
    figure, axes = plt.subplots(1, len(counts), figsize=(5.2 * len(counts), 4.2), squeeze=False)
    for ax, count in zip(axes[0], counts, strict=True):
        for cell in (one for one in cells if one.threads == count):
            x, y = sizes.index(cell.size_bytes), lives.index(cell.live)
            ax.add_patch(
                plt.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=COLOURS[cell.cheapest], **EDGE)
            )
            ax.text(x, y, f"{cell.over_heap:.2f}", ha="center", va="bottom", fontsize=8)
            ax.text(x, y, _life(cell), ha="center", va="top", fontsize=6, color="#444444")
        _draw_rule(ax, [one for one in cells if one.threads == count], sizes, lives)
        ax.set(xlim=(-0.5, len(sizes) - 0.5), ylim=(-0.5, len(lives) - 0.5))
        ax.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        ax.set_yticks(range(len(lives)), [f"{live:,}" for live in lives])
        ax.set(xlabel="object, bytes", ylabel="tasks that live at once, in each thread")
        ax.set_title(f"{count} thread{'s' if count > 1 else ''}")
        ax.grid(visible=False)
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=colour, **EDGE) for colour in COLOURS.values()]
    names = [f"{name.replace('_', ' + ')} is cheapest" for name in COLOURS]
    handles.append(plt.Line2D([], [], color=OURS, lw=2))
    names.append("the rule: left of and below it")
    figure.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3)
    figure.suptitle(
        "bench_study_arenas tasks: an object of an arena over one of the heap, and its life"
    )
    figure.tight_layout()
    return figure


def _life(cell: Cell) -> str:
    life = cell.life_ns["heap"]
    return f"{life / 1e6:.2g} ms" if life >= 1e5 else f"{life / 1e3:.2g} µs"


def _draw_rule(ax: Any, cells: Sequence[Cell], sizes: Sequence[int], lives: Sequence[int]) -> None:
    """Draws the edge of the region in which the rule says that an arena pays."""
    inside = {
        (sizes.index(one.size_bytes), lives.index(one.live)) for one in cells if one.is_in_rule
    }
    for x, y in inside:
        for other, edge in (
            ((x + 1, y), ([x + 0.5] * 2, [y - 0.5, y + 0.5])),
            ((x, y + 1), ([x - 0.5, x + 0.5], [y + 0.5] * 2)),
        ):
            if other not in inside:
                ax.plot(*edge, color=OURS, lw=2, clip_on=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints the page, and writes what was asked for."""
    parser = parser_of("arena-matrix", __doc__, "--rounds 3 --plot build/arena-matrix.png")
    options = parser.parse_args(arguments)
    cells = measure(options.build, options.rounds, options.quick)
    rounds = 1 if options.quick else options.rounds
    how = where_and_when(command_of("arena-matrix", options), rounds)
    how += picture_of(options, "Who is cheapest, by size and lives")
    tell(page(cells, how), options.output)
    if options.plot is not None:
        save(draw(cells), options.plot, measured_here(options.build))
    return 0
